"""`tapr compare`: which two, and what is printed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tapr.cli import app
from tapr.errors import InputError, UnknownNameError
from tapr.records import RunRecord

Make = Callable[..., RunRecord]
Save = Callable[[RunRecord, Path], Path]


def run(*arguments: object) -> str:
    command = ["compare", *map(str, arguments)]
    return CliRunner().invoke(app, command, catch_exceptions=False).stdout


def test_two_methods_of_a_folder(bench: Path) -> None:
    text = run(bench, "--methods", "source,pest-augmix")
    assert text.startswith("A: source: ")
    assert "B: pest-augmix: " in text
    assert "B is better than A: +" in text
    assert "McNemar's exact test: p < 1e-6" in text
    assert text.count(", severity 5") == 4


def test_two_files(bench: Path) -> None:
    files = [bench / f"fog-5.{method}.seed0.jsonl" for method in ("tent", "pest-augmix")]
    text = run(*files)
    assert text.startswith("A: tent: ")
    assert "400 predictions" in text
    assert "several corruptions" not in text


def test_one_method_of_two_folders(
    bench: Path, make_run: Make, save_run: Save, tmp_path: Path
) -> None:
    for domain in ("contrast-5", "fog-5", "gaussian_noise-5", "defocus_blur-5"):
        save_run(make_run("tent", [domain], batch_size=50), tmp_path / "other")
    text = run(bench, tmp_path / "other", "--methods", "tent")
    assert text.startswith(f"A: tent in {bench}: ")
    assert "These images do not show a difference between A and B: +0.00 points" in text
    assert "A / B differ in batch_size: 100 / 50" in text


def test_json(bench: Path) -> None:
    found = json.loads(run(bench, "--methods", "norm,tent", "--json"))
    assert (found["first"], found["second"]) == ("norm", "tent")
    overall = found["overall"]
    assert overall["images"] == 1600
    assert overall["difference"] == pytest.approx(overall["second"] - overall["first"])
    assert len(found["domains"]) == 4


def test_what_to_compare_must_be_clear(bench: Path, make_run: Make, save_run: Save) -> None:
    with pytest.raises(InputError, match="expected two runs"):
        run(bench)
    with pytest.raises(InputError, match="several methods"):
        run(bench, bench)
    with pytest.raises(UnknownNameError, match="did you mean 'tent'"):
        run(bench, "--methods", "tnet,norm")
    save_run(make_run("tent", ["fog-5"], batch_size=50), bench / "more")
    with pytest.raises(InputError, match="tent in 2 different settings"):
        run(bench, "--methods", "tent,norm")


def test_other_images_are_refused(bench: Path) -> None:
    with pytest.raises(InputError, match="expected two runs on the same images"):
        run(bench / "fog-5.tent.seed0.jsonl", bench / "contrast-5.tent.seed0.jsonl")
