"""The page as text; tests/browser opens it."""

import itertools
import re
from collections.abc import Callable
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from tapr.records import RunRecord
from tapr.reports import examples, plots, results
from tapr.reports.html import Chapter, Gallery, page
from tapr.reports.results import Results
from tapr.reports.tables import table

Make = Callable[..., RunRecord]


def made(found: Results, gallery: Gallery | None = None, figures: bool = False) -> str:
    tables = [table(setting) for setting in found.settings]
    drawn = [plots.drawings(t) if figures else [] for t in tables]
    chapters = [Chapter(*part, gallery or Gallery()) for part in zip(tables, drawn, strict=True)]
    return page(chapters, found, "tapr report runs", "0.1.0")


@pytest.fixture
def text(bench: Path) -> str:
    return made(results.read([bench]), figures=True)


class Page(HTMLParser):
    """Counts elements and checks that they are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.addresses += [value or "" for key, value in attrs if key in ("src", "href")]
        if tag not in ("meta", "link", "img", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing(text: str) -> None:
    found = Page(text)
    assert found.open == []
    assert found.seen.count("table") == 3
    assert found.seen.count("svg") == 4
    assert "script" not in found.seen
    assert all(address.startswith(("#", "data:")) for address in found.addresses)
    assert not re.search(r"url\((?!#)|@import", text)
    assert 'name="viewport"' in text
    for title in ("unadapted", "norm", "Tent", "PEST RandAugment", "PEST AugMix"):
        assert text.count(title) > 3
    assert "tapr bench spec.toml" in text
    assert "[methods.&#34;pest-augmix&#34;]" in text
    assert "predict with different batch-norm statistics" in text


def test_settings_are_shown_apart(make_run: Make) -> None:
    runs = [make_run("tent"), make_run("tent", batch_size=50)]
    text = made(Results(results.gather(runs, [])))
    assert text.count('<section class="setting"') == 2
    assert "2 different settings" in text


def test_what_comes_from_records_is_escaped(make_run: Make) -> None:
    run = make_run("<script>alert(1)</script>", model="<b>m</b>")
    text = made(Results(results.gather([run], []), ["a <i>bad</i> line"]))
    assert "<script" not in text
    assert "<b>m</b>" not in text
    assert "a &lt;i&gt;bad&lt;/i&gt; line" in text
    assert Page(text).open == []


def test_examples(bench: Path) -> None:
    found = results.read([bench])
    chosen = examples.choose(table(found.settings[0]))
    assert chosen
    assert chosen.after.system.label == "pest-augmix"
    both = [*chosen.fixed, *chosen.broken]
    assert len(chosen.fixed) == 8
    assert len({example.domain for example in chosen.fixed}) == 4
    assert all(e.truth == e.after != e.before for e in chosen.fixed)
    assert all(e.truth == e.before != e.after for e in chosen.broken)
    pixels = {(e.domain, e.image): np.zeros((32, 32, 3), np.uint8) for e in both}
    text = made(found, Gallery(chosen, pixels))
    assert text.count("data:image/png;base64,") == len(both)
    assert f"{chosen.fixed[0].before} → {chosen.fixed[0].after}" in text


def test_why_there_are_no_examples(bench: Path) -> None:
    text = made(results.read([bench]), Gallery(why_not="cifar10 is not on this machine"))
    assert "cifar10 is not on this machine" in text


def test_no_examples_without_a_source_or_of_other_images(make_run: Make) -> None:
    (setting,) = results.gather([make_run("tent"), make_run("norm")], [])
    assert examples.choose(table(setting)) is None
    (setting,) = results.gather([make_run("tent", seed=1), make_run("source")], [])
    assert examples.choose(table(setting)) is None


def test_refused_steps_stand_out(make_run: Make) -> None:
    run = make_run("tent")
    run.batches[0] = run.batches[0].__class__(**{**run.batches[0].__dict__, "refused": 3})
    assert '<td class="number alarm">3</td>' in made(Results(results.gather([run], [])))


def test_records_with_little_in_them(make_run: Make) -> None:
    run = make_run("tent")
    bare = {key: run.cell[key] for key in ("method", "domains", "seed", "options")}
    assert "Tent predicts" in made(
        Results(results.gather([RunRecord(bare, {}, run.batches, {})], []))
    )


def _luminance(colour: str) -> float:
    """The relative luminance of the accessibility guidelines (WCAG 2)."""
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.03928 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return sum(weight * each for weight, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_every_text_stands_out_from_its_ground() -> None:
    css = (files("tapr.reports") / "templates" / "report.css").read_text("utf-8")
    assert "color: var(--faint)" not in css, "for lines, not for text"
    light, dark = (dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in css.split("@media")[:2])
    for theme in (light, dark):
        for text in ("ink", "soft", "alarm"):
            for ground in ("paper", "card"):
                pair = sorted((_luminance(theme[text]), _luminance(theme[ground])))
                assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (text, ground)


def test_headings_captions_and_ids_are_in_order(bench: Path) -> None:
    text = made(results.read([bench]), figures=True)
    assert text.count("<h1>") == 1
    assert text.count("<table") == text.count("<caption")
    levels = [int(level) for level in re.findall(r"<h([1-6])", text)]
    assert all(later <= before + 1 for before, later in itertools.pairwise(levels))
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
