"""Sharpness-aware minimisation (SAM) as a torch optimiser."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn


class SAM(torch.optim.SGD):
    """SGD by the gradient at the worst point within `radius` (Foret et al., ICLR 2021).

    A step needs the gradient twice. During the second time `climbed` is True: the weights are at
    that point. Without a gradient at either point no step is taken, and momentum moves nothing.
    """

    gradients = 2  # how many a step needs

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        *,
        lr: float,
        radius: float = 0.05,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, momentum=momentum, weight_decay=weight_decay)
        self.param_groups[0]["radius"] = radius
        self.climbed = False

    def step(self, closure: Callable[[], Tensor]) -> Any:  # type: ignore[override]
        """Climb to the worst point nearby, take the gradient there, return, and step with it."""
        with torch.enable_grad():
            loss = closure()
        uphill = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        if not uphill:
            return loss
        before = [p.detach().clone() for p in uphill]
        gradients = [p.grad for p in uphill if p.grad is not None]
        length = nn.utils.get_total_norm(gradients) + 1e-12
        with torch.no_grad():
            for p, gradient in zip(uphill, gradients, strict=True):
                p.add_(gradient * (self.param_groups[0]["radius"] / length))
        self.climbed = True
        try:
            with torch.enable_grad():
                closure()
        finally:
            self.climbed = False
            with torch.no_grad():
                for p, value in zip(uphill, before, strict=True):
                    p.copy_(value)
        super().step()
        return loss
