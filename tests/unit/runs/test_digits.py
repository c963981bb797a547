"""`tapr bench digits`: what is shipped, on real digits, without a download."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tapr.cli import app
from tapr.runs import spec as specs
from tapr.runs.bench import Bench

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")
SYSTEMS = ["source", "norm", "tent", "steady", "pest-randaugment", "pest-augmix"]


def bench(*options: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["bench", "digits", "--json", *options])
    assert result.exit_code == 0, result.exception
    return [json.loads(line) for line in result.output.splitlines()]


def test_the_spec_is_visdas_protocol_in_small() -> None:
    spec, visda = specs.load("digits", {}), specs.load("visda", {})
    assert set(SYSTEMS) < set(spec.methods)
    for field in ("split", "corruptions", "batch_size", "protocol", "order"):
        assert getattr(spec, field) == getattr(visda, field)
    assert {**visda.methods, "steady": spec.methods["steady"]} == spec.methods


def test_the_shift_hurts_and_the_statistics_alone_help(tmp_path: Path) -> None:
    real = bench("--methods", "source,norm", "--out", str(tmp_path / "real"))
    rendered = bench(
        *("--methods", "source", "--split", "validation", "--images", "300"),
        *("--out", str(tmp_path / "rendered")),
    )
    assert [line["images"] for line in real] == [1797, 1797]
    assert rendered[0]["accuracy"] > 98
    assert real[0]["accuracy"] < rendered[0]["accuracy"] - 30
    assert real[1]["accuracy"] > real[0]["accuracy"] + 3
    assert abs(real[0]["class_mean_accuracy"] - real[0]["accuracy"]) < 1


def test_every_system_runs(tmp_path: Path) -> None:
    lines = bench("--images", "64", "--out", str(tmp_path))
    assert [line["method"] for line in lines] == [*SYSTEMS, "pest-control"]
    assert all(line["accuracy"] > 40 for line in lines)


def test_a_split_can_be_corrupted(tmp_path: Path) -> None:
    values = {"split": "validation", "corruptions": ["contrast"], "images": 10}
    found = Bench(specs.load("digits", values), tmp_path)
    origin = {"dataset": "digits:validation", "made": "generated", "seed": 0}
    assert found.cells[0].identity["origin"] == origin
    assert found.cells[0].identity["setting"]["split"] == "validation"
