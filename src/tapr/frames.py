"""Records as tables of pandas, and as Parquet files: what other tools read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapr import files
from tapr.errors import InputError
from tapr.records import TOP, BatchRecord, Rows, RunRecord

if TYPE_CHECKING:
    import pandas as pd

_FACTS = ("spec", "label", "method", "title", "statistics", "adapts", "seed", "device")


def frame(runs: Sequence[RunRecord], rows: Rows = "images") -> pd.DataFrame:
    """A row for each image, each batch or each run, with the facts of the run beside it."""
    makers: dict[str, Callable[[RunRecord], Any]]
    makers = {"images": _images, "batches": _batches, "runs": _runs}
    if rows not in makers:
        raise InputError(f"expected rows of images, batches or runs, got {rows!r}")
    pandas = _need("pandas")
    parts = [pandas.DataFrame(makers[rows](run)).assign(**_facts(run)) for run in runs]
    made: pd.DataFrame = pandas.concat(parts, ignore_index=True)
    facts = list(dict.fromkeys(key for run in runs for key in _facts(run)))
    return made[[*facts, *(column for column in made.columns if column not in facts)]]


def write(table: pd.DataFrame, path: Path) -> None:
    """Write a table as Parquet, whole or not at all."""
    _need("pyarrow")
    with files.atomic(path) as part:
        table.to_parquet(part, engine="pyarrow", index=False)


def _need(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(
            f"tables need {module}, which is not installed: pip install 'torch-tapr[tables]'"
        ) from error


def _facts(run: RunRecord) -> dict[str, Any]:
    """What identifies a run, one value each."""
    setting = {k: v for k, v in run.setting.items() if not isinstance(v, dict | list)}
    return {**{key: run.cell.get(key) for key in _FACTS}, **setting}


def _runs(run: RunRecord) -> list[dict[str, Any]]:
    return [
        {
            "domains": ", ".join(map(str, run.shifts)),
            "predicted": run.images,
            "accuracy": run.accuracy,
            "seconds": run.seconds,
            "peak_mib": (run.end or {}).get("peak_mib"),
            "finished": run.end is not None,
        }
    ]


def _batches(run: RunRecord) -> list[dict[str, Any]]:
    counts = ("steps", "kept", "refused", "forward", "backward", "seconds")
    return [
        {
            **_place(batch),
            "predicted": len(batch.predicted),
            "correct": batch.correct if batch.labels is not None else None,
            "loss": batch.loss,
            **{f"loss_{name}": value for name, value in batch.terms.items()},
            **{key: getattr(batch, key) for key in counts},
        }
        for batch in run.batches
    ]


def _images(run: RunRecord) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for batch in run.batches:
        for key, values in _of_batch(batch).items():
            columns.setdefault(key, []).extend(values)
    return columns


def _of_batch(batch: BatchRecord) -> dict[str, list[Any]]:
    nothing: list[Any] = [None] * len(batch.predicted)
    truth, top = batch.labels or nothing, batch.top or nothing
    right = zip(truth, batch.predicted, strict=True)
    among = zip(truth, top, strict=True)
    return {
        **{key: [value] * len(nothing) for key, value in _place(batch).items()},
        "image": batch.images,
        "truth": truth,
        "predicted": batch.predicted,
        "correct": [None if label is None else label == guess for label, guess in right],
        f"top{TOP}": [
            None if label is None or not best else label in best for label, best in among
        ],
        "confidence": [max(p, default=None) for p in batch.probabilities] or nothing,
        "log_likelihood": batch.log_likelihoods or nothing,
        "squares": batch.squares or nothing,
    }


def _place(batch: BatchRecord) -> dict[str, Any]:
    return {
        "batch": batch.number,
        "domain": batch.domain,
        "corruption": batch.corruption,
        "severity": batch.severity,
    }
