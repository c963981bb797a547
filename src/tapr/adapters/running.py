"""How a model's forwards are run: compiled, in mixed precision. What they compute stays."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import FunctionType
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

Kind = Literal["adapting", "feeding", "predicting"]
LOSS_SCALE = 2.0**10  # float16 has no gradients below 6e-8; the scale is taken out before the step


class Running:
    """Runs forwards of a model plainly, or as `compile` and `amp` say."""

    def __init__(self, model: nn.Module, *, compile: bool, amp: bool) -> None:
        self.model, self.amp = model, amp
        self.compiles = compile
        self._compiled = {kind: _compiled() for kind in get_args(Kind)} if compile else {}

    @contextmanager
    def __call__(self, kind: Kind, device: torch.device) -> Iterator[None]:
        """Forwards within are run in this way."""
        mixed = torch.autocast(device.type, half(device)) if self.amp else nullcontext()
        with mixed, self._replaced(self._compiled.get(kind)):
            yield

    def loss_scale(self, device: torch.device) -> float:
        """What the loss has to be multiplied with for its gradients to be kept."""
        return LOSS_SCALE if self.amp and half(device) == torch.float16 else 1.0

    @contextmanager
    def _replaced(self, compiled: Any) -> Iterator[None]:
        """Let the model's own hooks run outside of what is compiled, and leave no trace on it."""
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
    """Bfloat16, which has the range of float32; float16 on a GPU that does not have that."""
    lacking = device.type == "cuda" and not torch.cuda.is_bf16_supported()
    return torch.float16 if lacking else torch.bfloat16


def _run(forward: Any, images: Tensor) -> Any:
    return forward(images)


def _compiled() -> Any:
    """A compiled `_run` with a code object of its own.

    The compiler keeps its results by code object and does not look at hooks, in which the kinds of
    forward and the adapters differ: each gets results of its own.
    """
    return torch.compile(FunctionType(_run.__code__.replace(), globals(), "_run"))
