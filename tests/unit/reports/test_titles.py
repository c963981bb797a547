"""What a method is called and how it is drawn: by its method and options, not by its label."""

from collections.abc import Callable
from typing import Any

import pytest

from tapr.records import RunRecord
from tapr.reports import examples, results, titles, words
from tapr.reports.tables import Table, table

Make = Callable[..., RunRecord]
PEST = {"method": "pest", "statistics": "running", "feed": "views", "views": 2}
PEST |= {"augmentation": "augmix", "lr": 1e-4}


def of(*runs: RunRecord) -> Table:
    (setting,) = results.gather(runs, [])
    return table(setting)


def shown(*runs: RunRecord) -> list[str]:
    return [row.look.title for row in of(*runs).rows]


@pytest.mark.parametrize(
    ("label", "recipe", "title"),
    [
        ("mine", PEST, "PEST AugMix"),
        ("mine", {**PEST, "augmentation": "randaugment"}, "PEST RandAugment"),
        ("pest:lr=0", {**PEST, "lr": 0}, "PEST gradient off"),
        ("pest-augmix", {**PEST, "lr": 0.5}, "pest-augmix"),
        ("pest:lr=0.5", {**PEST, "lr": 0.5}, "pest:lr=0.5"),
        ("unadapted", {"method": "source"}, "unadapted"),
        ("bare", {"method": "source"}, "unadapted"),
        ("mine:ETA", {"method": "mine:ETA"}, "mine:ETA"),
    ],
)
def test_a_title_follows_from_method_and_options(
    make_run: Make, label: str, recipe: dict[str, Any], title: str
) -> None:
    assert shown(make_run(label, recipe=recipe)) == [title]


def test_an_own_method_has_the_title_it_gives_itself_or_the_label_given_to_it(
    make_run: Make,
) -> None:
    recipe = {"method": "mine:ETA"}
    assert shown(make_run("mine:ETA", recipe=recipe, title="ETA")) == ["ETA"]
    assert shown(make_run("strict", recipe=recipe, title="ETA")) == ["strict"]


def test_options_stand_behind_the_title_where_one_label_has_several(make_run: Make) -> None:
    runs = [make_run("pest-augmix", recipe={**PEST, "lr": lr}) for lr in (1e-4, 0.5)]
    assert shown(*runs) == ["PEST AugMix (lr=0.0001)", "PEST AugMix (lr=0.5)"]
    assert [row.paper for row in of(*runs).rows] == [None, None]


def test_two_of_one_title_are_told_apart_by_their_labels_and_colours(make_run: Make) -> None:
    rows = of(make_run("a", recipe=PEST), make_run("b", recipe=PEST)).rows
    assert [row.look.title for row in rows] == ["PEST AugMix (a)", "PEST AugMix (b)"]
    assert len({row.look.colour for row in rows}) == 2


def test_the_known_come_first_in_their_order(make_run: Make) -> None:
    labels = ["x", "tent", "pest-control", "bare"]
    recipes: dict[str, dict[str, Any]] = {"bare": {"recipe": {"method": "source"}}}
    runs = [make_run(label, **recipes.get(label, {})) for label in labels]
    assert shown(*runs) == ["unadapted", "Tent", "PEST gradient off", "x"]


def test_a_label_of_its_own_does_not_lose_the_baseline(make_run: Make) -> None:
    bare = make_run("bare", recipe={"method": "source"})
    found = of(bare, make_run("tent"))
    text = " ".join(words.headline(found)).replace("\u00a0", " ")
    assert "Tent predicts" in text
    assert ", the unadapted model " in text
    assert found.baseline is found.rows[0]
    assert found.rows[0].paper == 0.565
    chosen = examples.choose(found)
    assert chosen
    assert (chosen.before.system.label, chosen.after.system.label) == ("bare", "tent")
    levels = of(make_run("source", recipe={"method": "tent", "statistics": "batch", "lr": 1e-3}))
    assert levels.baseline is None  # a label alone makes no baseline
    assert [row.look.title for row in levels.rows] == ["Tent"]


def test_every_known_look_is_distinct() -> None:
    looks = [known.look for known in titles.KNOWN]
    for part in ("title", "colour", "marker"):
        assert len({getattr(look, part) for look in looks}) == len(looks)
