"""How a model's forwards are run: plainly, compiled, or in mixed precision."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import FunctionType
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

Kind = Literal["adapting", "feeding", "predicting"]
LOSS_SCALE = 2.0**10  # float16 has no gradients below 6e-8; we divide by it before the step


class Running:
    """Runs forwards of a model plainly, compiled (`compile`) or in mixed precision (`amp`)."""

    def __init__(self, model: nn.Module, *, compile: bool, amp: bool) -> None:
        self.model, self.amp = model, amp
        self.compiles = compile
        self._compiled = {kind: _compiled() for kind in get_args(Kind)} if compile else {}

    @contextmanager
    def __call__(self, kind: Kind, device: torch.device) -> Iterator[None]:
        """A context within which forwards are run in this way."""
        mixed = torch.autocast(device.type, half(device)) if self.amp else nullcontext()
        with mixed, self._replaced(self._compiled.get(kind)):
            yield

    def loss_scale(self, device: torch.device) -> float:
        """The factor of the loss with which small gradients survive in float16."""
        return LOSS_SCALE if self.amp and half(device) == torch.float16 else 1.0

    @contextmanager
    def _replaced(self, compiled: Any) -> Iterator[None]:
        """Run the model's own hooks outside the compiled code, and leave the model unchanged."""
        if compiled is None:
            yield
            return
        own, attributes = self.model.forward, vars(self.model)
        before = {"forward": attributes["forward"]} if "forward" in attributes else {}
        attributes["forward"] = partial(compiled, own)
        try:
            yield
        finally:
            del attributes["forward"]
            attributes.update(before)


def half(device: torch.device) -> torch.dtype:
    """The 16-bit type: bfloat16, which has the range of float32, or float16 on GPUs without it."""
    lacking = device.type == "cuda" and not torch.cuda.is_bf16_supported()
    return torch.float16 if lacking else torch.bfloat16


def _run(forward: Any, images: Tensor) -> Any:
    return forward(images)


def _compiled() -> Any:
    """A compiled `_run` with its own code object.

    The compiler caches its results by code object and ignores hooks, in which the kinds of forward
    and the adapters differ: each therefore needs its own cache.
    """
    return torch.compile(FunctionType(_run.__code__.replace(), globals(), "_run"))
