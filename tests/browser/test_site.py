"""The documentation in a real browser: README's links, phones, and navigation on a laptop."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tools import check_links, widen_navigation

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
LINK = re.compile(r"\]\(([^)\s:]+)\)")

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("zensical", reason="zensical is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    for name in ("docs", "src", "tools"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert widen_navigation.widen(folder / "site") >= 1
    return folder / "site"


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=BROWSER, args=QUIET)
        yield opened
        opened.close()


def test_no_link_is_dead(site: Path) -> None:
    assert check_links.problems(site) == []


def test_the_links_of_the_readme_lead_to_their_places(browser: "Browser", site: Path) -> None:
    links = LINK.findall((ROOT / "README.md").read_text("utf-8"))
    pages = [link.removeprefix("docs/") for link in links if re.match(r"docs/[\w/-]+\.md", link)]
    assert len(pages) > 15
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    for link in dict.fromkeys(pages):
        path, _, place = link.partition("#")
        page.goto((site / path).with_suffix(".html").as_uri(), timeout=120_000)
        assert page.locator("h1").count() == 1, link
        assert not place or page.locator(f"[id='{place}']").count() == 1, link
        hidden = page.evaluate("[...document.images].filter(i => !i.naturalWidth).map(i => i.src)")
        assert hidden == [], link
    assert page.locator(".md-sidebar--primary .md-nav__link").first.is_visible()
    page.close()


def test_no_page_is_wider_than_a_phone(browser: "Browser", site: Path) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    wide = []
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri(), timeout=120_000)
        if page.evaluate("document.documentElement.scrollWidth") > 390:
            wide.append(path.name)
    assert wide == []
    page.close()
