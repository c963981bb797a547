"""The report in a real browser: nothing fetched, nothing complained about, nothing missing."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from typer.testing import CliRunner

from tapr.cli import app

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
        assert page.evaluate("document.documentElement.scrollWidth") == width  # no sideways scroll
        page.close()
