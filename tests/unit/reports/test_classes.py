"""A thousand classes in a report: rows to be searched, the most changed first, not columns."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest

from tapr.records import RunRecord
from tapr.reports import results
from tapr.reports.classes import SHOWN, class_rows
from tapr.reports.html import Chapter, Gallery, page
from tapr.reports.tables import table

Make = Callable[..., RunRecord]
CLASSES = [f"kind {number}" for number in range(1000)]


def run(make: Make, label: str, wrong: set[int]) -> RunRecord:
    """A run of 400 images, of the classes 0 to 399, right but for some classes."""
    made = make(label, classes=CLASSES)
    batches = []
    for batch in made.batches:
        labels = list(batch.images)
        predicted = [999 if label in wrong else label for label in labels]
        batches.append(dataclasses.replace(batch, labels=labels, predicted=predicted))
    return dataclasses.replace(made, batches=batches)


@pytest.fixture
def found(make_run: Make) -> Any:
    runs = [run(make_run, "source", {3, 4, 5}), run(make_run, "tent", {4, 5, 6})]
    return results.Results(results.gather(runs, []), [])


def test_rows_are_those_with_images_and_the_most_changed_come_first(found: Any) -> None:
    rows = class_rows(table(found.settings[0]))
    assert len(rows) == 400
    assert {row.name for row in rows[:2]} == {"kind 3", "kind 6"}
    assert [row.change for row in rows[:3]] == [1, 1, 0]
    both_wrong = next(row for row in rows if row.name == "kind 4")
    assert (both_wrong.images, list(both_wrong.shares), both_wrong.change) == (1, [0, 0], 0)


def test_the_page_shows_twenty_and_finds_the_rest(found: Any) -> None:
    chapter = Chapter(table(found.settings[0]), [], Gallery())
    text = page([chapter], found, "tapr report runs", "0.1.0")
    rows = re.findall(r'<tr data-name="(kind \d+)"[^>]*?( hidden)?>', text)
    assert len(rows) == 400
    assert sum(not hidden for _, hidden in rows) == SHOWN
    assert 'type="search"' in text
    assert "largest change" in text
    assert text.count('<th scope="col"') < 60  # no column for each class


def test_few_classes_have_no_search(make_run: Make) -> None:
    few = results.Results(results.gather([make_run("source"), make_run("tent")], []), [])
    text = page([Chapter(table(few.settings[0]), [], Gallery())], few, "tapr report", "0.1.0")
    assert 'type="search"' not in text
