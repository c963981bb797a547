"""Checks of the augmentations' arguments."""

from tapr.errors import InputError

LONGEST = 100  # ops in a row, or chains side by side


def whole(name: str, value: int, least: int, most: int) -> int:
    """A whole number between two bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"expected {name} to be a whole number {least} to {most}, got {value!r}")
    return value


def between(name: str, value: float, least: float, most: float) -> float:
    """A number between two bounds."""
    if not least <= value <= most:
        raise InputError(f"expected {name} from {least:g} to {most:g}, got {value!r}")
    return float(value)


def positive(name: str, value: float) -> float:
    """A finite number above zero."""
    if not 0 < value < float("inf"):
        raise InputError(f"expected {name} > 0, got {value!r}")
    return float(value)
