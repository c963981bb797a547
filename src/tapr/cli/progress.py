"""How the command shows long work: a bar on a terminal, plain lines otherwise."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

_QUARTERS = 4


class Lines:
    """Shows notes as lines, and progress as a line at each quarter."""

    def __init__(self, title: str, console: Console) -> None:
        self._title = title
        self._console = console
        self._shown = 0

    def note(self, text: str) -> None:
        """Print a note as a line."""
        self._shown = 0
        self._print(text)

    def progress(self, done: int, total: int | None) -> None:
        """Print a line when a quarter of something long is done."""
        quarter = done * _QUARTERS // total if total else 0
        if quarter != self._shown and total and total >= 1000:
            self._shown = quarter
            self._print(f"{self._title}: {quarter * 100 // _QUARTERS} %")

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Bar(Lines):
    """Shows notes as lines above a progress bar."""

    def __init__(self, title: str, bars: Progress) -> None:
        super().__init__(title, bars.console)
        self._bars = bars
        self._task = bars.add_task(title, total=None)

    def progress(self, done: int, total: int | None) -> None:
        """Move the bar; without a total it only shows that something is going on."""
        self._bars.update(self._task, completed=done, total=total)


@contextmanager
def watching(title: str) -> Iterator[Lines]:
    """Show the progress of something long; a bar goes away when it is done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(title, console)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        yield Bar(title, bars)
