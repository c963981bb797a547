"""`tapr compare`: two methods on the same images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapr.cli import app
from tapr.cli.report import Metric

if TYPE_CHECKING:
    from tapr.reports.paired import Comparison, Pairing, Side
    from tapr.reports.results import Setting


@app.command()
def compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="A [B]", help="Records: files, or folders of them.")
    ],
    methods: str | None = typer.Option(
        None, help="The labels of two methods of A, or of one that both A and B have."
    ),
    metric: Metric = "accuracy",
    as_json: bool = typer.Option(False, "--json", help="Print the numbers as JSON."),
) -> None:
    """Compare two methods, or two runs, image by image.

    The result says by how much B is better than A, how certain that is (a 95 % bootstrap interval
    of the paired difference), and whether B fixes more images than it breaks (McNemar's exact
    test). Runs whose images differ are refused. `--metric` compares another number than accuracy,
    such as the calibration error; McNemar's test is only for shares of images.

    Example: `tapr compare runs/mine --methods source,steady`, or `tapr compare A.jsonl B.jsonl`
    """
    from tapr import names
    from tapr.reports import metrics, paired

    first, second = _sides(runs, names.pieces(methods, ",") if methods else [])
    found = paired.compare(first, second, metrics.METRICS[metric])
    typer.echo(_json(found, first, second) if as_json else _text(found, first, second))


def _sides(runs: list[Path], methods: list[str]) -> tuple[Side, Side]:
    from tapr.errors import InputError

    if not ((len(runs) == 1 and len(methods) == 2) or (len(runs) == 2 and len(methods) < 3)):
        raise InputError(
            "expected two runs (`tapr compare A B`) or two methods of one folder (`tapr compare"
            f" RUNS --methods source,steady`), got {len(runs)} path(s) and {len(methods)}"
            " method(s)"
        )
    read = {path: _read(path) for path in runs}
    paths = [*runs, *runs][:2]
    labels: list[str | None] = [*methods, *methods, None, None][:2]
    first, second = (
        _side(path, label, read[path]) for path, label in zip(paths, labels, strict=True)
    )
    if first.name == second.name:
        first, second = (
            side._replace(name=f"{side.name} in {path}")
            for side, path in zip((first, second), paths, strict=True)
        )
    return first, second


def _read(path: Path) -> list[Setting]:
    from tapr.reports import results

    read = results.read([path])
    for problem in read.problems:
        typer.echo(f"tapr: warning: {problem}", err=True)
    return read.settings


def _side(path: Path, label: str | None, settings: list[Setting]) -> Side:
    """The one system at `path`, or the one with this label."""
    from tapr.errors import InputError
    from tapr.registry import Registry
    from tapr.reports.paired import Side

    systems: dict[str, list[Side]] = {}
    for setting in settings:
        for system in setting.systems:
            systems.setdefault(system.name, []).append(Side(system.name, setting, system))
    if label is None and len(systems) > 1:
        raise InputError(
            f"{path} has several methods ({', '.join(systems)}): choose with --methods"
        )
    chosen = Registry(f"method in {path}", systems)[label or next(iter(systems))]
    if len(chosen) > 1:
        raise InputError(
            f"{path} has {chosen[0].name} in {len(chosen)} different settings: name the files"
        )
    return chosen[0]


def _json(found: Comparison, first: Side, second: Side) -> str:
    import json

    def numbers(pairing: Pairing) -> dict[str, object]:
        return {**pairing._asdict(), "difference": pairing.difference}

    return json.dumps(
        {
            "first": first.name,
            "second": second.name,
            "metric": found.metric.name,
            "overall": numbers(found.overall),
            "domains": {d.name: numbers(pairing) for d, pairing in found.domains.items()},
            "differing": found.differing,
        },
        indent=2,
    )


def _text(found: Comparison, first: Side, second: Side) -> str:
    from tapr.reports.paired import verdict

    return "\n".join(verdict(found, first.name, second.name))
