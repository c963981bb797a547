"""What is shown of streams: in lists, in detail, on the dashboard."""

import base64
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tapr.service.metrics import state_bytes
from tapr.service.seen import agreement
from tapr.service.streams import Stream

if TYPE_CHECKING:
    from tapr.service.server import Service

SHOWN = 200  # streams on the dashboard, the most recently used first
CLASSES = 20


def stream(found: Stream) -> dict[str, Any]:
    """A stream in a list."""
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
    }


def detail(found: Stream, names: Sequence[str]) -> dict[str, Any]:
    """A stream with its recent past."""
    seen = found.seen
    counts = list(seen.counts().items())
    return {
        **stream(found),
        "health": found.health._asdict(),
        "classes": [
            {"number": place, "name": _called(place, names), "images": images}
            for place, images in counts[:CLASSES]
        ],
        "shift": list(seen.shift),
        "curve": [list(point) for point in list(seen.curve)],
        "acts": list(seen.acts)[::-1],
    }


def overview(service: "Service", name: str | None) -> dict[str, Any]:
    """All that the dashboard shows, of the server and of one stream."""
    engine = service.engine
    every = sorted(engine.streams.all.values(), key=lambda each: (-each.used, each.name))
    chosen = engine.streams.all.get(name or "") or next(iter(every), None)
    content = {
        "time": time.time(),
        "server": {
            "streams": len(every),
            "in_memory": sum(each.in_memory for each in every),
            "state_bytes": state_bytes(engine),
            "queue": engine.waiting,
            "images": dict(engine.images),
            "refused": engine.refused,
            "unhealthy": sum(each.health.verdict != "ok" for each in every),
            **service.rates(),
        },
        "streams": [stream(each) for each in every[:SHOWN]],
        "detail": None,
    }
    if chosen is not None:
        pictures = [
            {
                "png": base64.b64encode(each.png).decode(),
                "before": _called(each.before, service.names),
                "after": _called(each.after, service.names),
            }
            for each in list(chosen.seen.pictures)[::-1]
        ]
        content["detail"] = {**detail(chosen, service.names), "pictures": pictures}
    return content


def _called(place: int, names: Sequence[str]) -> str:
    return names[place] if names else f"class {place}"
