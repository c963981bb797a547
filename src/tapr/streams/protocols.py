"""How domains follow each other: domains -> segments, within which the order is free."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from tapr.errors import InputError
from tapr.registry import Registry
from tapr.streams.domains import Domain


class Segment(NamedTuple):
    """Images that are put in order together; a batch never crosses into the next segment."""

    name: str
    domains: tuple[Domain, ...]
    reset: bool  # does it start from the source model
    alternates: bool = False  # does it take turns with its neighbours, batch by batch


Protocol: TypeAlias = Callable[[Sequence[Domain]], list[Segment]]


def each(domains: Sequence[Domain]) -> list[Segment]:
    """Each domain on its own, from the source model: the paper's protocol."""
    return [Segment(domain.name, (domain,), True) for domain in domains]


def continual(domains: Sequence[Domain]) -> list[Segment]:
    """One domain after another; only the first starts from the source model."""
    return [Segment(domain.name, (domain,), place == 0) for place, domain in enumerate(domains)]


def mixed(domains: Sequence[Domain]) -> list[Segment]:
    """All domains at once: every batch may hold images of any of them."""
    return [Segment("mixed", tuple(domains), True)]


def gradual(domains: Sequence[Domain]) -> list[Segment]:
    """Corruption by corruption, its severities up and down again; no reset but the first."""
    groups: dict[str | None, list[Domain]] = {}
    for domain in domains:
        groups.setdefault(domain.corruption, []).append(domain)
    path: list[Domain] = []
    for corruption, group in groups.items():
        rising = sorted(group, key=lambda domain: domain.severity or 0)
        if len(rising) < 2:
            raise InputError(
                f"a gradual stream needs several severities, got only {group[0].name!r}"
                + ("" if corruption else ", which has none")
            )
        path += rising + rising[-2::-1]
    return continual(path)


def alternating(domains: Sequence[Domain]) -> list[Segment]:
    """A batch of each domain in turn; only the first starts from the source model."""
    return [segment._replace(alternates=True) for segment in continual(domains)]


PROTOCOLS: Registry[Protocol] = Registry(
    "protocol",
    {
        "each": each,
        "continual": continual,
        "mixed": mixed,
        "gradual": gradual,
        "alternating": alternating,
    },
)
BEFORE, AFTER = "clean before", "clean after"


def made(
    name: str, *, rounds: int = 1, clean: Domain | None = None, blank: Domain | None = None
) -> Protocol:
    """The protocol of this name; its stream is repeated `rounds` times, between clean images.

    Blank images (`blank`) come before all others. Only the very first segment starts from the
    source model. `each` allows none of this: there every domain is a stream of its own.
    """
    protocol = PROTOCOLS[name]
    if rounds < 1:
        raise InputError(f"expected at least 1 round, got {rounds}")
    if rounds == 1 and clean is None and blank is None:
        return protocol
    if name == "each":
        what = "clean images before and after" if clean else "blank images before"
        what = "several rounds" if rounds > 1 else what
        raise InputError(f"{what} need one stream of all domains, got the protocol 'each'")
    return partial(_around, protocol, rounds, clean, blank)


def _around(
    protocol: Protocol,
    rounds: int,
    clean: Domain | None,
    blank: Domain | None,
    domains: Sequence[Domain],
) -> list[Segment]:
    segments = protocol(domains) * rounds
    if clean is not None:
        ends = [Segment(name, (clean,), False) for name in (BEFORE, AFTER)]
        segments = [ends[0], *segments, ends[1]]
    if blank is not None:
        segments = [Segment(blank.name, (blank,), False), *segments]
    return [segment._replace(reset=place == 0) for place, segment in enumerate(segments)]
