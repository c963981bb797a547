"""`tapr methods`: a list for people and machines, and one method in full."""

import json

import pytest
from typer.testing import CliRunner

import tapr
from tapr import names
from tapr.cli import app


def said(*words: str) -> str:
    result = CliRunner().invoke(app, ["methods", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_every_method_is_listed_with_paper_and_passes() -> None:
    lines = said().splitlines()
    listed = {line.split()[0] for line in lines[1 : 1 + len(names.METHODS)]}
    assert listed == set(names.METHODS)
    assert any("Wang et al., ICLR 2021" in line and "1 fwd, 1 bwd" in line for line in lines)
    assert any(line.startswith("norm") and "needs batch norm" in line for line in lines)


def test_the_list_for_machines() -> None:
    tables = {table["name"]: table for table in json.loads(said("--json"))}
    assert tables["pest"]["passes"] == {"forward": 16, "backward": 15}
    assert tables["pest"]["presets"]["paper"]["steps"] == 5
    assert tables["norm"]["needs"] == {"batch_norm": "whose statistics this method re-estimates"}


def test_one_method_with_options_and_presets() -> None:
    text = said("tent")
    assert "passes: 1 forward, 1 backward" in text
    assert "lr                     0.001" in text
    assert "preset released changes:\n  predict                'after'" in text
    assert json.loads(said("tent", "--json"))["title"] == "Tent"


def test_an_unknown_method_gets_a_suggestion() -> None:
    with pytest.raises(tapr.TaprError, match="unknown method 'tnet'; did you mean 'tent'"):
        CliRunner().invoke(app, ["methods", "tnet"], catch_exceptions=False)
