"""The flags of a benchmark are the fields of its spec."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import tapr
from tapr import records
from tapr.cli import app
from tapr.cli.overrides import flags
from tapr.runs.spec import Spec

SMALL = ["--corruptions", "none", "--images", "20", "--batch-size", "10"]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["bench", "digits", *SMALL, *arguments])


@pytest.mark.parametrize("name", ["bench", "sweep", "ablate"])
def test_the_flags_are_the_fields(name: str) -> None:
    command: Any = get_command(app)
    options = (each for each in command.commands[name].params if each.opts[0].startswith("-"))
    params = {each.name: each for each in options}
    shown = {field: tuple(params[field].opts) for field in Spec.model_fields if field in params}
    assert shown == {field: flags(field) for field in Spec.model_fields if flags(field)}
    assert set(Spec.model_fields) - set(shown) == {"name", "about"}
    assert {flag for names in shown.values() for flag in names} == {
        *("--corruptions", "--severity", "--images", "--methods", "--method", "--batch-size"),
        *("--model", "--architecture", "--seed", "--protocol", "--order", "--device"),
        *("--data", "--split", "--delta", "--shift-at", "--burst", "--rounds", "--clean"),
        *("--size", "--crop", "--interpolation", "--mean", "--std", "--blank", "--only-class"),
    }
    assert "--option" in params["option"].opts


def test_labels_variants_and_options_are_run_and_recorded(tmp_path: Path) -> None:
    variant = 'pest:steps=1:augmentation_options={"severity": 1, "width": 2}'
    wanted = f"pest-control,tent,{variant}"
    changed = ["--option", "tent.lr=0.5", "--option", "pest-control.steps=1"]
    done = run("--methods", wanted, *changed, "--json", "--out", str(tmp_path))
    assert done.exit_code == 0, done.exception
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["method"] for line in lines] == ["pest-control", "tent", variant]
    cells = [records.read(tmp_path / line["file"])[0].cell for line in lines]
    assert [cell["method"] for cell in cells] == ["pest", "tent", "pest"]
    assert [cell["options"] for cell in cells] == [
        {"lr": 0.0, "steps": 1},
        {"lr": 0.5},
        {"steps": 1, "augmentation_options": {"severity": 1, "width": 2}},
    ]
    assert [(cell["recipe"]["lr"], cell["recipe"]["steps"]) for cell in cells] == [
        (0.0, 1),
        (0.5, 1),
        (1e-4, 1),
    ]


def test_labels_of_any_characters_are_safe_in_files_and_tables(tmp_path: Path) -> None:
    spec = tmp_path / "a.toml"
    label = "a/b [red]* ../?"
    lines = ['data="digits"', 'model="digits-small"', f'[methods."{label}"]', 'method="norm"']
    spec.write_text("\n".join(lines))
    arguments = ["bench", str(spec), *SMALL, "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.exception
    assert done.stdout.count(label) == 2  # a line of its own, and the table's heading
    (path,) = (tmp_path / "out").glob("*.jsonl")
    assert path.name.startswith("clean.a-b-red-..-.seed0.")
    found, problems = records.read(path)
    assert (found.label, found.method, problems) == (label, "norm", [])
    again = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(again.stdout)["method"] == label


def test_two_labels_of_one_slug_are_two_files(tmp_path: Path) -> None:
    spec = tmp_path / "a.toml"
    lines = ['data="digits"', 'model="digits-small"', "[methods]", '"a/b"={method="source"}']
    spec.write_text("\n".join([*lines, '"a b"={method="source"}']))
    done = CliRunner().invoke(app, ["bench", str(spec), *SMALL, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.exception
    assert len(list((tmp_path / "out").glob("clean.a-b.seed0.*.jsonl"))) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "pest-augmx"], "did you mean 'pest-augmix'"),
        (["--option", "pest-augmix.lrr=1"], "unknown option 'lrr' of method 'pest-augmix'"),
        (["--seed", "one"], "expected --seed as whole numbers, got 'one'"),
        (["--log", "tensorbord"], "unknown logger 'tensorbord'; did you mean 'tensorboard'"),
    ],
)
def test_bad_flags_get_a_sentence(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = run(*arguments, "--out", str(tmp_path / "out"))
    assert isinstance(done.exception, tapr.TaprError)
    assert message in str(done.exception)
