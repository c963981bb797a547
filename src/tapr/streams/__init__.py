"""Domains in order, as batches with reset marks."""

from tapr.streams import orders, protocols
from tapr.streams.domains import (
    BLANKS,
    Domain,
    Origin,
    blank,
    clean,
    corrupted,
    generated,
    published,
)
from tapr.streams.orders import ORDERS
from tapr.streams.protocols import PROTOCOLS
from tapr.streams.stream import Stream

__all__ = [
    "BLANKS",
    "ORDERS",
    "PROTOCOLS",
    "Domain",
    "Origin",
    "Stream",
    "blank",
    "clean",
    "corrupted",
    "generated",
    "orders",
    "protocols",
    "published",
]
