"""Sharpness-aware Tent: an optimiser that asks for the gradient twice (SAM, as in SAR).

Run it with `python examples/sharpness_aware.py`.
"""

from functools import partial
from typing import Any

import torch
from torch import nn

import tapr
from tapr.objectives import Entropy


class SAM(torch.optim.SGD):
    """SGD by the gradient at the worst point within `rho`: torch's own `step(closure)`."""

    gradients = 2  # that a step asks for

    def __init__(self, params: Any, *, lr: float, rho: float = 0.05) -> None:
        super().__init__(params, lr=lr)
        self.param_groups[0]["rho"] = rho

    def step(self, closure: Any) -> Any:  # type: ignore[override]
        with torch.enable_grad():
            loss = closure()
        moved = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        before, rho = [p.detach().clone() for p in moved], self.param_groups[0]["rho"]
        with torch.no_grad():
            length = torch.stack([p.grad.norm() for p in moved] or [torch.ones(())]).norm()
            for p in moved:
                p.add_(p.grad, alpha=float(rho / (length + 1e-12)))
            with torch.enable_grad():
                closure()
            for p, value in zip(moved, before, strict=True):
                p.copy_(value)
        super().step()
        return loss


class Flat(tapr.Learner):
    """Looks for flat minima of the entropy. Moves normalisation scales; 3 forwards, 2 backwards."""

    def __init__(self, model: nn.Module, *, lr: float = 1e-3, rho: float = 0.05, **common: Any):
        common = {"scope": "norm", **common}
        super().__init__(model, Entropy(), optimizer=partial(SAM, lr=lr, rho=rho), **common)


if __name__ == "__main__":
    adapter = Flat(tapr.models.load("digits-small"), rho=0.1)
    digits = torch.from_numpy(tapr.datasets.load("digits").images[:300])  # handwritten ones
    for images in (digits.permute(0, 3, 1, 2).float() / 255).chunk(3):
        prediction = adapter.predict(images)
        print(f"loss {prediction.loss:.3f}, {prediction.backward} images went back")
    tapr.testing.check_method(Flat)
    print("it keeps every promise of a method")
