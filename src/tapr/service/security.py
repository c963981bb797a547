"""Tokens and their scopes, rates, and where a request may come from.

A file of tokens has a line for each, `NAME SCOPES TOKEN`, e.g. `camera-1 predict 9f2c...`. Scopes
are separated by commas: `predict`, `watch` (see streams, events, metrics), `control` (change
streams; includes `watch`). Without tokens the server serves only its own machine: it listens on a
loopback address, and answers only to loopback names, so that no web page can reach it under a
domain name of its own (DNS rebinding). With or without tokens, it refuses a request that a browser
sends for a page of another site.
"""

import hashlib
import hmac
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tapr.errors import DataError, InputError

SCOPES = ("predict", "watch", "control")
LEAST = 16  # the least number of letters of a token
REMEMBERED = 10_000  # the most callers whose rate is counted
BURST = 2.0  # requests that may come at once, in seconds of the allowed rate


class Caller(NamedTuple):
    """The sender of a request, and the scopes that it has."""

    name: str
    scopes: frozenset[str]


EVERYONE = frozenset(SCOPES)


class Tokens:
    """The tokens of a server, kept as hashes."""

    def __init__(self, path: Path | None) -> None:
        self._known: list[tuple[bytes, Caller]] = [] if path is None else _read(path)
        self.off = path is None

    def caller(self, authorization: str | None, address: str) -> Caller | None:
        """The caller with this Authorization header; None when its token is not known."""
        if self.off:
            return Caller(address, EVERYONE)
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        given, found = _hash(token.strip()), None
        for digest, caller in self._known:  # compare with all, so that the time reveals nothing
            if hmac.compare_digest(given, digest):
                found = caller
        return found


class Rates:
    """A token bucket for each caller: `rate` requests per second, some of them at once."""

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._most = max(1.0, rate * BURST)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, name: str) -> int:
        """Count a request; 0 if it is allowed, else the seconds until the next one is."""
        if not self.rate:
            return 0
        now = self.clock()
        left, when = self._left.pop(name, (self._most, now))
        left = min(self._most, left + (now - when) * self.rate)
        self._left[name] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > REMEMBERED:
            self._left.popitem(last=False)
        return 0 if left >= 1 else math.ceil((1 - left) / self.rate)


def is_loopback(host: str) -> bool:
    """Whether this is a name or address of the machine itself.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "10.0.0.1")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(host: str, tokens: Path | None) -> None:
    """Refuse to serve other machines without tokens."""
    if tokens is None and not is_loopback(host):
        raise InputError(
            f"expected --tokens with --host {host}, which other machines can reach; without tokens"
            " the server listens on 127.0.0.1 only"
        )


def refusal(headers: Mapping[str, str], *, open_to_all: bool) -> str | None:
    """Why a request with these headers is refused because of its origin; None if it is allowed."""
    host = headers.get("host", "")
    if open_to_all:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            name = ""
        if not is_loopback(name):
            return "expected a loopback name in the Host header, since the server has no tokens"
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        return "expected a request of this server's own pages, got one of another site's"
    if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return "expected a request of this server's own pages, got one of another site's"
    return None


HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _read(path: Path) -> list[tuple[bytes, Caller]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read the tokens in {path}: {error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = line.split()
        if len(parts) != 3:
            raise DataError(f"{path}, line {number}: expected NAME SCOPES TOKEN")
        name, scopes, token = parts[0], frozenset(parts[1].split(",")), parts[2]
        if not scopes <= EVERYONE:
            raise DataError(
                f"{path}, line {number}: expected scopes among {', '.join(SCOPES)}, got {parts[1]}"
            )
        if len(token) < LEAST:
            raise DataError(f"{path}, line {number}: expected a token of {LEAST} letters or more")
        if "control" in scopes:
            scopes |= {"watch"}
        found.append((_hash(token), Caller(name, scopes)))
    if not found:
        raise DataError(f"expected tokens in {path}, found none")
    return found
