"""A method of your own from its record to the reports: its title, its statistics, its label."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tapr.cli import app
from tapr.reports import results

CODE = """
import torch
import tapr
from tapr.adapters import Adapter

class Plain(Adapter):
    '''Predicts, and says nothing about itself.'''

    def __init__(self, model, *, margin=0.4, **options):
        super().__init__(model, **options)
        self.margin = margin

    def adapt(self, images):
        with torch.no_grad():
            logits = self.logits(images)
        return tapr.Prediction(logits, None, {}, steps=0, kept=0, refused=0)

class Stated(Plain):
    title = "ETA_2 [ours]"
    policy = "batch & source"
"""
SPEC = """
data = "digits"
model = "digits-small"
corruptions = []
images = 40
batch_size = 20

[methods.bare]
method = "source"

[methods."own_eta:Stated"]

[methods."own_eta:Plain:margin=0.1"]

[methods.tent]
"""


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_eta.py").write_text(CODE)
    (tmp_path / "mine.toml").write_text(SPEC)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    run("bench", "mine.toml", "--quiet", "--out", "out")
    return tmp_path / "out"


def test_titles_and_statistics_are_those_the_method_states(records: Path) -> None:
    (setting,) = results.read([records]).settings
    facts = {system.label: (system.named.title, system.statistics) for system in setting.systems}
    assert facts == {
        "bare": ("unadapted", "source"),
        "tent": ("Tent", "batch"),
        "own_eta:Stated": ("ETA_2 [ours]", "batch & source"),
        "own_eta:Plain:margin=0.1": ("own_eta:Plain", "source"),
    }
    assert [system.label for system in setting.systems if not system.adapts] == ["bare"]
    (own,) = (s for s in setting.systems if s.options and "margin" in s.options)
    assert (own.method, own.options) == ("own_eta:Plain", {"margin": 0.1})


def test_tables_and_comparisons_say_so(records: Path) -> None:
    markdown = run("report", records, "--markdown", "-")
    assert "| ETA_2 [ours] | batch & source |" in markdown
    assert "| own_eta:Plain:margin=0.1 | source |" in markdown
    assert "| unadapted | source |" in markdown
    latex = run("report", records, "--latex", "-")
    assert r"ETA\_2 [ours] & batch \& source &" in latex
    compared = run("compare", records, "--methods", "tent,own_eta:Stated")
    assert "different batch-norm statistics (A: batch; B: batch & source)" in compared


def test_the_page_names_the_unadapted_model_as_the_baseline(records: Path, tmp_path: Path) -> None:
    run("report", records, "--no-examples", "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "the unadapted model" in page
    assert "ETA_2 [ours]" in page
    assert "; batch &amp; source: ETA_2 [ours])" in page
    assert "[methods.&#34;own_eta:Plain:margin=0.1&#34;]" in page
