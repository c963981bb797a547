"""The published numbers: plausible, complete, sourced, and their means are what was printed."""

import pytest

from tapr.corruptions import STANDARD
from tapr.reports import published


def test_every_number_is_an_error_in_percent_with_a_source() -> None:
    for table in published.TABLES:
        assert table.source
        assert all(0 < error < 100 for error in table.errors.values())
        assert table.protocol in ("each", "continual", "mixed")


@pytest.mark.parametrize(
    ("data", "method", "mean"),
    [
        ("cifar10c", "source", 43.5),
        ("cifar10c", "norm", 20.4),
        ("cifar10c", "tent", 20.4),  # quoted; the benchmark's own run has 20.0
        ("cifar10c", "cotta", 16.5),
        ("cifar10c", "rotta", 19.3),
        ("cifar10c", "rmt", 17.0),
        ("cifar10c", "roid", 16.2),
        ("cifar100c", "source", 46.4),
        ("cifar100c", "norm", 35.4),
        ("cifar100c", "cotta", 32.5),
        ("cifar100c", "rotta", 34.8),
        ("cifar100c", "rmt", 30.2),
        ("cifar100c", "roid", 29.3),
        ("imagenet-c", "source", 82.0),
        ("imagenet-c", "cotta", 63.1),
        ("imagenet-c", "rotta", 67.3),
        ("imagenet-c", "rmt", 59.9),
        ("imagenet-c", "roid", 54.5),
    ],
)
def test_the_corruptions_of_a_row_have_the_mean_that_was_printed(
    data: str, method: str, mean: float
) -> None:
    row = published.BY_CORRUPTION[data, method]
    assert tuple(row) == tuple(STANDARD)
    assert sum(row.values()) / len(row) == pytest.approx(mean, abs=0.11)


def test_errors_become_accuracies() -> None:
    table = published.TABLES[0]
    assert table.accuracy("eata") == 0.821
    assert table.accuracy("deyo") is None
