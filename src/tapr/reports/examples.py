"""Examples of images that adaptation fixed or broke."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapr.records import RunRecord, Shift
from tapr.reports.results import Setting
from tapr.reports.tables import Row, Table


class Example(NamedTuple):
    """An image that exactly one of two systems predicts right."""

    domain: Shift
    image: int  # its number in the data set
    label: int
    truth: str
    before: str
    after: str


class Examples(NamedTuple):
    """Images that one system predicts wrong and another right."""

    before: Row
    after: Row
    run: RunRecord  # one of the runs they come from: it says where the pixels are
    fixed: list[Example]
    broken: list[Example]


def choose(table: Table, count: int = 8) -> Examples | None:
    """Some images that the best method fixed and some that it broke, spread over the domains."""
    ranked = [row for row in table.rows if row.mean and row.system.adapts]
    before = table.baseline
    if before is None or not ranked or table.setting.facts.get("protocol") == "mixed":
        return None
    after = max(ranked, key=lambda row: row.mean.value if row.mean else 0.0)
    seeds = set(before.system.seeds) & set(after.system.seeds)
    if not seeds:
        return None
    seed = min(seeds)
    run = next(run for run in after.system.runs if run.seed == seed)
    fixed, broken = [], []
    for domain in table.domains:
        helped, harmed = _changed(before, after, domain, seed, table.setting)
        fixed.append(helped)
        broken.append(harmed)
    return Examples(before, after, run, _spread(fixed, count), _spread(broken, count))


def _changed(
    before: Row, after: Row, domain: Shift, seed: int, setting: Setting
) -> tuple[list[Example], list[Example]]:
    pair = [row.system.outcomes.get((domain, seed)) for row in (before, after)]
    if pair[0] is None or pair[1] is None or pair[0].labels is None:
        return [], []
    one, two = pair[0], pair[1]
    if not np.array_equal(one.images, two.images):
        return [], []
    classes = setting.runs[0].cell.get("classes") or ()

    def name(number: int) -> str:
        return str(classes[number]) if number < len(classes) else str(number)

    def made(where: NDArray[np.bool_]) -> list[Example]:
        places = np.random.default_rng(0).permutation(np.flatnonzero(where))
        return [
            Example(
                domain,
                int(one.images[p]),
                int(truth[p]),
                *(name(int(values[p])) for values in (truth, one.predicted, two.predicted)),
            )
            for p in places
        ]

    truth = pair[0].labels
    right = [one.predicted == truth, two.predicted == truth]
    return made(~right[0] & right[1]), made(right[0] & ~right[1])


def _spread(groups: list[list[Example]], count: int) -> list[Example]:
    """The first of each domain, then the second of each, until there are enough."""
    longest = max(map(len, groups), default=0)
    turns = [group[turn] for turn in range(longest) for group in groups if turn < len(group)]
    return turns[:count]
