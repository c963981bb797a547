"""The paper's rows and what differs from its setting."""

from collections.abc import Callable

import pytest

from tapr.records import RunRecord
from tapr.reports import names, results
from tapr.reports.paper import PAPER, differences, published
from tapr.reports.results import Setting

Make = Callable[..., RunRecord]
SAME = {"images": 10_000, "batch_size": 200, "origin": "cifar10c, published"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("cifar10c", (56.5, 81.4, 80.9, 81.2)),
        ("cifar100c", (53.2, 64.5, 65.4, 65.7)),
        ("visda", (44.1, 60.9, 67.1, 67.2)),
    ],
)
def test_the_main_table(data: str, expected: tuple[float, ...]) -> None:
    methods = ("source", "tent", "pest-randaugment", "pest-augmix")
    found = [100 * PAPER[data].accuracy[method] for method in methods]
    assert found == pytest.approx(expected)


def setting(make_run: Make, **changed: object) -> Setting:
    run = make_run("tent", images=100)  # of few images, said to be of all: only the facts matter
    facts = {**SAME, "model": "models/wrn-28-10.pt", **changed}
    corruptions = facts.pop("corruptions", list(names.STANDARD))
    assert isinstance(corruptions, list)
    runs = [
        RunRecord({**run.cell, **facts, "domains": [f"{name}-5"]}, {}, [batch], None)
        for name in corruptions
        for batch in [
            run.batches[0].__class__(**{**run.batches[0].__dict__, "domain": f"{name}-5"})
        ]
    ]
    (found,) = results.gather(runs, [])
    return found


def test_the_same_setting(make_run: Make) -> None:
    found = setting(make_run)
    row = published(found)
    assert row
    assert differences(found, row) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": "cifar10-small"}, "model is WRN-28-10, here it is cifar10-small"),
        ({"images": 2000}, "it predicts 10,000 images of each, here 2,000"),
        ({"batch_size": 64}, "its batches hold 200 images, here 64"),
        ({"corruptions": ["fog", "snow"]}, "over 15 corruptions, 13 of which are not here"),
        ({"origin": "cifar10, generated with seed 0"}, "here the corruptions are our own"),
    ],
)
def test_what_differs_is_said(make_run: Make, changed: dict[str, object], said: str) -> None:
    found = setting(make_run, **changed)
    row = published(found)
    assert row
    (only,) = differences(found, row)
    assert said in only


def test_data_the_paper_does_not_have(make_run: Make) -> None:
    assert published(setting(make_run, data="digits")) is None
