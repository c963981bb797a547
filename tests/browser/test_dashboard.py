"""The dashboard in a real browser, with real traffic: live, in the dark, on a phone."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest

from tapr.client import Client
from tapr.datasets.preprocessing import Preprocessing
from tapr.service.server import Service, running
from tapr.service.settings import Settings
from tapr.testing import small_model

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
TOKEN = "watch-token-0123456789"
CAMERA = "camera-token-0123456789"

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")


@pytest.fixture
def browser() -> Iterator["Browser"]:
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=BROWSER, args=QUIET)
        yield opened
        opened.close()


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"eye watch {TOKEN}\ncamera predict {CAMERA}\n")
    settings = Settings(tmp_path / "state", tokens=tokens, max_wait=0.0)
    service = Service(small_model(), Preprocessing((3, 10, 9)), settings, title="small")
    with running(service) as served:
        yield served


def send(url: str, stream: str, seed: int) -> None:
    noise = np.random.default_rng(seed).random((8, 10, 9, 3))
    images = (noise.cumsum(2) / 9 * 255).astype(np.uint8)  # mere noise is harm
    with Client(url, CAMERA) as client:
        client.predict(stream, images)


def opened(browser: "Browser", url: str, width: int, dark: bool) -> tuple["Page", list[str]]:
    scheme: Literal["dark", "light"] = "dark" if dark else "light"
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda message: trouble.append(message.text))
    own = (url.removesuffix("/docs"), "data:")
    page.on("request", lambda request: None if request.url.startswith(own) else
            trouble.append(f"fetched {request.url}"))  # fmt: skip
    page.goto(url, timeout=60_000)
    return page, trouble


def test_the_dashboard_is_live(browser: "Browser", url: str) -> None:
    for seed in range(3):
        send(url, "camera-1", seed)
    send(url, "camera-2", 9)
    for width, dark in ((1280, False), (390, True)):
        page, trouble = opened(browser, url, width, dark)
        page.locator("#ask").wait_for(state="visible", timeout=30_000)
        page.fill("#token", TOKEN)
        page.click("#ask button")
        page.locator("#streams tr").nth(1).wait_for(timeout=30_000)
        assert page.locator("#streams tr").count() == 2
        page.click("button[data-stream='camera-1']")
        page.locator("#h-one", has_text="Stream camera-1").wait_for(timeout=30_000)
        assert page.locator("#served").inner_text() == "small with steady"
        row = page.locator("#streams tr", has_text="camera-1")
        before = int(row.locator("td").nth(2).inner_text())
        assert page.locator("#classes .bar").count() >= 1
        assert page.locator("#shift .bar").count() == 1
        assert page.locator("#curve polyline").count() == 2
        assert page.locator("#pictures img").count() >= 1
        size = "Array.from(document.images).every(i => i.complete && i.naturalWidth > 0)"
        assert page.evaluate(size)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        send(url, "camera-1", 20)
        row.locator("td", has_text=str(before + 8)).wait_for(timeout=30_000)  # without a reload
        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert back == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")
        # Without a token the first call is refused, which browsers note in the console.
        assert [text for text in trouble if "401" not in text] == []
        page.close()


def test_the_page_of_the_api(browser: "Browser", url: str) -> None:
    page, trouble = opened(browser, f"{url}/docs", 390, dark=True)
    page.locator("summary", has_text="/v1/streams/{stream}/predict").wait_for(timeout=30_000)
    assert page.locator("summary").count() > 10
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert trouble == []
    page.close()
