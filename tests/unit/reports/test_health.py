"""The strip of health: a bar for each part of a stream, and the same in words."""

from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

from tapr.records import RunRecord
from tapr.reports import health
from tapr.reports.html import Chapter, Gallery, page
from tapr.reports.results import Results, gather
from tapr.reports.tables import table

Make = Callable[..., RunRecord]
WHY = "the source model is the more credible on the last 90 images: they come class by class"


def told(run: RunRecord, verdicts: list[tuple[str, str]]) -> RunRecord:
    """The run with these verdicts and actions in its first batches, and nothing in the others."""
    tables = [
        {"verdict": verdict, "action": action, "reason": WHY if verdict != "ok" else ""}
        for verdict, action in verdicts
    ]
    missing = [None] * (len(run.batches) - len(tables))
    both = zip(run.batches, [*tables, *missing], strict=True)
    return replace(run, batches=[replace(batch, health=one) for batch, one in both])


def test_a_bar_for_each_part_with_the_worst_verdict_and_the_furthest_action(
    make_run: Make,
) -> None:
    run = make_run("tent", ["fog-5"])
    run = told(
        run, [("ok", ""), ("watch", "answered"), ("harm", "unlearnt"), ("harm", "restarted")]
    )
    found = list(health.parts(run))
    assert [(part.verdict, part.action) for part in found[:4]] == [
        ("ok", ""),
        ("watch", "answered"),
        ("harm", "unlearnt"),
        ("harm", "restarted"),
    ]
    assert {part.verdict for part in found[4:]} <= {""}
    assert (found[0].first, found[-1].last) == (1, run.images)
    assert all(one.last + 1 == two.first for one, two in pairwise(found))


def test_a_long_stream_has_no_more_bars_than_fit(make_run: Make) -> None:
    run = make_run("tent", ["fog-5"])
    many = [replace(run.batches[0], number=number) for number in range(1000)]
    told_once = {"verdict": "harm", "action": "", "reason": WHY}
    many[500] = replace(many[500], health=told_once)
    found = list(health.parts(replace(run, batches=many)))
    assert len(found) == health.MOST
    assert [part.verdict for part in found].count("harm") == 1


class Words(HTMLParser):
    """The texts of titles within drawings, and the labels of drawings."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.titles: list[str] = []
        self.labels: list[str] = []
        self.inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside.append(tag)
        self.labels += [v or "" for k, v in attrs if tag == "svg" and k == "aria-label"]

    def handle_data(self, data: str) -> None:
        if self.inside and self.inside[-1] == "title":
            self.titles.append(data)


def test_the_page_says_in_words_what_the_strip_draws(make_run: Make) -> None:
    good = told(make_run("norm", ["fog-5"]), [("ok", "")])
    bad = told(make_run("tent", ["fog-5"]), [("harm", "unlearnt"), ("ok", "")])
    found = Results(gather([good, bad], []))
    (setting,) = found.settings
    text = page([Chapter(table(setting), [], Gallery())], found, "tapr report", "0")
    words = Words(text)
    assert any(
        "1 ok, 1 harm" in label and "they come class by class" in label for label in words.labels
    )
    assert any("harm: the source model is the more credible" in title for title in words.titles)
    assert any(
        title.endswith("the safer answer was given and nothing was learnt")
        for title in words.titles
    )
    assert "1 run was ok throughout" in text
    assert "▾" in text


def test_records_without_health_have_no_strip(make_run: Make) -> None:
    (setting,) = gather([make_run("tent", ["fog-5"])], [])
    assert health.strips(setting) is None
