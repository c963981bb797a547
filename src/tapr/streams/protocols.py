"""How domains follow each other: domains -> segments, within which the order is free."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from tapr.errors import InputError
from tapr.registry import Registry
from tapr.streams.domains import Domain


class Segment(NamedTuple):
    """Images that are put in order together; a batch never crosses into the next segment."""

    name: str
    domains: tuple[Domain, ...]
    reset: bool  # does it start from the source model


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


PROTOCOLS: Registry[Protocol] = Registry(
    "protocol", {"each": each, "continual": continual, "mixed": mixed, "gradual": gradual}
)
