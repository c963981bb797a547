"""Intervals and tests against scipy and brute force."""

import numpy as np
import pytest
from scipy import stats

from tapr.reports.statistics import bootstrap, mcnemar, over_seeds


def test_over_seeds_is_scipys_interval() -> None:
    values = [0.71, 0.73, 0.72, 0.75]
    expected = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert over_seeds(values) == pytest.approx(expected)


def test_bootstrap_is_the_drawing_of_images() -> None:
    random = np.random.default_rng(1)
    values = (random.random(500) < 0.7).astype(float)
    plain = values[random.integers(0, 500, (4000, 500))].mean(1)
    assert bootstrap([values]) == pytest.approx(np.quantile(plain, [0.025, 0.975]), abs=0.006)


def test_bootstrap_of_strata_is_of_their_mean() -> None:
    random = np.random.default_rng(2)
    strata = [(random.random(n) < p).astype(float) for n, p in ((300, 0.2), (800, 0.9))]
    draws = [s[random.integers(0, len(s), (4000, len(s)))].mean(1) for s in strata]
    expected = np.quantile((draws[0] + draws[1]) / 2, [0.025, 0.975])
    assert bootstrap(strata) == pytest.approx(expected, abs=0.006)


def test_bootstrap_is_repeatable() -> None:
    values = [np.random.default_rng(0).random(50)]
    assert bootstrap(values) == bootstrap(values)
    assert bootstrap(values) != bootstrap(values, seed=1)


def test_bootstrap_covers() -> None:
    """Of many samples, about 95 % have an interval that holds the truth."""
    random = np.random.default_rng(3)
    samples = (random.random((200, 400)) < 0.6).astype(float)
    held = [low <= 0.6 <= high for low, high in (bootstrap([sample]) for sample in samples)]
    assert 0.90 <= np.mean(held) <= 0.99


@pytest.mark.parametrize(("fixed", "broken"), [(0, 0), (5, 5), (12, 3), (3, 12), (400, 300)])
def test_mcnemar_is_the_binomial_test(fixed: int, broken: int) -> None:
    low = stats.binom.cdf(min(fixed, broken), fixed + broken, 0.5)
    assert mcnemar(fixed, broken) == pytest.approx(min(1.0, 2 * low))
