"""The report page: one HTML file that loads nothing else."""

import base64
import gzip
import io
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.names import STANDARD
from tapr.records import RunRecord, Shift
from tapr.reports import explore, health, titles, words
from tapr.reports.classes import many
from tapr.reports.drawing import Drawing, inline, need
from tapr.reports.examples import Example, Examples
from tapr.reports.export import spec
from tapr.reports.leaderboard import Leaderboard
from tapr.reports.metrics import Metric
from tapr.reports.plots import costs
from tapr.reports.results import Results, Setting
from tapr.reports.statistics import Interval
from tapr.reports.tables import Estimate, Row, Table, by_class, cost

_LARGEST = 160  # the longer side of an example, in pixels at most
_MOST_CLASSES = 20
_FAMILIES = {"Noise": 3, "Blur": 4, "Weather": 3, "Digital": 5}


class Gallery(NamedTuple):
    """Examples with their pixels, or why there are none."""

    examples: Examples | None = None
    pixels: Mapping[tuple[Shift, int], NDArray[np.uint8]] = {}
    why_not: str = ""


class Chapter(NamedTuple):
    """The part of the page about one setting."""

    table: Table
    drawings: Sequence[Drawing]
    gallery: Gallery


def page(
    chapters: Sequence[Chapter],
    results: Results,
    command: str,
    version: str,
    board: Leaderboard | None = None,
) -> str:
    """The whole page; with a leaderboard it also compares the settings and has controls.

    A page may have a leaderboard and no chapters.
    """
    jinja = need("jinja2")
    environment = jinja.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_template("report.html"))
    shown = [_chapter(chapter, number) for number, chapter in enumerate(chapters, 1)]
    text: str = template.render(
        style=_template("report.css"),
        chapters=shown,
        board=_board(board) if board else None,
        searching=_template("classes.js") if any(c["many"] for c in shown) else "",
        examples=_template("examples.js") if any(c["gallery"].get("groups") for c in shown) else "",
        problems=results.problems,
        command=command,
        environments=_environments(results.settings),
        version=version,
    )
    return text


def _board(board: Leaderboard) -> dict[str, Any]:
    """The leaderboard for the template: table, figure, and the data and script of Explore."""
    metric, best = board.metric, board.best
    drawing = costs(board)
    return {
        "metric": metric.heading,
        "heads": [
            {
                "key": f"s{number}",
                "model": str(table.setting.facts.get("model")),
                "stream": words.stream(table.setting),
            }
            for number, table in enumerate(board.tables, 1)
        ],
        "rows": [
            {
                "title": line.look.title,
                "colour": line.look.colour,
                "rank": "–" if line.rank is None else f"{line.rank:.1f}",
                "interval": _rank_interval(line.interval),
                "cells": [
                    None
                    if place is None
                    else {
                        "text": metric.text(place.estimate.value),
                        "rank": f"{place.rank:g}",
                        "interval": _rank_interval(place.interval),
                        "best": place.estimate.value == best[number],
                    }
                    for number, place in enumerate(line.places)
                ],
            }
            for line in board.lines
        ],
        "figure": None
        if drawing is None
        else {
            "title": drawing.title,
            "caption": drawing.caption,
            "svg": inline(drawing, "board-frontier"),
        },
        "data": base64.b64encode(gzip.compress(explore.data(board).encode(), mtime=0)).decode(),
        "style": _template("explore.css"),
        "script": _template("explore.js"),
    }


def _rank_interval(interval: Interval) -> str:
    return f"{interval.low:.3g} – {interval.high:.3g}" if np.isfinite(interval.low) else ""


def _template(name: str) -> str:
    return (files("tapr.reports") / "templates" / name).read_text("utf-8")


def _chapter(chapter: Chapter, number: int) -> dict[str, Any]:
    table = chapter.table
    setting = table.setting
    several = setting.severity is None
    return {
        "key": f"s{number}",
        "heading": words.heading(setting),
        "about": words.about(setting),
        "headline": words.headline(table),
        "notes": words.notes(table),
        "families": _families(table),
        "columns": [(titles.long(d), titles.short(d, several)) for d in table.domains],
        "metric": table.metric.heading,
        "unit": "%" if table.metric.unit == "%" else "",
        "mean_title": table.mean_title,
        "has_paper": table.has_paper,
        "has_published": table.has_published,
        "rows": [_row(table, row) for row in table.rows],
        "figures": [
            {
                "title": drawing.title,
                "caption": drawing.caption,
                "name": drawing.name,
                "svg": inline(drawing, f"s{number}-{drawing.name}"),
            }
            for drawing in chapter.drawings
        ],
        "health": health.strips(setting),
        "classes": _classes(table),
        "many": many(table) if len(by_class(table).classes) > _MOST_CLASSES else None,
        "gallery": _gallery(chapter.gallery),
        "spec": spec(setting),
        "folder": f"runs/{setting.runs[0].cell.get('spec') or 'again'}",
    }


def _families(table: Table) -> list[tuple[str, int]]:
    """The families as headings over their columns, when exactly the standard fifteen are there."""
    found = [domain.corruption for domain in table.domains]
    return list(_FAMILIES.items()) if found == list(STANDARD) else []


def _classes(table: Table) -> dict[str, Any] | None:
    """Accuracy by class, when there are few enough to read."""
    found = by_class(table)
    if not 2 <= len(found.classes) <= _MOST_CLASSES:
        return None
    known = table.setting.runs[0].cell.get("classes") or ()
    rows = []
    for row in table.rows:
        shares = found.rows.get(row.system.name)
        if shares:
            cells = [(f"{100 * s:.1f}", s == found.best(number)) for number, s in shares.items()]
            mean = sum(shares.values()) / len(shares)
            rows.append((row.look, f"{100 * mean:.1f}", cells))
    classes = [str(known[n]) if n < len(known) else str(n) for n in found.classes]
    return {"names": classes, "rows": rows}


def _row(table: Table, row: Row) -> dict[str, Any]:
    spent = cost(row.system)
    metric = table.metric
    cells = [_cell(cell, table.best(column), metric) for column, cell in enumerate(row.cells)]
    whole = _most(table)
    low, high = (row.mean.interval if row.mean.over else (0, 0)) if row.mean else (0, 0)
    return {
        "title": row.look.title,
        "colour": row.look.colour,
        "statistics": row.system.statistics,
        "cells": cells,
        "mean": _cell(row.mean, table.best(None), metric),
        "width": f"{100 * row.mean.value / whole:.2f}" if row.mean else "0",
        "low": f"{100 * low / whole:.2f}",
        "span": f"{100 * (high - low) / whole:.2f}",
        "paper": f"{100 * row.paper:.1f}" if row.paper is not None else None,
        "published": f"{100 * row.published:.1f}" if row.published is not None else None,
        "source": row.source,
        "cost": spent and _cost(spent._asdict()),
    }


def _most(table: Table) -> float:
    """The value that a bar of full width stands for."""
    if table.metric.unit == "%":
        return 1.0
    found = [row.mean for row in table.rows if row.mean]
    ends = [mean.interval.high if mean.over else mean.value for mean in found]
    return max(ends, default=1.0) or 1.0


def _cell(cell: Estimate | None, best: float | None, metric: Metric) -> dict[str, Any] | None:
    if cell is None:
        return None
    low, high = map(metric.text, cell.interval)
    seeds = f"{cell.seeds} seeds" if cell.seeds > 1 else "one seed"
    interval = f"95 % interval over {cell.over} {low} to {high}; " if cell.over else ""
    return {
        "text": metric.text(cell.value),
        "interval": f"{low} – {high}" if cell.over else "",
        "about": f"{interval}{cell.images:,} images, {seeds}"
        + ("" if cell.finished else "; not finished"),
        "best": cell.value == best,
        "finished": cell.finished,
    }


def _cost(spent: dict[str, Any]) -> dict[str, str]:
    speed, peak, kept = spent["speed"], spent["peak"], spent["kept"]
    return {
        "forward": f"{spent['forward']:.3g}",
        "backward": f"{spent['backward']:.3g}",
        "speed": f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}",
        "peak": f"{peak:,.0f}" if peak else "–",
        "steps": f"{spent['steps']:,}",
        "refused": f"{spent['refused']:,}",
        "kept": f"{100 * kept:.0f} %" if kept is not None else "–",
    }


def _gallery(gallery: Gallery) -> dict[str, Any]:
    examples = gallery.examples
    if examples is None:
        return {"why_not": gallery.why_not}
    return {
        "why_not": gallery.why_not,
        "before": examples.before.look.spoken,
        "after": examples.after.look.spoken,
        "groups": [
            (title, [_picture(example, gallery) for example in group])
            for title, group in (("Fixed", examples.fixed), ("Broken", examples.broken))
            if group and gallery.pixels
        ],
    }


def _picture(example: Example, gallery: Gallery) -> dict[str, str]:
    where = titles.corruption(example.domain)
    image = Image.fromarray(gallery.pixels[example.domain, example.image])
    image.thumbnail((_LARGEST, _LARGEST))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return {
        "uri": "data:image/png;base64," + base64.b64encode(file.getvalue()).decode(),
        "where": f"{where}, image {example.image:,}",
        "truth": example.truth,
        "before": example.before,
        "after": example.after,
    }


def _environments(settings: Sequence[Setting]) -> list[list[tuple[str, str]]]:
    """Every environment that the runs come from, once, with the range of their starting times."""
    groups: dict[tuple[tuple[str, str], ...], list[RunRecord]] = {}
    for setting in settings:
        for run in setting.runs:
            known = {k: str(v) for k, v in run.environment.items() if k != "began" and v}
            groups.setdefault(tuple(known.items()), []).append(run)
    found = []
    for facts, runs in groups.items():
        began = [str(run.environment["began"]) for run in runs if "began" in run.environment]
        ended = [str(run.end["ended"]) for run in runs if run.end and "ended" in run.end]
        times = {"began": min(began, default=""), "ended": max(ended, default="")}
        found.append([("runs", str(len(runs))), *facts, *((k, v) for k, v in times.items() if v)])
    return found
