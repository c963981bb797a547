"""Tables as text: CSV for machines, Markdown and LaTeX for people, and the spec as TOML."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tapr import names
from tapr.reports import titles
from tapr.reports.leaderboard import Leaderboard
from tapr.reports.results import Setting
from tapr.reports.tables import Estimate, Row, Table
from tapr.reports.words import heading, sentence, stream

CSV_COLUMNS = (
    *("data", "origin", "model", "protocol", "order", "batch_size", "severity", "stream"),
    *("method", "statistics", "domain", "{metric}", "low", "high", "interval"),
    *("images", "seeds", "finished", "paper", "published", "source"),
)


def to_csv(tables: Sequence[Table]) -> str:
    """One line for each system and domain, and one for each mean; a share is not in percent."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    metric = tables[0].metric.name if tables else "accuracy"
    writer.writerow([column.format(metric=metric) for column in CSV_COLUMNS])
    for table in tables:
        for row in table.rows:
            cells = zip(table.domains, row.cells, strict=True)
            lines = [[*_csv_line(table, row, d.name, c), "", "", ""] for d, c in cells if c]
            if row.mean:
                others = [_share(row.paper), _share(row.published), row.source]
                lines.append([*_csv_line(table, row, table.mean_title, row.mean), *others])
            writer.writerows(lines)
    return text.getvalue()


def _csv_line(table: Table, row: Row, domain: str, cell: Estimate) -> list[object]:
    setting = table.setting
    origin = setting.facts.get("origin")
    facts = {**setting.facts, "origin": names.origin(**origin) if origin else ""}
    return [
        *(facts.get(key) for key in CSV_COLUMNS[:6]),
        *(setting.severity, stream(setting), row.system.name, row.system.statistics, domain),
        *(f"{v:.6f}" if math.isfinite(v) else "" for v in (cell.value, *cell.interval)),
        *(cell.over, cell.images, cell.seeds, cell.finished),
    ]


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def percent(value: float) -> str:
    """A share as a number of percent.

    >>> percent(0.7123)
    '71.2'
    """
    return f"{100 * value:.1f}"


def to_markdown(tables: Sequence[Table], board: Leaderboard | None = None) -> str:
    """The leaderboard and each setting as Markdown tables; the best numbers are bold."""
    first = [_board_markdown(board)] if board else []
    return "\n".join(first + [_markdown(table) for table in tables])


def _board_markdown(board: Leaderboard) -> str:
    head, body = _board_grid(board, "**{}**", "[{} - {}]")
    return f"### Leaderboard: {_title(board.tables[0]).lower()}\n\n{_pipes(head, body, 1)}\n"


def _pipes(head: list[str], body: list[list[str]], names: int) -> str:
    """A Markdown table; the columns after the first `names` ones are numbers."""
    lines = [head, [*["---"] * names, *["---:"] * (len(head) - names)], *body]
    rows = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _markdown(table: Table) -> str:
    text = _pipes(*_grid(table, "**{}**", "[{} - {}]", "†"), 2)
    below = f"\n{sentence(table.published)}\n" if table.has_published else ""
    return f"### {heading(table.setting)}\n\n{_title(table)}.\n\n{text}\n{below}"


def _title(table: Table) -> str:
    """The metric and its unit: "Accuracy in %"."""
    return table.metric.heading.replace(", %", " in %")


def to_latex(tables: Sequence[Table], board: Leaderboard | None = None) -> str:
    r"""The leaderboard and each setting as LaTeX tables (they need `\usepackage{booktabs}`)."""
    first = [_board_latex(board)] if board else []
    return "\n".join(first + [_latex(table) for table in tables])


_ESCAPES = str.maketrans(
    {mark: f"\\{mark}" for mark in "%&_#${}"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
)


def _board_latex(board: Leaderboard) -> str:
    head, body = _board_grid(board, r"\textbf{{{}}}", "[{}--{}]")
    return _booktabs(head, body, 1, f"Leaderboard. {board.metric.heading}, and mean rank.")


def _latex(table: Table) -> str:
    head, body = _grid(table, r"\textbf{{{}}}", "[{}--{}]", r"$^\dagger$")
    title = table.metric.heading.replace(", %", " (%)")
    caption = f"{title}. {heading(table.setting)}."
    if table.has_published:
        caption += f" {sentence(table.published)}"
    return _booktabs(head, body, 2, caption)


def _booktabs(head: list[str], body: list[list[str]], names: int, caption: str) -> str:
    """A LaTeX table; the columns after the first `names` ones are numbers."""
    titles = [title.translate(_ESCAPES) for title in head]
    lines = [[*(cell.translate(_ESCAPES) for cell in line[:names]), *line[names:]] for line in body]
    return "\n".join(
        [
            r"\begin{table}",
            r"    \centering",
            rf"    \caption{{{caption.translate(_ESCAPES)}}}",
            rf"    \begin{{tabular}}{{{'l' * names}{'r' * (len(head) - names)}}}",
            r"        \toprule",
            "        " + " & ".join(titles) + r" \\",
            r"        \midrule",
            *("        " + " & ".join(line) + r" \\" for line in lines),
            r"        \bottomrule",
            r"    \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _board_grid(board: Leaderboard, bold: str, interval: str) -> tuple[list[str], list[list[str]]]:
    """The heading and the lines of the leaderboard as text: a column for each setting."""
    settings = [table.setting for table in board.tables]
    several = len({setting.facts.get("model") for setting in settings}) > 1
    heads = [f"{stream(s)}, {s.facts.get('model')}" if several else stream(s) for s in settings]
    best = board.best
    body = []
    for line in board.lines:
        known = line.rank is not None and math.isfinite(line.interval.low)
        ends = interval.format(*(f"{end:.1f}" for end in line.interval)) if known else "-"
        row = [line.look.title, "-" if line.rank is None else f"{line.rank:.1f}", ends]
        for place, top in zip(line.places, best, strict=True):
            text = board.metric.text(place.estimate.value) if place else "-"
            row.append(bold.format(text) if place and place.estimate.value == top else text)
        body.append(row)
    return ["method", "mean rank", "95 % interval", *heads], body


def _grid(
    table: Table, bold: str, interval: str, unfinished: str
) -> tuple[list[str], list[list[str]]]:
    """The heading and the lines of the main table as text."""
    several = table.setting.severity is None
    head = ["method", "statistics", *(titles.short(d, several) for d in table.domains)]
    head += [table.mean_title, "95 % interval"]
    head += ["paper"] * table.has_paper + ["published"] * table.has_published
    body = []
    for row in table.rows:

        def shown(cell: Estimate | None, column: int | None) -> str:
            if cell is None:
                return "-"
            text = table.metric.text(cell.value) + ("" if cell.finished else unfinished)
            return bold.format(text) if cell.value == table.best(column) else text

        line = [row.look.title, row.system.statistics]
        line += [shown(cell, column) for column, cell in enumerate(row.cells)]
        line.append(shown(row.mean, None))
        known = row.mean is not None and row.mean.over
        ends = map(table.metric.text, row.mean.interval) if row.mean else ()
        line.append(interval.format(*ends) if known else "-")
        if table.has_paper:
            line.append("-" if row.paper is None else percent(row.paper))
        if table.has_published:
            line.append("-" if row.published is None else percent(row.published))
        body.append(line)
    return head, body


# Facts of a setting that are no field of the spec, or that are written from the domains.
_FOUND_OUT = ("origin", "model_hash", "domains", "severities")


def spec(setting: Setting) -> str:
    """The spec that repeats a setting's runs, with every option of every method written out."""
    first = setting.runs[0]
    domains = setting.domains if setting.single else first.shifts
    shifts = dict.fromkeys(d.corruption or names.CLEAN for d in domains)
    corruptions = [] if [*shifts] == [names.CLEAN] else [*shifts]
    values = {
        "name": first.cell.get("spec") or "again",
        **{key: value for key, value in setting.facts.items() if key not in _FOUND_OUT},
        "corruptions": corruptions,
        "severities": sorted({d.severity for d in domains if d.severity}),
        "seeds": sorted({seed for system in setting.systems for seed in system.seeds}),
        "device": first.cell.get("device"),
    }
    if not corruptions:
        del values["severities"]
    lines = _pairs(values)
    for system in setting.systems:
        lines += ["", f"[methods.{json.dumps(system.name)}]", *_pairs(system.recipe)]
    return "\n".join(lines) + "\n"


def _pairs(values: Mapping[str, Any]) -> list[str]:
    """The lines of a TOML table without values of None, which mean the default."""
    return [f"{key} = {_toml(value)}" for key, value in values.items() if value is not None]


def _toml(value: object) -> str:
    """A value as TOML; texts, numbers, truth values and lists are written as in JSON.

    >>> _toml({"n": 1, "ops": ["shear_x"]})
    '{"n" = 1, "ops" = ["shear_x"]}'
    """
    if isinstance(value, Mapping):
        entries = (f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items())
        return "{" + ", ".join(entries) + "}"
    return json.dumps(value, ensure_ascii=False)
