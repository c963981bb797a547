"""CMA-ES in buffers against the package `cma`, told the same points."""

from typing import Any

import cma
import numpy as np
import pytest
import torch
from torch import Tensor

from tapr.adapters import Evolution, NotFinite


def loss_of(points: Tensor) -> Tensor:
    """A bowl, thirty times as steep in one direction as in another, and tilted."""
    size = points.shape[1]
    away = points - torch.linspace(-1, 2, size, dtype=points.dtype)
    turned = away + 0.3 * away.roll(1, 1)
    return (turned.square() * torch.linspace(1, 30, size, dtype=points.dtype)).sum(1)


@pytest.mark.parametrize(("size", "population"), [(5, 6), (18, 27), (60, 14)])
def test_every_update_is_that_of_the_package(size: int, population: int) -> None:
    options = {"popsize": population, "seed": 3, "verbose": -9, "maxiter": -1}
    package: Any = cma.CMAEvolutionStrategy(size * [0], 1, options)
    ours, best = Evolution(size, population), torch.full((size,), 5.0, dtype=torch.float64)
    generator, renewals = torch.Generator().manual_seed(0), set()
    for _ in range(60):
        points = torch.from_numpy(np.array(package.ask()))
        points = torch.cat([points, best[None]])  # a stranger, too far off at first
        assert ours.ask(generator).shape == (population, size)
        renewals.add(int(ours.renewed))
        loss = loss_of(points)
        package.tell(list(points.clone().numpy()), loss.tolist())
        ours.tell(points, loss)
        best = points[int(loss.argmin())].clone()
        for mine, theirs in (
            (ours.mean, package.mean),
            (ours.spread, package.sigma),
            (ours.covariance, package.sm.C),
            (ours.covariance_path, package.pc),
            (ours.spread_path, package.adapt_sigma.ps),
            (ours.lengths, package.sm.D),
        ):
            torch.testing.assert_close(mine, torch.as_tensor(theirs), rtol=1e-9, atol=1e-11)
        assert int(ours.renewed) == package.sm.last_update
    assert len(renewals) > 10
    assert loss.min() < loss_of(torch.zeros(1, size, dtype=torch.float64)) / 2


def test_draws_have_the_covariance() -> None:
    search = Evolution(4, 20_000)
    search.covariance.copy_(torch.diag(torch.tensor([1.0, 4, 9, 16])).double() + 0.5)
    search.told += 1
    search.spread.fill_(2)
    search.mean.fill_(3)
    points = search.ask(torch.Generator().manual_seed(0))
    torch.testing.assert_close(points.mean(0), search.mean, rtol=0, atol=0.2)
    torch.testing.assert_close(points.T.cov() / 4, search.covariance, rtol=0.05, atol=0.2)


def test_only_the_order_of_the_losses_counts_and_no_number_is_the_worst() -> None:
    generator = torch.Generator().manual_seed(0)
    points = Evolution(5, 6).ask(generator)
    states = []
    for loss in ([1.0, 2, 3, 4, 5, 6], [1e-9, 2e-9, 3, 4, 5e9, float("nan")]):
        search = Evolution(5, 6)
        search.tell(points.clone(), torch.tensor(loss))
        states.append(search.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_distribution_that_is_not_finite_is_not_followed() -> None:
    search, generator = Evolution(5, 6), torch.Generator().manual_seed(0)
    with pytest.raises(NotFinite, match="not finite"):
        search.tell(search.ask(generator) * float("inf"), torch.arange(6.0))
    search = Evolution(5, 6)
    search.covariance.neg_()
    search.told += 1
    with pytest.raises(NotFinite, match="not positive definite"):
        search.ask(generator)
