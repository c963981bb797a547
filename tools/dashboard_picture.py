"""Draw docs/images/dashboard.png: the dashboard of `tapr serve`, with real traffic on 3 streams.

    python tools/dashboard_picture.py

Needs CIFAR-10 in the cache, playwright and Chromium. The shipped `cifar10-small` gets 600 test
images of each stream: clean, under gaussian noise and under fog (severity 5), one request at a
time of 20 images; then 100 black ones on the last stream.
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from tapr import datasets, models
from tapr.client import Client
from tapr.datasets.preprocessing import Preprocessing
from tapr.service.server import Service, running
from tapr.service.settings import Settings
from tapr.streams import clean, corrupted

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "dashboard.png"


def main() -> None:
    """Serve, send, look."""
    data = datasets.load("cifar10")
    noise, fog = corrupted(data, ("gaussian_noise", "fog"), (5,), 600)
    streams = {"gate-north": clean(data, 600), "gate-east": noise, "harbour": fog}
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(Path(folder))
        service = Service(
            models.load("cifar10-small"),
            Preprocessing((3, 32, 32)),
            settings,
            names=data.classes,
            title="cifar10-small",
        )
        with running(service) as url, sync_playwright() as playwright, Client(url) as client:
            for start in range(0, 600, 20):
                for name, domain in streams.items():
                    client.predict(name, domain.read(domain.numbers[start : start + 20]))
            for _ in range(5):
                client.predict("harbour", np.zeros((20, 32, 32, 3), np.uint8))
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = browser.new_page(viewport={"width": 1100, "height": 900})
            page.goto(url)
            page.locator("#streams tr").nth(2).wait_for(timeout=30_000)
            page.get_by_text("harbour").first.click()
            page.wait_for_timeout(3000)
            page.screenshot(path=PICTURE)
            browser.close()


if __name__ == "__main__":
    main()
