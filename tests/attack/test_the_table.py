"""The bookkeeping of the attack: what went wrong is counted, shown, and fails."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tapr

SOURCES = str(Path(tapr.__file__).parents[1])
OUTCOMES = """
import tapr

def test_counts(tally):
    tally.attempt("area", "good", lambda: None)
    tally.attempt("area", "raw", lambda: 1 / 0)
    tally.attempt("area", "wrong", lambda: "two and two are five")
    tally.attempt("area", "refused", lambda: tapr.recipe("tnet"))
    tally.count("area", "lost", "a row")

def test_fails():
    assert False
"""


BY_WORKERS = pytest.mark.skipif(
    "TAPR_ATTACK" not in os.environ, reason="`make attack` tries it: it starts three more pytests"
)


@pytest.mark.parametrize(
    "workers",
    [pytest.param([], id="alone"), pytest.param(["-n", "2"], id="workers", marks=BY_WORKERS)],
)
def test_the_table_never_hides_what_went_wrong(workers: list[str], tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_it.py").write_text(OUTCOMES)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    table = tmp_path / "table.md"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *workers, str(tmp_path)],
        env={
            **os.environ,
            "PYTHONPATH": SOURCES,
            "TAPR_ATTACK": "1",
            "TAPR_ATTACK_TABLE": str(table),
        },
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stdout
    rows = table.read_text().splitlines()[2:]
    assert rows == [
        "| area | 5 | 2 | 1 | 1 | 1 |",
        "| it | 1 | 0 | 0 | 1 | 0 |",
        "| together | 6 | 2 | 1 | 2 | 1 |",
    ]
    assert "raw: ZeroDivisionError" in done.stdout
    assert "two and two are five" in done.stdout
