"""Words and colours for what records name: corruptions, methods, data."""

from typing import NamedTuple

# Hendrycks & Dietterich's order; the paper's mean is over these fifteen.
STANDARD = {
    "gaussian_noise": "gauss.",
    "shot_noise": "shot",
    "impulse_noise": "impulse",
    "defocus_blur": "defocus",
    "glass_blur": "glass",
    "motion_blur": "motion",
    "zoom_blur": "zoom",
    "snow": "snow",
    "frost": "frost",
    "fog": "fog",
    "brightness": "bright.",
    "contrast": "contrast",
    "elastic_transform": "elastic",
    "pixelate": "pixelate",
    "jpeg_compression": "jpeg",
}
EXTRA = {
    "speckle_noise": "speckle",
    "gaussian_blur": "g. blur",
    "spatter": "spatter",
    "saturate": "saturate",
}
_SHORT = {**STANDARD, **EXTRA}
_PLACES = {name: place for place, name in enumerate(["clean", *STANDARD, *EXTRA])}

SEVERITIES = ("1", "2", "3", "4", "5")
DATA = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "cifar10c": "CIFAR-10-C",
    "cifar100c": "CIFAR-100-C",
    "visda": "VisDA-C",
    "digits": "scikit-learn's digits",
    "mnist": "MNIST",
    "usps": "USPS",
}


class Look(NamedTuple):
    """How a method is called and drawn."""

    title: str  # in tables
    spoken: str  # in a sentence
    colour: str
    marker: str


# The paper's figure gives the first four colours (its color1 .. color4); the rest complete the
# same colour-blind-safe palette.
LOOKS = {
    "source": Look("unadapted", "the unadapted model", "#0173b2", "o"),
    "tent": Look("Tent", "Tent", "#de8f05", "^"),
    "pest-augmix": Look("PEST AugMix", "PEST with AugMix", "#029e73", "D"),
    "pest-randaugment": Look("PEST RandAugment", "PEST with RandAugment", "#d55e00", "s"),
    "norm": Look("norm", "re-estimating the batch-norm statistics alone", "#8a8a8a", "v"),
    "pest-control": Look("PEST gradient off", "PEST with its gradient off", "#cc78bc", "P"),
}
ORDER = ("source", "norm", "tent", "pest-randaugment", "pest-augmix", "pest-control")
_SPARE = ("#56b4e9", "#ca9161", "#b5a400", "#7a5195", "#4d4d4d")
_MARKERS = ("X", "*", "p", "h", "<", ">")


def looks(labels: list[tuple[str, str]]) -> list[Look]:
    """A look for each (method, label); those that are not known, or twice there, get spare ones.

    >>> [look.title for look in looks([("tent", "tent"), ("tent", "tent (lr=1)")])]
    ['Tent', 'Tent (lr=1)']
    """
    found: list[Look] = []
    spare = 0
    for method, label in labels:
        known = LOOKS.get(method)
        extra = label.removeprefix(method)
        title, spoken = (known.title, known.spoken) if known else (method, method)
        colour, marker = (known.colour, known.marker) if known else ("", "")
        if known is None or any(colour == other.colour for other in found):
            colour, marker = _SPARE[spare % len(_SPARE)], _MARKERS[spare % len(_MARKERS)]
            spare += 1
        found.append(Look(title + extra, spoken + extra, colour, marker))
    return found


def split(domain: str) -> tuple[str, int | None]:
    """A domain's corruption and severity.

    >>> split("fog-5"), split("clean"), split("mnist-10")
    (('fog', 5), ('clean', None), ('mnist-10', None))
    """
    name, _, severity = domain.rpartition("-")
    return (name, int(severity)) if name and severity in SEVERITIES else (domain, None)


def place(domain: str) -> tuple[int, str, int]:
    """Sorts domains into the standard order."""
    name, severity = split(domain)
    return _PLACES.get(name, len(_PLACES)), name, severity or 0


def long(domain: str) -> str:
    """A domain in words.

    >>> long("gaussian_noise-5")
    'gaussian noise, severity 5'
    """
    name, severity = split(domain)
    return name.replace("_", " ") + (f", severity {severity}" if severity else "")


def short(domain: str, severity: bool = False) -> str:
    """A domain as the heading of a narrow column, with its severity or without.

    >>> short("gaussian_noise-5"), short("fog-3", severity=True)
    ('gauss.', 'fog 3')
    """
    name, level = split(domain)
    text = _SHORT.get(name, name.replace("_", " "))
    return f"{text} {level}" if severity and level else text


def listed(words: list[str]) -> str:
    """Words as a sentence lists them.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def count(number: object) -> str:
    """A whole number with its thousands apart; a question mark when it is not known.

    >>> count(10000), count(None)
    ('10,000', '?')
    """
    return f"{number:,}" if isinstance(number, int) else "?"
