"""Domains in order, as batches with reset marks."""

from tapr.streams import orders, protocols
from tapr.streams.domains import Domain, Origin, clean, corrupted, generated, published
from tapr.streams.orders import ORDERS
from tapr.streams.protocols import PROTOCOLS
from tapr.streams.stream import Stream

__all__ = [
    "ORDERS",
    "PROTOCOLS",
    "Domain",
    "Origin",
    "Stream",
    "clean",
    "corrupted",
    "generated",
    "orders",
    "protocols",
    "published",
]
