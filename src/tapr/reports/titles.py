"""Titles, colours and headings for the methods and corruptions in records."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tapr.names import CORRUPTIONS
from tapr.records import Shift

CLEAN = ("clean before", "clean after")  # the clean images around a stream
_PLACES = {name: place for place, name in enumerate(["clean", CLEAN[0], *CORRUPTIONS, CLEAN[1]])}


class Look(NamedTuple):
    """The title, colour and marker of a method."""

    title: str  # in tables
    spoken: str  # in a sentence
    colour: str
    marker: str


class Known(NamedTuple):
    """The look of a method that differs from its defaults in exactly these options."""

    method: str
    options: Mapping[str, Any]
    look: Look


# In the order of a table's rows. The paper's figure gives four of the colours (its color1 .. color4
# are unadapted, Tent, AugMix, RandAugment); the rest complete the same colour-blind-safe palette.
KNOWN = (
    Known("source", {}, Look("unadapted", "the unadapted model", "#0173b2", "o")),
    Known(
        "norm",
        {},
        Look("norm", "re-estimating the batch-norm statistics alone", "#8a8a8a", "v"),
    ),
    Known("tent", {}, Look("Tent", "Tent", "#de8f05", "^")),
    Known(
        "pest",
        {"augmentation": "randaugment"},
        Look("PEST RandAugment", "PEST with RandAugment", "#d55e00", "s"),
    ),
    Known("pest", {}, Look("PEST AugMix", "PEST with AugMix", "#029e73", "D")),
    Known(
        "pest",
        {"lr": 0.0},
        Look("PEST gradient off", "PEST with its gradient off", "#cc78bc", "P"),
    ),
    Known("steady", {}, Look("steady", "steady", "#7a5195", "X")),
)
UNADAPTED, RANDAUGMENT = KNOWN[0].look, KNOWN[3].look
_SPARE = ("#56b4e9", "#ca9161", "#b5a400", "#fb8fd0", "#4d4d4d")
_MARKERS = ("*", "p", "h", "<", ">", "d")


class Named(NamedTuple):
    """The facts in a record from which the title of a method is made."""

    label: str  # its name in the spec
    method: str  # the method's own name
    title: str = ""  # the method's title for readers
    options: Mapping[str, Any] | None = None  # those that differ from the defaults; None: not known
    difference: str = ""  # how it differs from others with the same label, e.g. " (lr=0.1)"


def rank(named: Named) -> int:
    """The place of a method among the known ones; unknown methods come after them."""
    found = (place for place, known in enumerate(KNOWN) if _is(known, named))
    return next(found, len(KNOWN))


def looks(systems: Sequence[Named]) -> list[Look]:
    """A look for each system; one that is not known, or a second one, gets a spare colour.

    >>> known = Named("mine", "tent", options={})
    >>> other = known._replace(difference=" (lr=1)")
    >>> [look.title for look in looks([known, other, Named("a", "b")])]
    ['Tent', 'Tent (lr=1)', 'a']
    """
    found: list[Look] = []
    spare = 0
    for system in systems:
        look = next((known.look for known in KNOWN if _is(known, system)), None)
        own = system.label if system.label != system.method else system.title or system.method
        title, spoken, colour, marker = look or (own, own, "", "")
        if look is None or any(colour == other.colour for other in found):
            colour, marker = _SPARE[spare % len(_SPARE)], _MARKERS[spare % len(_MARKERS)]
            spare += 1
        found.append(Look(title + system.difference, spoken + system.difference, colour, marker))
    return [_distinct(look, system, found) for look, system in zip(found, systems, strict=True)]


def _is(known: Known, named: Named) -> bool:
    return known.method == named.method and known.options == named.options


def _distinct(look: Look, system: Named, others: Sequence[Look]) -> Look:
    """The look with the label added to its title, if another system has the same title."""
    if [other.title for other in others].count(look.title) < 2 or system.label in look.title:
        return look
    label = f" ({system.label})"
    return look._replace(title=look.title + label, spoken=look.spoken + label)


def place(domain: Shift) -> tuple[int, str, int]:
    """The sort key of domains in the standard order."""
    name = domain.corruption or domain.name
    return _PLACES.get(name, len(_PLACES)), name, domain.severity or 0


def corruption(domain: Shift) -> str:
    """The corruption of a domain in words, without the severity.

    >>> corruption(Shift("gaussian_noise-5", "gaussian_noise", 5)), corruption(Shift("clean"))
    ('gaussian noise', 'clean')
    """
    return (domain.corruption or domain.name).replace("_", " ")


def long(domain: Shift) -> str:
    """A domain in words.

    >>> long(Shift("gaussian_noise-5", "gaussian_noise", 5))
    'gaussian noise, severity 5'
    """
    return corruption(domain) + (f", severity {domain.severity}" if domain.severity else "")


def short(domain: Shift, severity: bool = False) -> str:
    """A domain as the heading of a narrow column, with its severity or without.

    >>> fog = Shift("fog-3", "fog", 3)
    >>> short(fog), short(fog, severity=True)
    ('fog', 'fog 3')
    """
    text = CORRUPTIONS.get(domain.corruption or "", corruption(domain))
    return f"{text} {domain.severity}" if severity and domain.severity else text


def listed(words: list[str]) -> str:
    """Words joined as a list within a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def count(number: object) -> str:
    """A whole number with commas between thousands; a question mark when it is not known.

    >>> count(10000), count(None)
    ('10,000', '?')
    """
    return f"{number:,}" if isinstance(number, int) else "?"
