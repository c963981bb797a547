"""Where `tapr bench --log` hands every batch on to: a tool of your choice, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

from tapr.errors import InputError
from tapr.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tapr.records import BatchRecord
    from tapr.runs.bench import Cell


class Logger(Protocol):
    """Logs the batches of a benchmark's cells."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def observer(self, cell: Cell) -> Callable[[object, BatchRecord], None]:
        """What `evaluate` calls with each prediction and its record while the cell runs."""


class TensorBoard:
    """Writes scalars into OUT/tensorboard, a run of TensorBoard for each cell."""

    def __init__(self, out: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError(
                "--log tensorboard needs the package tensorboard, which is not installed:"
                " pip install tensorboard"
            ) from error
        self._folder = out / "tensorboard"
        self._make: Callable[..., Any] = SummaryWriter
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def observer(self, cell: Cell) -> Callable[[object, BatchRecord], None]:
        """Write the scalars of each batch of the cell at its number along the stream."""
        self._close()
        folder = self._folder / cell.file.removesuffix(".jsonl")

        def write(prediction: object, record: BatchRecord) -> None:
            if self._writer is None:  # a resumed run replaces what it does again
                self._writer = self._make(str(folder), purge_step=record.number)
            for name, value in scalars(record).items():
                self._writer.add_scalar(name, value, record.number)

        return write

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None


def scalars(record: BatchRecord) -> dict[str, float]:
    """The numbers of a batch that are worth a curve."""
    images = max(len(record.predicted), 1)
    found: dict[str, float | None] = {
        "accuracy": record.correct / images if record.labels else None,
        "confidence": sum(row[0] for row in record.probabilities) / images
        if record.probabilities
        else None,
        "log_likelihood": sum(record.log_likelihoods) / images if record.log_likelihoods else None,
        "loss": record.loss,
        **{f"loss/{name}": value for name, value in record.terms.items()},
        "steps": record.steps,
        "kept": record.kept / images,
        "refused": record.refused,
        "images_per_second": images / record.seconds if record.seconds else None,
    }
    return {name: value for name, value in found.items() if value is not None}


LOGGERS: Registry[Callable[[Path], Logger]] = Registry("logger", {"tensorboard": TensorBoard})
