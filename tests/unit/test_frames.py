"""Records as tables: every image, batch and run once, and the same through Parquet."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import tapr
from tapr.cli import app
from tapr.errors import DataError, InputError
from tapr.records import RunRecord, load


def test_a_row_for_each_image(bench: Path) -> None:
    read = tapr.records.load(bench)
    frame = read.to_pandas()
    assert len(read.runs) == 6 * 4
    assert len(frame) == sum(run.images for run in read.runs)
    assert not frame.columns.duplicated().any()
    found = frame.groupby(["label", "domain"])["correct"].mean()
    for run in read.runs:
        assert found[run.label, run.shifts[0].name] == pytest.approx(run.accuracy)
    assert set(frame["model"]) == {"cifar10-small"}
    assert frame["confidence"].isna().all(), "these records are of before confidences"


def test_a_row_for_each_batch_and_run(bench: Path) -> None:
    read = load([str(bench)])
    batches = read.to_pandas("batches")
    assert len(batches) == sum(len(run.batches) for run in read.runs)
    assert batches["predicted"].sum() == sum(run.images for run in read.runs)
    assert {"loss_entropy", "seconds", "forward"} <= {*batches.columns}
    runs = read.to_pandas("runs")
    assert len(runs) == len(read.runs)
    assert runs["finished"].all()
    with pytest.raises(InputError, match="expected rows of images, batches or runs, got 'cells'"):
        read.to_pandas("cells")  # type: ignore[arg-type]


def test_parquet_is_the_same_table(bench: Path, tmp_path: Path) -> None:
    path = tmp_path / "records.parquet"
    command = ["report", str(bench), "--parquet", str(path)]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    back = pd.read_parquet(path)
    frame = load(bench).to_pandas()
    assert list(back.columns) == list(frame.columns)
    for column in ("label", "domain", "image", "truth", "predicted", "correct", "seed"):
        assert back[column].tolist() == frame[column].tolist()
    assert not (tmp_path / "report.html").exists()


def test_labels_that_nobody_knows_are_missing(make_run: Callable[..., RunRecord]) -> None:
    from dataclasses import replace

    from tapr.frames import frame

    run = make_run("tent", images=100)
    bare = replace(run, batches=[replace(batch, labels=None) for batch in run.batches])
    made = frame([bare, run])
    assert made["truth"].isna().sum() == made["correct"].isna().sum() == 100


def test_without_pandas_there_is_a_sentence(bench: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing: Any = None
    monkeypatch.setitem(sys.modules, "pandas", missing)
    with pytest.raises(InputError, match=r"tables need pandas.*pip install 'torch-tapr\[tables\]'"):
        load(bench).to_pandas()


def test_nothing_to_load(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no \.jsonl file in"):
        load(tmp_path)
