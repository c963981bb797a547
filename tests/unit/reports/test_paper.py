"""The paper's rows and what differs from its setting."""

from collections.abc import Callable

import pytest

from tapr import names
from tapr.records import RunRecord
from tapr.reports import results
from tapr.reports.paper import PAPER, differences, published
from tapr.reports.results import Setting

Make = Callable[..., RunRecord]
PUBLISHED = {"dataset": "cifar10c", "made": "published"}
SAME = {"images": 10_000, "batch_size": 200, "origin": PUBLISHED}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("cifar10c", (56.5, 81.4, 80.9, 81.2)),
        ("cifar100c", (53.2, 64.5, 65.4, 65.7)),
        ("visda", (44.1, 60.9, 67.1, 67.2)),
    ],
)
def test_the_main_table(data: str, expected: tuple[float, ...]) -> None:
    methods = [
        ("source", {}),
        ("tent", {}),
        ("pest", {"augmentation": "randaugment"}),
        ("pest", {}),
    ]
    rows = PAPER[data].numbers
    assert [(row.method, row.options) for row in rows] == methods
    assert [100 * row.accuracy for row in rows] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("label", "changed", "expected"),
    [
        ("pest-randaugment", {}, 0.809),
        ("mine", {"augmentation": "randaugment"}, 0.809),
        ("pest-randaugment", {"augmentation": "randaugment", "lr": 0.1}, None),
        ("pest-control", {}, None),
    ],
)
def test_a_number_stands_beside_its_options_whatever_the_label(
    make_run: Make, label: str, changed: dict[str, object], expected: float | None
) -> None:
    pest = make_run("pest-augmix").recipe
    run = make_run(label, recipe={**pest, **changed}) if changed else make_run(label)
    (found,) = results.gather([run], [])
    assert PAPER["cifar10c"].of(found.systems[0]) == expected


def setting(make_run: Make, **changed: object) -> Setting:
    facts = {**SAME, "model": "models/wrn-28-10.pt", **changed}
    corruptions = facts.pop("corruptions", list(names.STANDARD))
    assert isinstance(corruptions, list)
    runs = []
    for name in corruptions:
        run = make_run("tent", [f"{name}-5"], images=100)  # of few images: only the facts matter
        cell = {**run.cell, "setting": {**run.cell["setting"], **facts}}
        runs.append(RunRecord(cell, {}, run.batches[:1], None))
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
        (
            {"origin": {"dataset": "cifar10", "made": "generated"}},
            "here the corruptions are our own",
        ),
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
