"""CMA-ES: minimises a function without gradients; a normal distribution follows the best points."""

import math

import torch
from torch import Tensor, nn

from tapr.adapters.guard import NotFinite


class Evolution(nn.Module):
    """Covariance matrix adaptation (Hansen, arXiv:1604.00772): `ask` for points, `tell` their loss.

    We do not use the package `cma`, because the state has to be in buffers: only then do `reset`,
    `save`, `load`, the rollback and `deepcopy` work, and no file is unpickled. The arithmetic is
    that of `cma` 4.5 with its defaults (active, cumulative step-size adaptation, axes renewed only
    now and then, foreign points clipped); a test compares the two on the same points. The random
    draws differ: ours come from torch's generator, in float64.
    """

    mean: Tensor  # [N]
    spread: Tensor  # a scalar, the step size sigma
    covariance: Tensor  # [N, N]
    axes: Tensor  # [N, N], the eigenvectors of an earlier covariance, as columns
    lengths: Tensor  # [N], the roots of its eigenvalues
    spread_path: Tensor  # [N]
    covariance_path: Tensor  # [N]
    told: Tensor  # the number of calls of `tell`
    renewed: Tensor  # its value when the axes were last renewed

    def __init__(self, dimension: int, population: int = 27, spread: float = 1.0) -> None:
        super().__init__()
        n, self.population = dimension, population
        raw = [math.log((population + 1) / 2) - math.log(i) for i in range(1, population + 1)]
        self.parents = sum(weight > 0 for weight in raw)
        up, down = sum(raw[: self.parents]), -sum(raw[self.parents :])
        effective = up**2 / sum(weight**2 for weight in raw[: self.parents])
        opposed = down**2 / sum(weight**2 for weight in raw[self.parents :])
        self.one = 2 / ((n + 1.3) ** 2 + effective)  # learning rates of the covariance
        self.many = min(
            1 - self.one, 2 * (effective + 1 / effective - 1.75) / ((n + 2) ** 2 + effective)
        )
        most = min(
            1 + self.one / self.many,  # the covariance does not shrink by itself
            (1 - self.one - self.many) / self.many / n,  # it stays positive definite
            1 + 2 * opposed / (effective + 2),
        )
        self.effective = effective
        self.weights = [w / up if w > 0 else w / down * most for w in raw]
        self.path_rate = (4 + effective / n) / (n + 4 + 2 * effective / n)
        self.spread_rate = min(0.5, (effective + 2) / (n + effective + 3))
        steep = max(1, 3 * (1 - 0.5 ** (n / 9))) * ((effective - 1) / (n + 1)) ** 0.5
        self.damping = 1 + 2 * max(0, steep - 1) + self.spread_rate
        self.patience = 1 / (self.one + self.many) / n / 10  # updates between renewals of the axes
        # The mean length of a standard normal draw.
        self.expected = 2**0.5 * math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2))
        variances = (1e-4 / n * torch.arange(n, dtype=torch.float64)).exp()  # no two are equal
        for name, value in {
            "mean": torch.zeros(n, dtype=torch.float64),
            "spread": torch.tensor(spread, dtype=torch.float64),
            "covariance": variances.diag(),
            "axes": torch.eye(n, dtype=torch.float64),
            "lengths": variances.sqrt(),
            "spread_path": torch.zeros(n, dtype=torch.float64),
            "covariance_path": torch.zeros(n, dtype=torch.float64),
            "told": torch.tensor(0),
            "renewed": torch.tensor(0),
        }.items():
            self.register_buffer(name, value)

    @torch.no_grad()
    def ask(self, generator: torch.Generator) -> Tensor:
        """New points to try, [population, N]."""
        if self.told > self.renewed and self.told >= self.renewed + self.patience:
            self._renew()
        drawn = torch.randn(
            self.population, len(self.mean), generator=generator, dtype=torch.float64
        )
        return self.mean + self.spread * (drawn.to(self.mean) * self.lengths) @ self.axes.T

    @torch.no_grad()
    def tell(self, points: Tensor, loss: Tensor) -> None:
        """Follow the better points, [M, N], by their loss, [M]; only its order matters.

        The first `population` points are those from `ask`. Foreign points may follow; they are
        moved nearer if they are too far away for the distribution.
        """
        n, sigma = len(self.mean), self.spread
        steps = (points - self.mean) / sigma
        far = self._standard(steps[self.population :]).norm(dim=1, keepdim=True)
        steps[self.population :] /= (far / (n**0.5 + 2 * n / (n + 2))).clamp(min=1)
        steps = steps[loss.nan_to_num(nan=math.inf).argsort(stable=True)]
        more = len(points) - self.population
        weights = self.weights[: self.parents] + [0.0] * more + self.weights[self.parents :]
        weight = steps.new_tensor(weights)
        move = weight[: self.parents] @ steps[: self.parents]

        rate = self.spread_rate
        self.told += 1
        self.spread_path.mul_(1 - rate).add_(
            (rate * (2 - rate) * self.effective) ** 0.5 * self._standard(move)
        )
        settled = self.spread_path.square().sum() / (1 - (1 - rate) ** (2 * self.told.item()))
        going = bool(settled / n < 2 + 4 / (n + 1))  # else the path is too long to be trusted

        rate = self.path_rate
        self.covariance_path.mul_(1 - rate)
        if going:
            self.covariance_path.add_((rate * (2 - rate) * self.effective) ** 0.5 * move)
        kept = self.one * (1 if going else 1 - rate * (2 - rate))
        decay = 1 - kept - self.many * weight.sum()
        limited = n / (self._standard(steps).norm(dim=1) + 1e-9).square()
        weight = self.many * torch.where(weight < 0, weight * limited, weight)
        self.covariance.mul_(decay)
        self.covariance.add_((steps.T * weight) @ steps)
        self.covariance.add_(self.one * self.covariance_path.outer(self.covariance_path))

        self.mean.add_(sigma * move)
        change = (self.spread_path.norm() / self.expected - 1) * self.spread_rate / self.damping
        self.spread.mul_(change.clamp(-1, 1).exp())
        if not all(bool(part.isfinite().all()) for part in self.buffers()):
            raise NotFinite("the search distribution is not finite")

    def _standard(self, steps: Tensor) -> Tensor:
        """The standard normal draws that would have made these steps [..., N], in the same axes."""
        return ((steps @ self.axes) / self.lengths) @ self.axes.T

    def _renew(self) -> None:
        """Compute the axes of the present covariance."""
        self.covariance.copy_((self.covariance + self.covariance.T) / 2)
        values, axes = torch.linalg.eigh(self.covariance)
        if not values[0] > 0:
            raise NotFinite("the search distribution is not positive definite")
        self.axes.copy_(axes)
        self.lengths.copy_(values.sqrt())
        self.renewed.copy_(self.told)
