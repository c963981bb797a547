"""The unadapted model: the baseline of every comparison."""

from typing import Any

from torch import nn

from tapr.adapters import Loop


class Source(Loop):
    """The unadapted model in evaluation mode: the baseline. Nothing moves; 1 forward an image."""

    title = "unadapted"
    only_own = True
    adapts = False

    def __init__(self, model: nn.Module, **common: Any) -> None:
        super().__init__(model, **common)
