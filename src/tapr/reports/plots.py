"""The figures of a setting, drawn with matplotlib, and the curves along its stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapr.records import BatchRecord, Shift
from tapr.reports import titles
from tapr.reports.drawing import FAINT, INK, Drawing, as_written, need, style
from tapr.reports.leaderboard import Leaderboard, Spent, frontier, spent
from tapr.reports.metrics import ACCURACY
from tapr.reports.results import Setting, System, batches
from tapr.reports.tables import Row, Table, cost

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ENTRY = 1.6  # the width of a legend's entry, in inches
_KEY, _WIDTH = 0.55, 0.085  # the widths of its mark and of a letter, in inches
_LETTER, _LINE = 4.4, 9.0  # the width of a letter and the height of a line, in points, small font
_NAME = 45  # the room for a domain's name above a figure, in points
_POINTS = 12  # a longer stream is smoothed over a twelfth of its batches


def drawings(table: Table) -> list[Drawing]:
    """Every figure that the table's runs can fill."""
    makers: tuple[Callable[[Table], Drawing | None], ...] = (stream, bars, losses, trade)
    with style():
        return [drawing for make in makers if (drawing := make(table))]


def _figure(width: float, height: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    figure = need("matplotlib.figure").Figure((width, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, panels, squeeze=True)))


def _legend(figure: Figure, handles: Mapping[str, Any]) -> None:
    row = sum(_KEY + _WIDTH * len(title) for title in handles)
    columns = int(figure.get_figwidth() / _ENTRY) if row > figure.get_figwidth() else len(handles)
    figure.legend(
        handles.values(), handles, loc="outside upper left", ncols=max(1, columns), handlelength=1.6
    )


def _handles(axes: Axes) -> dict[str, Any]:
    handles, labels = axes.get_legend_handles_labels()
    return dict(zip(labels, handles, strict=True))


def bars(table: Table) -> Drawing | None:
    """Accuracy of every system under every corruption: the paper's figure."""
    if not any(cell for row in table.rows for cell in row.cells):
        return None
    width = min(11, max(7, 1 + len(table.domains) * (0.09 * len(table.rows) + 0.15)))
    figure, (axes,) = _figure(width, 3.7)
    slot = 0.84 / len(table.rows)
    metric, scale = table.metric, _scale(table)
    for number, row in enumerate(table.rows):
        places = np.arange(len(table.domains)) + (number - (len(table.rows) - 1) / 2) * slot
        known = [(x, cell) for x, cell in zip(places, row.cells, strict=True) if cell]
        values = np.array([scale * cell.value for _, cell in known])
        ends = np.array([[scale * end for end in cell.interval] for _, cell in known])
        ends = np.where(np.isfinite(ends.reshape(-1, 2)), ends.reshape(-1, 2), values[:, None])
        axes.bar(
            [x for x, _ in known],
            values,
            slot * 0.92,
            color=row.look.colour,
            label=as_written(row.look.title),
            yerr=np.abs(ends.T - values),
            error_kw={"elinewidth": 0.8, "ecolor": INK, "alpha": 0.6},
        )
    several = table.setting.severity is None
    labels = [titles.short(domain, several) for domain in table.domains]
    axes.set_xticks(range(len(labels)), labels)
    axes.tick_params(axis="x", length=0)
    axes.set(ylabel=_named(table), xlim=(-0.6, len(labels) - 0.4))
    if metric is ACCURACY:
        axes.set_ylim(0, 100)
    axes.grid(axis="y")
    _legend(figure, _handles(axes))
    return Drawing(
        "bars",
        _first(metric.title) + (" under each corruption" if len(labels) > 1 else ""),
        f"{'The share of images predicted right' if metric is ACCURACY else _first(metric.title)},"
        f" with 95 % intervals. {'Lower' if metric.lower else 'Higher'} is better.",
        figure,
    )


def _scale(table: Table) -> float:
    return 100.0 if table.metric.unit == "%" else 1.0


def _named(table: Table) -> str:
    """The title of an axis."""
    heading = table.metric.heading
    return heading[:1].lower() + heading[1:]


def _first(text: str) -> str:
    return text[:1].upper() + text[1:]


def stream(table: Table) -> Drawing | None:
    """Accuracy along the stream."""
    curves = _curves(table, batch_accuracy)
    if not curves:
        return None
    figure, (axes,) = _figure(9.8, 3.8)
    for row, curve in curves:
        _line(axes, row, Curve(curve.x, 100 * curve.y))
    _along(axes, table)
    axes.set_ylabel("accuracy, %")
    _legend(figure, _handles(axes))
    return Drawing("stream", "Accuracy along the stream", _caption(table), figure)


def losses(table: Table) -> Drawing | None:
    """The terms of the loss along the stream, a panel each."""
    found = loss_terms(table.setting)
    panels = [(term, _curves(table, loss_term(term))) for term in found]
    panels = [(term, curves) for term, curves in panels if curves]
    if not panels:
        return None
    figure, all_axes = _figure(max(6, 4.6 * len(panels)), 3.4, len(panels))
    shown: dict[str, Any] = {}
    for axes, (term, curves) in zip(all_axes, panels, strict=True):
        for row, curve in curves:
            shown[as_written(row.look.title)] = _line(axes, row, curve)
        _along(axes, table)
        axes.set_title(term)
        axes.set_ylim(bottom=0)
    _legend(figure, shown)
    caption = "Mean of each weighted term over a batch, at the batch's last step. "
    return Drawing("losses", "Loss along the stream", caption + _caption(table), figure)


def trade(table: Table) -> Drawing | None:
    """The metric against the time an image takes."""
    points = [(row, cost(row.system)) for row in table.rows if row.mean]
    known = [(row, 1000 / spent.speed) for row, spent in points if spent and spent.speed > 0]
    if not known:
        return None
    figure, (axes,) = _figure(8, 4)
    scale = _scale(table)
    for row, milliseconds in known:
        assert row.mean
        value, (low, high) = scale * row.mean.value, row.mean.interval
        reach = [[value - scale * low], [scale * high - value]] if row.mean.over else [[0], [0]]
        axes.errorbar(
            [milliseconds],
            [value],
            yerr=np.abs(reach),
            fmt=row.look.marker,
            color=row.look.colour,
            markersize=9,
            elinewidth=1,
            label=as_written(row.look.title),
        )
    axes.set_xscale("log")
    ticker = need("matplotlib.ticker")
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set(xlabel="milliseconds per image (each step to the right costs more)")
    axes.set_ylabel(f"mean {_named(table)}" if len(table.domains) > 1 else _named(table))
    axes.margins(0.12)
    axes.grid()
    figure.legend(loc="outside right center", handlelength=1.2)
    return Drawing(
        "cost",
        f"{_first(table.metric.title)} against cost",
        f"{'Down' if table.metric.lower else 'Up'} and to the left is better. Time of"
        " adapting and predicting on the machine of the runs.",
        figure,
    )


def costs(board: Leaderboard) -> Drawing | None:
    """The metric against time over all settings of a model, a panel each, with the frontier."""
    found = spent(board)
    if not found:
        return None
    metric = board.metric
    scale = 100.0 if metric.unit == "%" else 1.0
    with style():
        figure, panels = _figure(max(6.5, 5.2 * len(found)), 4.4, len(found))
        ticker = need("matplotlib.ticker")
        for axes, (model, points) in zip(panels, found.items(), strict=True):
            edge = frontier(points, metric)
            axes.step(
                [point.milliseconds for point in edge],
                [scale * point.value for point in edge],
                where="post",
                color=FAINT,
                linewidth=1.2,
                zorder=1,
            )
            for point in points:
                size = 6 if point in edge else 4
                place = point.milliseconds, scale * point.value
                axes.plot(*place, "o", color=point.line.look.colour, markersize=size)
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(ticker.NullFormatter())
            axes.set(title=as_written(model), xlabel="milliseconds per image")
            axes.margins(0.16)
            axes.grid()
            _label(figure, axes, points, edge, scale)
        heading = metric.heading
        panels[0].set_ylabel(f"mean {heading[:1].lower()}{heading[1:]}, over the streams")
    return Drawing(
        "frontier",
        f"{_first(metric.title)} against cost",
        "The line and bold names are the frontier: no other method is both better and quicker."
        " Time of adapting and predicting on the machine of the runs.",
        figure,
    )


def _label(
    figure: Figure, axes: Axes, points: Sequence[Spent], edge: Sequence[Spent], scale: float
) -> None:
    """Write names beside points, the frontier's first; one that would cover another moves up."""
    figure.draw_without_rendering()
    taken: list[tuple[float, float, float]] = []  # left, right, middle in points
    for point in [*edge, *(point for point in points if point not in edge)]:
        on, title = point in edge, point.line.look.title
        place = point.milliseconds, scale * point.value
        x, y = axes.transData.transform(place) * 72 / figure.dpi
        left, right = x + 4, x + 4 + _LETTER * len(title)
        height = 3.0
        while any(
            left < other[1] and other[0] < right and abs(y + height - other[2]) < _LINE
            for other in taken
        ):
            height += 1
        taken.append((left, right, y + height))
        axes.annotate(
            as_written(title),
            place,
            xytext=(4, height),
            textcoords="offset points",
            fontsize=7,
            fontweight="bold" if on else "normal",
            arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.5}
            if height > 3
            else None,
        )


def _curves(table: Table, read: Callable[[Any], float | None]) -> list[tuple[Row, Curve]]:
    found = [(row, curve(row.system, read)) for row in table.rows]
    return [(row, curve) for row, curve in found if curve]


def _line(axes: Axes, row: Row, curve: Curve) -> Any:
    step = max(1, len(curve.x) // 8)
    (line,) = axes.plot(
        curve.x,
        curve.y,
        color=row.look.colour,
        marker=row.look.marker,
        markevery=step,
        markersize=5,
        linewidth=1.8,
        label=as_written(row.look.title),
    )
    return line


def _along(axes: Axes, table: Table) -> None:
    axes.set_xlabel("images seen")
    axes.grid(axis="y")
    axes.xaxis.set_major_formatter(need("matplotlib.ticker").StrMethodFormatter("{x:,.0f}"))
    starts = boundaries(table.setting)
    if len(starts) > 1:
        _name_domains(axes, starts)


def _name_domains(axes: Axes, starts: Sequence[tuple[float, Shift]]) -> None:
    """Draw a line where each domain of the stream begins, with the domain's name above it."""
    for start, _ in starts:
        axes.axvline(start, color=FAINT, linewidth=0.8, linestyle=":")
    above = axes.secondary_xaxis("top")
    figure = axes.figure
    room = 72 * figure.bbox.width / figure.dpi / len(figure.axes) / len(starts)
    above.set_xticks(
        [start for start, _ in starts],
        [titles.short(domain, True) for _, domain in starts],
        fontsize=8,
        **({"ha": "left"} if room > _NAME else {"rotation": 90}),
    )
    above.tick_params(length=0, pad=2)
    above.spines["top"].set_visible(False)


def _caption(table: Table) -> str:
    over = f"Mean over {len(table.domains)} streams. " if len(table.domains) > 1 else ""
    many = any(run.batches and len(run.batches) >= 24 for run in table.setting.runs)
    return (over if table.setting.single else "") + (
        "A moving average over a twelfth of the stream." if many else "One point for each batch."
    )


class Curve(NamedTuple):
    """A line of a figure."""

    x: NDArray[np.float64]  # images seen at the middle of each batch
    y: NDArray[np.float64]


def batch_accuracy(batch: BatchRecord) -> float | None:
    """The share of a batch that was predicted right."""
    return batch.correct / len(batch.predicted) if batch.labels and batch.predicted else None


def loss_term(name: str) -> Callable[[BatchRecord], float | None]:
    """A function that reads a loss term from a batch; values that are not finite are left out."""

    def read(batch: BatchRecord) -> float | None:
        value = batch.terms.get(name)
        return value if value is not None and np.isfinite(value) else None

    return read


def loss_terms(setting: Setting) -> list[str]:
    """The loss terms that occur, in the order of their first occurrence."""
    found = (name for run in setting.runs for batch in run.batches for name in batch.terms)
    return list(dict.fromkeys(found))


def curve(system: System, read: Callable[[BatchRecord], float | None]) -> Curve | None:
    """The mean over the system's runs, batch by batch, up to the end of the shortest run."""
    lines = []
    for run in system.runs:
        values = [read(batch) for batch in batches(run)]
        sizes = np.array([len(batch.predicted) for batch in batches(run)], np.float64)
        known = [value for value in values if value is not None]
        if known and len(known) == len(values):
            lines.append((np.cumsum(sizes) - sizes / 2, np.array(known, np.float64)))
    if not lines:
        return None
    shortest = min(len(y) for _, y in lines)
    mean = np.mean([y[:shortest] for _, y in lines], axis=0)
    return Curve(lines[0][0][:shortest], smooth(mean))


def smooth(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """A centred moving average; near the ends it is over the values that there are.

    >>> smooth(np.array([1.0, 2.0, 3.0])).tolist()
    [1.0, 2.0, 3.0]
    """
    width = max(1, len(values) // _POINTS) | 1  # odd
    kernel = np.ones(width)
    weights = np.convolve(np.ones(len(values)), kernel, "same")
    return np.asarray(np.convolve(values, kernel, "same") / weights, np.float64)


def boundaries(setting: Setting) -> list[tuple[float, Shift]]:
    """Where each domain of one continuing stream begins, in images."""
    if setting.single or not setting.runs:
        return []
    longest = max(setting.runs, key=lambda run: run.images)
    found: list[tuple[float, Shift]] = []
    seen = 0
    for batch in batches(longest):
        if not found or found[-1][1] != batch.shift:
            found.append((float(seen), batch.shift))
        seen += len(batch.predicted)
    return found
