"""The report in a real browser: nothing fetched, nothing complained about, nothing missing."""

import csv
import shutil
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from typer.testing import CliRunner

from tapr.cli import app
from tapr.records import RunRecord

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
# Without these Chromium looks for updates, and does not start as root.
QUIET = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

SCREENS: tuple[tuple[int, Literal["light", "dark"]], ...] = ((1280, "light"), (390, "dark"))

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")


METHODS = ("source", "norm", "tent", "pest-augmix")
# Rules of accessibility, kept here (MPL-2.0, axe-core/LICENSE): the test needs no npm and no net.
AXE = Path(__file__).parent / "axe-core" / "axe.min.js"


@pytest.fixture
def browser() -> Iterator["Browser"]:
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=BROWSER, args=QUIET)
        yield opened
        opened.close()


def _watch(page: "Page") -> tuple[list[str], list[str]]:
    trouble: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    return trouble, requests


def _violations(page: "Page") -> list[str]:
    """What axe-core finds wrong with the page as it is now: its default rules, WCAG 2 A and AA."""
    page.add_script_tag(path=AXE)
    found = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    assert len(found["passes"]) > 10, "the rules were looked at"
    return [
        f"{violation['id']}: {node['html']}: {node['failureSummary']}"
        for violation in found["violations"]
        for node in violation["nodes"]
    ]


def test_the_page_opens_everywhere(
    browser: "Browser", bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPR_CACHE", str(tmp_path / "empty"))
    path = tmp_path / "report.html"
    CliRunner().invoke(app, ["report", str(bench), "-o", str(path)], catch_exceptions=False)
    for width, scheme in SCREENS:
        page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
        trouble, requests = _watch(page)
        page.goto(path.as_uri(), timeout=120_000)  # a busy machine takes its time
        assert trouble == []
        assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]
        assert page.locator("table.main tbody tr").count() == 6
        assert page.locator("table").count() == 3
        figures = page.locator("figure svg")
        assert figures.count() == 4
        for number in range(4):
            box = figures.nth(number).bounding_box()
            assert box
            assert box["width"] > 300
            assert box["height"] > 150
        assert page.locator(".headline").inner_text().startswith("PEST with AugMix predicts")
        interval = page.locator("table.main tbody td:last-child small").first
        assert not interval.is_visible()
        page.get_by_label("show intervals").first.focus()
        page.keyboard.press("Space")
        assert interval.is_visible()
        assert " – " in interval.inner_text()
        assert page.evaluate("document.documentElement.scrollWidth") == width  # no sideways scroll
        assert _violations(page) == []
        page.close()


@pytest.fixture
def page_file(
    make_run: Callable[..., RunRecord], save_run: Callable[[RunRecord, Path], Path], tmp_path: Path
) -> Path:
    for protocol in ("each", "continual", "mixed"):
        for method in METHODS:
            save_run(make_run(method, images=400, protocol=protocol), tmp_path / "runs" / protocol)
    path = tmp_path / "board.html"
    command = ["report", str(tmp_path / "runs"), "--no-examples", "-o", str(path)]
    CliRunner().invoke(app, command, catch_exceptions=False)
    return path


def _column(page: "Page", number: int) -> list[str]:
    return page.locator(f"#x-table tbody tr > :nth-child({number})").all_inner_texts()


def test_an_example_is_enlarged(browser: "Browser", tmp_path: Path) -> None:
    """By mouse and by keyboard, on a page with nothing but two examples."""
    templates = files("tapr.reports") / "templates"
    script = (templates / "examples.js").read_text("utf-8")
    pixel = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA="
    image = f'<img src="{pixel}" alt="cat, fog" width="40" height="40">'
    item = f"<li>{image}<b>cat</b><span>dog → cat</span></li>"
    dialog = '<dialog id="picture"><img alt=""><p></p><button>Close</button></dialog>'
    path = tmp_path / "examples.html"
    path.write_text(f'<ul class="pictures">{item * 2}</ul>{dialog}<script>{script}</script>')
    page = browser.new_page()
    trouble, _ = _watch(page)
    page.goto(path.as_uri())
    page.locator(".pictures img").first.click()
    assert page.locator("dialog").inner_text().startswith("cat · dog → cat")
    page.keyboard.press("Escape")
    assert not page.locator("dialog").is_visible()
    page.locator(".pictures img").nth(1).focus()
    page.keyboard.press("Enter")
    assert page.locator("dialog").is_visible()
    assert trouble == []


def test_a_leaderboard_sorts_filters_compares_and_fetches_nothing(
    browser: "Browser", page_file: Path
) -> None:
    for width, scheme in SCREENS:
        page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
        trouble, requests = _watch(page)
        page.goto(page_file.as_uri(), timeout=120_000)
        page.wait_for_selector("#x-table tbody tr", timeout=120_000)
        assert _column(page, 1) == ["PEST AugMix", "Tent", "norm", "unadapted"]
        page.locator("#x-table thead button").nth(2).focus()
        page.keyboard.press("Enter")
        falling = [float(text) for text in _column(page, 3)]
        assert falling == sorted(falling, reverse=True)
        page.keyboard.press("Enter")
        assert [float(text) for text in _column(page, 3)] == sorted(falling)
        page.fill("#x-filter", "tent")
        assert _column(page, 1) == ["Tent"]
        page.fill("#x-filter", "")
        page.locator("details summary").first.click()
        page.locator("#x-methods input").first.uncheck()
        assert len(_column(page, 1)) == 3
        page.select_option("#x-a", "source")
        page.select_option("#x-b", "tent")
        assert "Tent against unadapted" in page.locator("#x-difference").inner_text()
        page.select_option("#x-metric", label="Error, %")
        page.select_option("#x-view", "1")
        assert page.locator("#x-along path.curve").count() == 3
        page.locator("#x-table td").first.click()
        assert "95 % interval" in page.locator("#x-said").inner_text()
        with page.expect_download() as download:
            page.click("#x-csv")
        rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
        assert {row["metric"] for row in rows} == {"error"}
        assert trouble == []
        assert {url.split(":")[0] for url in requests} <= {"file", "data", "blob"}
        assert page.evaluate("document.documentElement.scrollWidth") == width
        page.locator("#explore").get_by_label("show intervals").check()
        assert _violations(page) == []
        page.close()


def test_without_javascript_the_tables_remain(browser: "Browser", page_file: Path) -> None:
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(page_file.as_uri(), timeout=120_000)
    assert page.locator("table.ranks tbody tr").count() == len(METHODS)
    assert not page.locator("#explore").is_visible()
    page.close()
