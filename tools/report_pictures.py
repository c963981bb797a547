"""Draw docs/images/demo-report.png and report.png from two report pages.

    tapr demo
    tapr bench digits --out runs/digits && tapr report runs/digits -o runs/digits.html
    python tools/report_pictures.py DEMO_PAGE runs/digits.html

Needs playwright and Chromium.
"""

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
GAP, GREY = 20, (222, 226, 230)


def top(browser: Browser, page: Path, width: int, height: int) -> Image.Image:
    """The top of a page in a window of this size."""
    shown = browser.new_page(viewport={"width": width, "height": height})
    shown.goto(page.resolve().as_uri())
    picture = Image.open(io.BytesIO(shown.screenshot())).convert("RGB")
    shown.close()
    return picture


def main() -> None:
    """Look at both pages, and write what is seen."""
    demo, digits = map(Path, sys.argv[1:])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        tall = top(browser, demo, 1000, 1640)
        wide, phone = top(browser, digits, 920, 860), top(browser, digits, 390, 860)
        browser.close()
    both = Image.new("RGB", (wide.width + GAP + phone.width, wide.height), GREY)
    both.paste(wide, (0, 0))
    both.paste(phone, (wide.width + GAP, 0))
    for name, picture in (("demo-report", tall), ("report", both)):
        picture.quantize(128).save(IMAGES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
