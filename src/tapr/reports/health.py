"""Health along a stream as a strip of bars: the guard's verdict on each part, and what it did.

The height of a bar shows the verdict, and a sign above it shows what the guard did, so that a
reader does not need colour. The text beside the strip says the same in words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tapr.records import BatchRecord, RunRecord
from tapr.reports import titles
from tapr.reports.results import Setting, batches

MOST = 60  # the most bars of a strip
HEIGHTS = {"ok": 4, "watch": 11, "harm": 20}  # the height of a bar by verdict
SIGNS = {"answered": "•", "unlearnt": "▾", "restarted": "✕"}  # the mildest action first
DID = {
    "answered": "the safer answer was given",
    "unlearnt": "the safer answer was given and nothing was learnt",
    "restarted": "the adaptation was restarted",
}


class Part(NamedTuple):
    """Some batches in a row: the worst verdict among them, and the strongest action."""

    first: int  # the number of its first image along the stream, from 1
    last: int
    verdict: str  # "" where nothing was compared
    action: str  # "" for none
    reason: str


def strips(setting: Setting) -> dict[str, Any] | None:
    """The strips of the page, one per run with a verdict other than ok; None without health."""
    rows, well = [], 0
    looks = titles.looks([system.named for system in setting.systems])
    for system, look in zip(setting.systems, looks, strict=True):
        for run in system.runs:
            told = [batch for batch in batches(run) if batch.health]
            if not told:
                continue
            if all(_told(batch, "verdict") == "ok" for batch in told):
                well += 1
                continue
            name = titles.long if len(run.shifts) == 1 else titles.corruption
            stream = ", ".join(map(name, run.shifts[:3]))
            more = f" and {len(run.shifts) - 3} more" if len(run.shifts) > 3 else ""
            seed = f", seed {run.seed}" if len(system.seeds) > 1 else ""
            rows.append(
                {
                    "title": look.title,
                    "colour": look.colour,
                    "stream": stream + more + seed,
                    "bars": [_bar(part, place) for place, part in enumerate(parts(run))],
                    "words": words(told),
                }
            )
    return {"rows": rows, "well": well, "width": MOST * 6} if rows or well else None


def parts(run: RunRecord) -> Iterator[Part]:
    """The stream in at most `MOST` parts of equally many batches."""
    along = batches(run)
    ends = np.cumsum([len(batch.predicted) for batch in along])
    for places in np.array_split(np.arange(len(along)), min(MOST, len(along)) or 1):
        if len(places):
            some = [along[place] for place in places]
            worst = max(some, key=lambda batch: _place(HEIGHTS, _told(batch, "verdict")))
            furthest = max(some, key=lambda batch: _place(SIGNS, _told(batch, "action")))
            yield Part(
                first=int(ends[places[0]]) - len(some[0].predicted) + 1,
                last=int(ends[places[-1]]),
                verdict=_told(worst, "verdict"),
                action=_told(furthest, "action"),
                reason=_told(worst, "reason"),
            )


def words(told: Sequence[BatchRecord]) -> list[str]:
    """The strip in sentences: how many batches had which verdict, why, and what the guard did."""
    verdicts = Counter(_told(batch, "verdict") for batch in told)
    counts = [f"{verdicts[name]} {name}" for name in HEIGHTS if verdicts[name]]
    found = [f"Of {len(told)} batches compared: {', '.join(counts)}."]
    reasons = Counter(_told(batch, "reason").partition(":")[2].strip() for batch in told)
    often = [reason for reason, _ in reasons.most_common() if reason][:1]
    found += [f"Mostly: {reason}." for reason in often]
    actions = Counter(_told(batch, "action") for batch in told)
    return [
        *found,
        *(f"In {actions[name]}, {text}." for name, text in DID.items() if actions[name]),
    ]


def _bar(part: Part, place: int) -> dict[str, Any]:
    did = DID.get(part.action, "nothing was done")
    why = f": {part.reason}" if part.reason else ""
    return {
        "x": 6 * place,
        "height": HEIGHTS.get(part.verdict, 0),
        "kind": part.verdict,
        "sign": SIGNS.get(part.action, ""),
        "about": f"images {part.first:,} to {part.last:,}: {part.verdict or 'not compared'}{why};"
        f" {did}",
    }


def _told(batch: BatchRecord, key: str) -> str:
    return str((batch.health or {}).get(key, ""))


def _place(table: Mapping[str, object], key: str) -> int:
    return [*table].index(key) if key in table else -1
