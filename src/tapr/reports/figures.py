"""The paper's figures by name: accuracy against one setting, grids of two or three, bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tapr.records import Shift
from tapr.reports import titles
from tapr.reports.drawing import INK, Drawing, as_written, need, style
from tapr.reports.grids import At, Grid, Series, grids, words
from tapr.reports.results import Setting
from tapr.reports.tables import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = 4  # panels in a row
LOGARITHMIC = 50  # an axis is logarithmic when its largest value is this many times the smallest
APART = 0.08  # the share of a logarithmic axis that must lie between two numbers on it
CIRCLES = (450, 1700)  # areas of the worst and the best circle, in square points
_CONSISTENCIES = {
    "jensen_shannon": "consistency",
    "summed_kl": "summed divergences",
    "squared_error": "squared error",
}
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Kind(NamedTuple):
    """A figure by name: what varies in it and how it is drawn."""

    axes: tuple[str, ...]
    draw: Callable[[str, Grid], Drawing]
    named: bool = True  # whether systems with different labels are separate lines


class Found(NamedTuple):
    """A figure and its numbers."""

    drawing: Drawing
    grid: Grid


def find(name: str, settings: Sequence[Setting]) -> list[Found]:
    """The figure of this name, or of this setting, for each group of runs that can fill it."""
    kind = KINDS.get(name) or Kind((name,), lines)
    with style():
        return [
            Found(kind.draw(name, grid), grid) for grid in grids(settings, kind.axes, kind.named)
        ]


def lines(name: str, grid: Grid) -> Drawing:
    """Accuracy against one setting, a panel for each domain."""
    values = [at[0] for at in grid.places()]
    numbers = all(isinstance(value, int | float) for value in values)
    places = dict(zip(values, values if numbers else range(len(values)), strict=True))
    logarithmic = numbers and min(values) > 0 and max(values) >= LOGARITHMIC * min(values)
    figure, panels = _panels(grid.domains)
    for axes, domain in zip(panels, grid.domains, strict=True):
        if logarithmic:
            axes.set_xscale("log")
        for series in grid.series:
            _line(axes, series, domain, places)
        if domain in grid.levels:
            axes.axhline(100 * grid.levels[domain].value, **_LEVEL)
        ticks = _apart(values) if logarithmic else values
        axes.set_xticks([places[value] for value in ticks], [_written(value) for value in ticks])
        axes.minorticks_off()
        axes.set_xlabel(words(grid.axes[0]))
        axes.grid(axis="y")
    _common(figure, panels)
    return _drawing(name, grid, figure)


def circles(name: str, grid: Grid) -> Drawing:
    """Accuracy over two settings as circles; a third makes columns of panels."""
    places = grid.places()
    columns = sorted({at[2:] for at in places})
    pairs = [(d, column, one) for one in grid.series for d in grid.domains for column in columns]
    across = len(columns) if len(columns) > 1 else min(ACROSS, len(pairs))
    down = -(-len(pairs) // across)
    x, y = (sorted({at[axis] for at in places}) for axis in (0, 1))
    width, height = 0.75 * len(x) + 0.9, 0.75 * len(y) + 0.9
    figure = need("matplotlib.figure").Figure((across * width, down * height), layout="constrained")
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    for spare in panels[len(pairs) :]:
        spare.remove()
    for axes, (domain, column, series) in zip(panels, pairs, strict=False):
        _circles(axes, series.points.get(domain, {}), column, (x, y))
        third = [f"{words(k)}: {v}" for k, v in zip(grid.axes[2:], column, strict=True)]
        several = [as_written(series.label)] if len(grid.series) > 1 else []
        axes.set_title(", ".join([_domain(domain, grid.domains), *third, *several]), fontsize=9)
        axes.set(xlabel=words(grid.axes[0]), ylabel=words(grid.axes[1]))
    return _drawing(name, grid, figure)


def dots(name: str, grid: Grid) -> Drawing:
    """The terms of the loss, one below the other."""
    losses = list(dict.fromkeys(loss_title(at) for at in sorted(grid.places(), key=_loss_order)))
    figure, panels = _panels(grid.domains, 0.28 * len(losses) + 1.1)
    for axes, domain in zip(panels, grid.domains, strict=True):
        for series in grid.series:
            for at, found in series.points.get(domain, {}).items():
                place = len(losses) - 1 - losses.index(loss_title(at))
                axes.errorbar(100 * found.value, place, xerr=_reach([found]), **_DOT)
        if domain in grid.levels:
            axes.axvline(100 * grid.levels[domain].value, **_LEVEL)
        axes.set_yticks(range(len(losses)), list(reversed(losses)))
        axes.set_ylim(-0.6, len(losses) - 0.4)
        axes.set_xlabel("accuracy, %")
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
    for axes in panels[1:]:
        axes.set_yticklabels([])
    _legend(figure, panels)
    return _drawing(name, grid, figure)


def loss_title(at: At) -> str:
    """The name of a loss in words.

    >>> loss_title(("squared_error", 1.0, 0.0)), loss_title(("jensen_shannon", 1.0, 1.0))
    ('squared error alone', 'consistency and entropy')
    """
    consistency, weight, entropy = at
    parts = [(weight, _CONSISTENCIES.get(str(consistency), str(consistency))), (entropy, "entropy")]
    words = [text if part == 1 else f"{part:g} x {text}" for part, text in parts if part]
    return " and ".join(words) if len(words) != 1 else f"{words[0]} alone"


KINDS = {
    "steps": Kind(("steps",), lines),
    "lr": Kind(("lr",), lines),
    "batch-size": Kind(("batch_size",), lines),
    "loss": Kind(("consistency", "consistency_weight", "entropy_weight"), dots, named=False),
    "randaugment": Kind(("n", "m"), circles),
    "augmix": Kind(("severity", "depth", "width"), circles),
}
_LEVEL: dict[str, Any] = {
    "color": titles.UNADAPTED.colour,
    "linestyle": "--",
    "linewidth": 1.4,
    "label": titles.UNADAPTED.title,
}
_DOT: dict[str, Any] = {
    "fmt": "o",
    "color": titles.RANDAUGMENT.colour,
    "ecolor": INK,
    "elinewidth": 0.9,
    "markersize": 7,
}


def _panels(domains: list[Shift], height: float = 3.0) -> tuple[Figure, list[Axes]]:
    across = min(ACROSS, len(domains))
    down = -(-len(domains) // across)
    size = (max(4.6 * across, 5.0) if across < 3 else 3.2 * across, height * down)
    figure = need("matplotlib.figure").Figure(size, layout="constrained")
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    for spare in panels[len(domains) :]:
        spare.remove()
    for axes, domain in zip(panels, domains, strict=False):
        axes.set_title(_domain(domain, domains))
    return figure, panels[: len(domains)]


def _line(axes: Axes, series: Series, domain: Shift, places: dict[Any, Any]) -> None:
    points = sorted((places[at[0]], found) for at, found in series.points.get(domain, {}).items())
    if not points:
        return
    estimates = [found for _, found in points]
    axes.errorbar(
        [x for x, _ in points],
        [100 * found.value for found in estimates],
        yerr=_reach(estimates),
        color=series.look.colour,
        marker=series.look.marker,
        markersize=5,
        linewidth=1.8,
        elinewidth=0.8,
        label=as_written(series.label),
    )


def _circles(
    axes: Axes, points: dict[At, Estimate], column: At, ticks: tuple[list[Any], list[Any]]
) -> None:
    """One panel; size and brightness are relative to all circles of its domain and series."""
    values = [found.value for found in points.values()]
    low, high = min(values, default=0.0), max(values, default=1.0)
    shades = need("matplotlib").colormaps["cividis"]
    for at, found in points.items():
        if at[2:] != column:
            continue
        part = (found.value - low) / (high - low) if high > low else 1.0
        x, y = (ticks[axis].index(at[axis]) for axis in (0, 1))
        size = CIRCLES[0] + part * (CIRCLES[1] - CIRCLES[0])
        axes.scatter([x], [y], s=size, color=[shades(0.1 + 0.85 * part)], linewidths=0)
        ink = INK if part > 0.45 else "white"
        text = f"{100 * found.value:.1f}"
        axes.text(x, y, text, ha="center", va="center", fontsize=7.5, color=ink)
    for set_ticks, listed in zip((axes.set_xticks, axes.set_yticks), ticks, strict=True):
        set_ticks(range(len(listed)), [_written(value) for value in listed])
    axes.set(xlim=(-0.6, len(ticks[0]) - 0.4), ylim=(-0.6, len(ticks[1]) - 0.4))
    axes.tick_params(length=0)


def _common(figure: Figure, panels: Sequence[Axes]) -> None:
    for axes in panels[::ACROSS]:
        axes.set_ylabel("accuracy, %")
    _legend(figure, panels)


def _legend(figure: Figure, panels: Iterable[Axes]) -> None:
    found: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    if found:
        figure.legend(found.values(), found, loc="outside upper left", ncols=4)


def _drawing(name: str, grid: Grid, figure: Figure) -> Drawing:
    title = f"Accuracy against {titles.listed([words(axis) for axis in grid.axes])}"
    return Drawing(name, title, "With 95 % intervals. Higher is better.", figure)


def _reach(estimates: Sequence[Estimate]) -> Any:
    ends = np.array([[e.value - e.interval.low, e.interval.high - e.value] for e in estimates])
    return np.abs(100 * ends.T)


def _domain(domain: Shift, domains: Sequence[Shift]) -> str:
    several = len({other.severity for other in domains}) > 1
    return titles.long(domain) if several else titles.corruption(domain)


def _loss_order(at: At) -> tuple[bool, ...]:
    """The sort key of losses: those with a single term come first."""
    consistency, weight, entropy = at
    return (bool(weight and entropy), consistency != "jensen_shannon", not weight)


def _apart(values: Sequence[float]) -> list[float]:
    """The values, of an increasing sequence, whose labels do not overlap on a logarithmic axis.

    >>> _apart([1, 2, 4, 8, 16, 32, 64, 128, 200, 256, 512])
    [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    """
    kept = list(values[:1])
    for value in values[1:]:
        if np.log(value / kept[-1]) >= APART * np.log(values[-1] / values[0]):
            kept.append(value)
    return kept


def _written(value: object) -> str:
    """A value as the label of an axis.

    >>> _written(1e-6), _written(0.0005), _written(512), _written("blend")
    ('10⁻⁶', '0.0005', '512', 'blend')
    """
    if isinstance(value, float) and 0 < value < 1:
        power = round(float(np.log10(value)))
        if np.isclose(value, 10.0**power, rtol=1e-6, atol=0):
            return "10" + str(power).translate(_SUPERSCRIPTS)
    return f"{value:g}" if isinstance(value, float) else str(value)
