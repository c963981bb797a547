"""The style of figures, and how a figure is written to a file or into a page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from tapr.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, FAINT = "#1f2328", "#8b949e"  # the page turns these into its own colours, light or dark
_PIXELS = 98  # pixels of the page per inch of a figure
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tapr",
    "font.size": 10,
    "axes.edgecolor": FAINT,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "grid.color": FAINT,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.8,
}


class Drawing(NamedTuple):
    """A figure, its file name and what it shows."""

    name: str
    title: str
    caption: str
    figure: Figure


def need(module: str) -> Any:
    """Import a module of the `report` extra, or raise an error that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(
            f"the page needs {package}, which is not installed: pip install 'torch-tapr[report]'"
        ) from error


def as_written(text: str) -> str:
    """Escape a text for matplotlib, so that a dollar sign does not begin a formula."""
    return text.replace("$", r"\$")


@contextmanager
def style() -> Iterator[None]:
    """Draw figures in the style of the page."""
    matplotlib = need("matplotlib")
    with matplotlib.rc_context(_STYLE):
        yield


def png(figure: Figure) -> bytes:
    """The figure as a PNG with a white background."""
    file = io.BytesIO()
    with style():
        figure.savefig(file, format="png", dpi=160, facecolor="white")
    return file.getvalue()


def svg(figure: Figure) -> str:
    """The figure as an SVG file with a white background; its text stays text."""
    file = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with style():
        figure.savefig(file, format="svg", facecolor="white", metadata=no_metadata)
    return file.getvalue()


def inline(drawing: Drawing, key: str) -> str:
    """The figure as an SVG element of a page.

    Its ids are unique on the page, its colours follow the page, and screen readers get its title.
    """
    text = svg(drawing.figure)
    text = text[text.index("<svg") :]
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{key}-{m[1]}"' if m[1] in used else "", text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{key}-", text)
    text = re.sub(r"fill: (?:#ffffff|white)", "fill: none", text, count=1)
    text = text.replace(INK, "currentColor").replace(FAINT, "var(--faint)")
    text = re.sub(r"(font: [\d.]+px) [^;\"]+", r"\1 var(--font)", text)
    opening = f'<svg role="img" aria-labelledby="{key}-title {key}-about"'
    named = f'<title id="{key}-title">{drawing.title}</title>'
    named += f'<desc id="{key}-about">{drawing.caption}</desc>'
    start, end = text.split(">", 1)
    start = re.sub(r' (?:width|height)="[\d.]+pt"', "", start).replace("<svg", opening, 1)
    width = round(drawing.figure.get_figwidth() * _PIXELS)
    start += f' style="width: {width}px; min-width: {width * 7 // 10}px"'
    return f"{start}>{named}{end}"
