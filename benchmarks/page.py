"""How large the leaderboard's page is and how soon it opens, with as many cells as asked for.

    python -m benchmarks.page [--cells 50000] [--out FILE]

40 methods with two models on as many streams of 15 corruptions as that takes, in every metric. The
numbers are drawn, not computed from records, which would take an hour and change nothing; the page
around them is the one that `tapr report` makes. Chromium opens it five times; the time is from the
navigation until the controls, the table and the figures stand there.
"""

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from unittest.mock import patch

import numpy as np

from tapr import names
from tapr.records import BatchRecord, RunRecord, Shift
from tapr.reports import explore, html, results
from tapr.reports.leaderboard import leaderboard
from tapr.reports.metrics import Metric
from tapr.reports.results import System
from tapr.reports.statistics import Interval
from tapr.reports.tables import Estimate, table

METHODS, MODELS, IMAGES = 40, 2, 2
RANDOM = np.random.default_rng(0)
WATCH = """
new MutationObserver(() => { window.shown = performance.now(); })
  .observe(document, { childList: true, subtree: true });
"""


def run(method: int, stream: int) -> RunRecord:
    shifts = [Shift(f"{corruption}-5", corruption, 5) for corruption in names.STANDARD]
    cell = {
        "label": f"method-{method}",
        "method": f"method-{method}",
        "title": f"Method {method}",
        "setting": {
            "model": f"model-{stream % MODELS}",
            "data": "made up",
            "protocol": "continual",
            "delta": 1 + stream // MODELS,
            "images": IMAGES,
            "severities": [5],
            "domains": [shift.name for shift in shifts],
        },
        "domains": [vars(shift) for shift in shifts],
    }
    batches = [
        BatchRecord(
            number=number,
            domain=shift.name,
            corruption=shift.corruption,
            severity=5,
            images=[0, 1],
            labels=[0, 1],
            predicted=RANDOM.integers(0, 2, IMAGES).tolist(),
            seconds=float(RANDOM.uniform(0.01, 1)),
        )
        for number, shift in enumerate(shifts)
    ]
    return RunRecord(cell, {}, batches, {"peak_mib": 500.0})


def drawn(
    system: System, domains: Sequence[Shift], metric: Metric, sure: bool = True
) -> Estimate | None:
    """A number as any metric may have, with an interval where it would have one."""
    value, width = RANDOM.uniform(0.3, 0.9), RANDOM.uniform(0.01, 0.05)
    interval = Interval(value - width, value + width)
    return Estimate(value, interval, "images" if sure else "", IMAGES, 1, True)


def made(cells: int) -> str:
    """The page of so many cells, as `tapr report` makes it."""
    streams = -(-cells // (METHODS * len(names.STANDARD)))
    runs = [run(method, stream) for stream in range(streams) for method in range(METHODS)]
    tables = [table(setting) for setting in results.gather(runs, [])]
    with patch.object(explore, "estimate", drawn), patch.object(explore, "_has", return_value=True):
        return html.page([], results.Results([]), "benchmarks.page", "-", leaderboard(tables))


def opened(path: Path) -> list[float]:
    """Milliseconds until the page stands, five times."""
    from playwright.sync_api import sync_playwright

    taken = []
    quiet = ["--no-sandbox", "--disable-gpu", "--no-first-run"]
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=quiet)
        for _ in range(5):
            shown = browser.new_page()
            shown.add_init_script(WATCH)
            shown.goto(path.as_uri(), timeout=120_000)
            shown.wait_for_selector("#x-cost svg", timeout=120_000)
            taken.append(float(shown.evaluate("window.shown")))
            shown.close()
        browser.close()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=50_000)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    path = given.out or Path(tempfile.mkdtemp()) / "page.html"
    path.write_text(made(given.cells), encoding="utf-8")
    print(f"{path}: {path.stat().st_size / 2**20:.2f} MiB", flush=True)
    times = opened(path)
    print(f"opened in {median(times):.0f} ms ({min(times):.0f} to {max(times):.0f}, five times)")


if __name__ == "__main__":
    main()
