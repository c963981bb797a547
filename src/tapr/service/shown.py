"""Streams as they are shown: in lists, in detail, on the dashboard."""

import base64
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tapr.service.report import Report
from tapr.service.seen import agreement
from tapr.service.streams import Stream

if TYPE_CHECKING:
    from tapr.service.server import Service

SHOWN = 200  # the most streams on the dashboard; the most recently used ones
CLASSES = 20


def row(found: Stream, now: float) -> dict[str, Any]:
    """A stream as a row of a list."""
    return {
        "stream": found.name,
        "images": found.about.images,
        "batches": found.about.batches,
        "created": found.about.created,
        "frozen": found.about.frozen,
        "health": {key: getattr(found.health, key) for key in ("verdict", "reason", "action")},
        "in_memory": found.in_memory,
        "saved": found.saved,
        "bytes": found.own,
        "confidence": found.seen.confidence,
        "agreement": agreement(found.health),
        "idle": round(now - found.used, 3) if found.used else None,  # seconds; None: not used yet
    }


def detail(found: Stream, now: float, names: Sequence[str]) -> dict[str, Any]:
    """A stream with its recent past."""
    seen = found.seen
    counts = list(seen.counts().items())
    return {
        **row(found, now),
        "health": found.health._asdict(),
        "classes": [
            {"number": place, "name": _called(place, names), "images": images}
            for place, images in counts[:CLASSES]
        ],
        "shift": list(seen.shift),
        "curve": [list(point) for point in list(seen.curve)],
        "acts": list(seen.acts)[::-1],
        "pictures": [
            {
                "png": base64.b64encode(each.png).decode(),
                "before": _called(each.before, names),
                "after": _called(each.after, names),
            }
            for each in list(seen.pictures)[::-1]
        ],
    }


def recent(report: Report) -> list[dict[str, Any]]:
    """The streams that the dashboard lists, the most recently used first."""

    def when(row: dict[str, Any]) -> tuple[float, str]:
        return (math.inf if row["idle"] is None else row["idle"], row["stream"])

    return sorted(report.streams, key=when)[:SHOWN]


def overview(
    service: "Service", report: Report, rows: list[dict[str, Any]], detail: dict[str, Any] | None
) -> dict[str, Any]:
    """The content of the dashboard: the server, recent streams, and one stream in detail."""
    return {
        "time": time.time(),
        "server": {
            "streams": len(report.streams),
            "in_memory": report.in_memory,
            "state_bytes": report.state_bytes,
            "queue": report.waiting,
            "images": dict(report.images),
            "refused": report.refused,
            "unhealthy": len(report.streams) - report.verdicts()["ok"],
            **service.rates(report),
        },
        "streams": rows,
        "detail": detail,
    }


def _called(place: int, names: Sequence[str]) -> str:
    return names[place] if names else f"class {place}"
