"""All that is needed to make an engine; it can be sent to another process, which makes its own."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tapr import methods
from tapr.runs.device import usable
from tapr.service.engine import Engine
from tapr.service.report import Facts
from tapr.service.settings import MIB, Settings


@dataclass(frozen=True)
class Plan:
    """A model, a method, and where and within which limits to run them."""

    model: nn.Module
    size: tuple[int, int, int]  # of the images: channels, height, width
    settings: Settings
    method: str
    options: dict[str, Any]
    device: str

    def engine(self, owner: str | None = None) -> Engine:
        """A new engine, warmed up with one batch, which it forgets: the first answer is fast."""
        device = usable(self.device)
        model = self.model.to(device)
        adapter = methods.adapt(model, self.method, **self.options)
        engine = Engine(model, adapter, self.settings, owner)
        channels, height, width = self.size
        ramp = torch.linspace(0, 1, width, device=device)  # one colour would alarm the guard
        logits = adapter.predict(ramp.expand(2, channels, height, width).contiguous()).logits
        adapter.reset()
        held = sum(t.nbytes for t in engine.streams.source.tensors.values())
        engine.facts = Facts(dict(adapter.recipe), logits.shape[1], MIB + 4 * held)
        return engine
