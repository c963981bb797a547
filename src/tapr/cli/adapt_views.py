"""The summary of `tapr adapt` as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tapr.runs.summary import Summary

SHOWN = 20  # classes
WIDTH = 30  # of the longest bar


def text(summary: Summary) -> str:
    """The summary as lines: the numbers, a bar for each class, then the warnings."""
    return "\n".join([*_numbers(summary), "", *_bars(summary), *_warnings(summary)])


def _numbers(summary: Summary) -> Iterator[str]:
    failed = f", {summary.failed:,} could not be read or predicted" if summary.failed else ""
    yield f"{summary.images:,} images predicted{failed}"
    if summary.changed is not None:
        share = summary.changed / max(summary.images, 1)
        yield f"changed against the unadapted model  {summary.changed:,} ({share:.1%})"
    if summary.agreement is not None:
        start, end = summary.agreement
        yield f"agreement with it, start and end     {start:.1%} -> {end:.1%} of the images"
    if summary.accuracy is not None:
        known = f"accuracy where the class is known    {_pair(summary.accuracy, '.1%')}"
        yield f"{known} of {summary.known:,} images"
    yield f"mean confidence                      {_pair(summary.confidence, '.3f')}"
    most = f"nats (at most {summary.most_entropy:.3f})"
    yield f"mean entropy                         {_pair(summary.entropy, '.3f')} {most}"


def _pair(values: tuple[float | None, float], form: str) -> str:
    before, after = values
    return format(after, form) if before is None else f"{before:{form}} -> {after:{form}}"


def _bars(summary: Summary) -> Iterator[str]:
    """The classes, the most frequent first."""
    classes = [(name, before, after or 0) for name, before, after in summary.classes]
    ranked = sorted(classes, key=lambda entry: -entry[2])
    shown = [entry for entry in ranked[:SHOWN] if entry[1] or entry[2]]
    wide = max([len(name) for name, _, _ in shown], default=0)
    most = max([max(before or 0, after) for _, before, after in shown], default=1)
    for name, before, after in shown:
        was = "" if before is None else f"{before:>8,} ->"
        yield f"{name:{wide}}{was}{after:>8,}  {'#' * round(WIDTH * after / most)}"
    if len(ranked) > len(shown):
        rest = sum(after for _, _, after in ranked[len(shown) :])
        yield f"and {len(ranked) - len(shown)} more classes with {rest:,} images"


def _warnings(summary: Summary) -> Iterator[str]:
    if summary.warnings:
        yield ""
        yield from (f"WARNING  {sentence}" for sentence in summary.warnings)
