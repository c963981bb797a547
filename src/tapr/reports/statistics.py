"""The uncertainty of numbers: intervals over seeds and images, and tests of paired differences."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

LEVEL = 0.95
RESAMPLES = 10_000
GROUPS = 20  # the groups of images that a jackknife leaves out one by one


class Interval(NamedTuple):
    """A 95 % confidence interval: where the true value probably lies."""

    low: float
    high: float


UNKNOWN = Interval(float("nan"), float("nan"))


def over_seeds(values: Sequence[float]) -> Interval:
    """Student's interval of the mean of two or more runs that differ only in their seed.

    >>> low, high = over_seeds([0.5, 0.6])
    >>> round(low, 3), round(high, 3)
    (-0.085, 1.185)
    """
    reach = float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)) * float(stats.sem(values))
    middle = float(np.mean(values))
    return Interval(middle - reach, middle + reach)


def bootstrap(strata: Sequence[NDArray[np.float64]], seed: int = 0) -> Interval:
    """Percentile interval of the mean over the strata's means, images resampled within each.

    Drawing n images with replacement is drawing how often each distinct value occurs, so that
    ten thousand resamples of any number of images are one multinomial draw.

    >>> low, high = bootstrap([np.array([0.0, 1.0] * 200)])
    >>> bool(0.44 < low < 0.46 and 0.54 < high < 0.56)
    True
    """
    random = np.random.default_rng(seed)
    means = np.zeros(RESAMPLES)
    for values in strata:
        distinct, counts = np.unique(values, return_counts=True)
        draws = random.multinomial(len(values), counts / len(values), size=RESAMPLES)
        means += draws @ distinct / len(values)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means / len(strata), [tail, 1 - tail])
    return Interval(float(low), float(high))


def jackknife(value: float, without: Sequence[float]) -> Interval:
    """Student's interval around a value, from the values with one group of images left out each.

    It is for numbers that are no mean over images, such as a calibration error. The groups are
    equally large.

    >>> low, high = jackknife(2.5, [2.0, 2.5, 3.0])
    >>> round(low, 2), round(high, 2)
    (0.02, 4.98)
    """
    count = len(without)
    spread = float(
        np.sqrt((count - 1) / count * np.sum((np.array(without) - np.mean(without)) ** 2))
    )
    reach = float(stats.t.ppf((1 + LEVEL) / 2, count - 1)) * spread
    return Interval(value - reach, value + reach)


def mcnemar(fixed: int, broken: int) -> float:
    """The exact two-sided p-value that images are fixed as often as they are broken.

    >>> mcnemar(3, 3), mcnemar(10, 0)
    (1.0, 0.001953125)
    """
    if fixed + broken == 0:
        return 1.0
    return float(stats.binomtest(fixed, fixed + broken, 0.5).pvalue)
