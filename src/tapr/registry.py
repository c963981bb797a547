"""Names to objects, with did-you-mean."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import TypeVar

from tapr.errors import UnknownNameError

T = TypeVar("T")


def suggest(name: object, known: Iterable[str]) -> str:
    """The tail of an error message: the nearest known name, or all of them.

    >>> suggest("tnet", ["tent", "pest"])
    "did you mean 'tent'?"
    >>> suggest("x", ["tent", "pest"])
    "expected one of 'pest', 'tent'"
    """
    known = sorted(known)
    near = get_close_matches(str(name).lower(), known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return "expected one of " + ", ".join(map(repr, known))


class Registry(Mapping[str, T]):
    """A read-only table of one family's names; a wrong name gets a helpful error.

    >>> Registry("colour", {"red": 1})["rde"]
    Traceback (most recent call last):
    tapr.errors.UnknownNameError: unknown colour 'rde'; did you mean 'red'?
    """

    def __init__(self, kind: str, entries: Mapping[str, T]) -> None:
        self.kind = kind
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> T:
        self.check(name)
        return self._entries[name]

    def check(self, name: object) -> None:
        """Refuse a name that is not in the table."""
        if not isinstance(name, str) or name not in self._entries:
            raise UnknownNameError(f"unknown {self.kind} {name!r}; {suggest(name, self._entries)}")

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
