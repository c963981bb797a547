"""What a run writes down: one JSON line for its beginning, one for each batch, one for its end.

A run is one method on one stream with one seed. Its file only ever grows, so that a kill loses at
most the batch in flight; a line that cannot be read is reported and the rest is still there. A file
of an older format is brought to the present one while it is read (`older_records`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from tapr import older_records
from tapr.errors import DataError, expectation

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "tapr-run-2"
__all__ = ["BatchRecord", "Records", "RunRecord", "Shift", "load", "read"]
Rows = Literal["images", "batches", "runs"]
TOP = 5  # classes of each image that a record keeps
Index = Annotated[int, Field(ge=0, lt=2**63)]  # the number of an image, or of a class
_CORE = ("number", "images", "predicted")  # without these a line says nothing about a batch


@dataclass(frozen=True)
class Shift:
    """What happened to a domain's images: a corruption and its severity, or nothing."""

    name: str  # e.g. "fog-5", "clean", or "mixed" for a batch of several domains
    corruption: str | None = None
    severity: int | None = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class BatchRecord:
    """What happened to one batch; a field that an older file lacks has its default."""

    number: int = 0  # 0, 1, ... along the stream
    domain: str = ""  # e.g. "fog-5"
    corruption: str | None = None  # None for clean images, and when a batch mixes several
    severity: int | None = None
    images: list[Index] = field(default_factory=list)  # [B] their numbers in the data set
    labels: list[Index] | None = None  # [B]
    predicted: list[Index] = field(default_factory=list)  # [B]
    top: list[list[Index]] = field(default_factory=list)  # [B, 5] the likeliest classes, best first
    probabilities: list[list[float]] = field(default_factory=list)  # [B, 5] of these classes
    log_likelihoods: list[float] | None = None  # [B] of the true classes
    squares: list[float] | None = None  # [B] the sum over all classes of squared probabilities
    loss: float | None = None
    terms: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    kept: int = 0
    refused: int = 0
    forward: int = 0  # images through the model
    backward: int = 0
    shadow: int = 0  # images through the source model, for the health
    health: dict[str, Any] | None = None  # see tapr.types.Health; None: not looked at
    seconds: float = 0.0  # of adapting and predicting, without reading or corrupting

    @property
    def shift(self) -> Shift:
        """The domain that the batch comes from."""
        return Shift(self.domain, self.corruption, self.severity)

    @property
    def correct(self) -> int:
        """The number of images predicted right."""
        return sum(a == b for a, b in zip(self.predicted, self.labels or [], strict=False))


class _Domain(TypedDict, total=False):
    name: str
    corruption: str | None
    severity: int | None


class _Origin(TypedDict, total=False):
    dataset: str
    made: str  # "clean", "generated" or "published"
    seed: int | None  # of generated corruptions


class _Setting(TypedDict, total=False):
    data: str | None
    split: str | None
    images: int | None
    protocol: str | None
    order: str | None
    batch_size: int | None
    model: str | None
    model_hash: str | None
    severities: list[int]
    domains: list[str]  # of a stream of several
    origin: _Origin


class _Recipe(TypedDict, total=False):
    method: str
    augmentation_options: dict[str, Any] | None


for _open in (_Setting, _Recipe):  # further keys are fields of the spec, and options
    _open.__pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[union-attr]


class CellFacts(TypedDict, total=False):
    """What a run's first line says about it."""

    spec: str  # the name of the spec
    label: str  # what the spec calls the method
    method: str  # the method's own name
    title: str  # the method's name for people
    options: dict[str, Any] | None  # those that are not the method's defaults; None: not known
    statistics: str  # whose batch-norm statistics predict
    adapts: bool  # False for the unadapted baseline
    recipe: _Recipe  # every effective option
    views: str
    seed: int
    device: str
    setting: _Setting  # everything that must be equal for numbers to stand in one table
    origin: _Origin
    domains: list[_Domain]
    classes: list[str]


class _Environment(TypedDict, total=False):
    began: str


class _End(TypedDict, total=False):
    peak_mib: float | None
    ended: str


@dataclass(frozen=True)
class RunRecord:
    """A run as far as it has come."""

    cell: Mapping[str, Any]  # see CellFacts
    environment: Mapping[str, Any]  # versions, commit, machine, when it began
    batches: list[BatchRecord] = field(default_factory=list)
    end: Mapping[str, Any] | None = None  # peak memory, when it ended; None while unfinished

    @property
    def method(self) -> str:
        """The method's own name."""
        return str(self.cell.get("method", "?"))

    @property
    def label(self) -> str:
        """What the spec calls the method."""
        return str(self.cell.get("label") or self.method)

    @property
    def recipe(self) -> dict[str, Any]:
        """Every option of the method but the seed."""
        recipe = self.cell.get("recipe") or {}
        return {key: value for key, value in recipe.items() if key != "seed"}

    @property
    def seed(self) -> int:
        """The seed of the method's views and of the stream's order."""
        return int(self.cell.get("seed", 0))

    @property
    def adapts(self) -> bool:
        """False for the unadapted baseline."""
        return bool(self.cell.get("adapts", True))

    @property
    def setting(self) -> dict[str, Any]:
        """What must be equal for numbers to stand in one table, without what is None."""
        setting = self.cell.get("setting") or {}
        return {key: value for key, value in setting.items() if value is not None}

    @property
    def shifts(self) -> list[Shift]:
        """The domains of the run's stream, in order."""
        return [Shift(**{"name": "?", **domain}) for domain in self.cell.get("domains") or ()]

    @property
    def images(self) -> int:
        """The number of images predicted so far."""
        return sum(len(batch.predicted) for batch in self.batches)

    @property
    def accuracy(self) -> float | None:
        """The share predicted right so far; None without labels or images."""
        known = [batch for batch in self.batches if batch.labels is not None]
        total = sum(len(batch.predicted) for batch in known)
        return sum(batch.correct for batch in known) / total if total else None

    @property
    def seconds(self) -> float:
        """The time spent adapting and predicting."""
        return sum(batch.seconds for batch in self.batches)


@dataclass(frozen=True)
class Records:
    """Runs that were read, and a sentence for everything in their files that is unreadable."""

    runs: list[RunRecord]
    problems: list[str] = field(default_factory=list)

    def to_pandas(self, rows: Rows = "images") -> pd.DataFrame:
        """A table with a row for each image, each batch or each run; needs `torch-tapr[tables]`."""
        from tapr import frames

        return frames.frame(self.runs, rows)

    def to_parquet(self, path: Path | str, rows: Rows = "images") -> None:
        """The same as a Parquet file."""
        from tapr import frames

        frames.write(frames.frame(self.runs, rows), Path(path))


Confusion = Counter[tuple[int, int]]  # (label, predicted) -> images


def confusion(batches: Iterable[BatchRecord]) -> Confusion:
    """How often images of a class were predicted as each class."""
    return Counter(
        pair for batch in batches for pair in zip(batch.labels or (), batch.predicted, strict=False)
    )


def class_accuracies(counts: Confusion) -> dict[int, float]:
    """The share predicted right of each class that has images, in the order of the classes.

    >>> class_accuracies(Counter({(0, 0): 3, (0, 1): 1, (1, 1): 5}))
    {0: 0.75, 1: 1.0}
    """
    images: Counter[int] = Counter()
    for (label, _), count in counts.items():
        images[label] += count
    return {label: counts[label, label] / images[label] for label in sorted(images)}


def class_mean(counts: Confusion) -> float | None:
    """The mean of the classes' accuracies, in which a rare class weighs as much as a common one."""
    shares = class_accuracies(counts).values()
    return sum(shares) / len(shares) if shares else None


def setting(cell: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """An option of the run's method or its augmentation, or a fact of its setting.

    >>> setting({"setting": {"batch_size": 8}, "recipe": {"lr": 0.1}}, "lr")
    0.1
    """
    recipe = cell.get("recipe") or {}
    given = recipe.get("augmentation_options") or {}
    for table in (recipe, given, cell.get("setting") or {}, cell):
        if key in table:
            return table[key]
    return default


def line(kind: str, content: Mapping[str, Any]) -> str:
    """One line of a run's file.

    >>> line("end", {"peak_mib": 5})
    '{"kind":"end","peak_mib":5}\\n'
    """
    return json.dumps({"kind": kind, **content}, separators=(",", ":"), allow_nan=True) + "\n"


def begin(cell: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    """The first line."""
    return line("run", {"format": FORMAT, "cell": cell, "environment": environment})


def batch_line(record: BatchRecord) -> str:
    """The line of a batch."""
    return line("batch", vars(record))


def load(paths: Path | str | Sequence[Path | str]) -> Records:
    """The runs in a file or folder, or in several; folders with the folders below them."""
    problems: list[str] = []
    return Records(list(each(paths, problems)), problems)


def each(paths: Path | str | Sequence[Path | str], problems: list[str]) -> Iterator[RunRecord]:
    """The runs one by one; what is wrong with them is added to the problems."""
    given = [paths] if isinstance(paths, Path | str) else paths
    some = False
    for path in _files([Path(one) for one in given]):
        try:
            run, wrong = read(path)
        except DataError as error:
            problems.append(str(error))
            continue
        some = True
        problems += wrong
        yield run
    if not some:
        found = f": {problems[0]}" if problems else ""
        raise DataError(f"no run that can be read in {', '.join(map(str, given))}{found}")


def read(path: Path) -> tuple[RunRecord, list[str]]:
    """A run's file, and a sentence for every line in it that cannot be read."""
    problems: list[str] = []
    run: RunRecord | None = None
    end: Mapping[str, Any] | None = None
    batches: list[BatchRecord] = []
    older = False
    for number, content in _lines(path, problems):
        try:
            kind = _kind(content)
            older |= kind == "run" and content.get("format") == older_records.FORMAT
            if older:
                content = older_records.upgrade(kind, content)
            if kind == "run":
                run = _run(path, content)
            elif kind == "batch":
                batches.append(_batch(content))
            else:
                end = _checked(_END, content)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problems.append(f"{path}, line {number}: not a record of a run: {_what(error)}")
    if run is None:
        first = f": {problems[0]}" if problems else ", whose first line says what it is"
        raise DataError(f"{path}: expected the record of a run{first}")
    return RunRecord(run.cell, run.environment, batches, end), problems


_CELL = TypeAdapter(CellFacts)
_ENVIRONMENT = TypeAdapter(_Environment)
_END = TypeAdapter(_End)
_BATCH = TypeAdapter(BatchRecord)


def _kind(content: Any) -> str:
    if not isinstance(content, dict):
        raise ValueError(f"expected a table, got {type(content).__name__}")
    kind = content.pop("kind", None)
    if kind not in ("run", "batch", "end"):
        raise ValueError(f"unknown kind {kind!r}")
    return str(kind)


def _run(path: Path, content: Mapping[str, Any]) -> RunRecord:
    if content.get("format") != FORMAT:
        raise DataError(f"{path}: expected format {FORMAT}, got {content.get('format')!r}")
    cell = _checked(_CELL, content.get("cell"))
    return RunRecord(cell, _checked(_ENVIRONMENT, content.get("environment") or {}))


def _batch(content: Mapping[str, Any]) -> BatchRecord:
    for name in _CORE:
        if name not in content:
            raise ValueError(f"expected {name!r}, found none")
    batch: BatchRecord = _BATCH.validate_python(content)
    sizes = {"images": len(batch.images), "predicted": len(batch.predicted)}
    for name in ("labels", "top", "probabilities", "log_likelihoods", "squares"):
        if values := getattr(batch, name):
            sizes[name] = len(values)
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{count} {name}" for name, count in sizes.items())
        raise ValueError(f"expected one value of each kind for every image, got {found}")
    return batch


def _checked(kind: TypeAdapter[Any], content: Any) -> dict[str, Any]:
    return {**content, **kind.validate_python(content)}


def _what(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return ".".join(map(str, first["loc"])) + ": " + expectation(first)


def _files(paths: Sequence[Path]) -> list[Path]:
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.exists():
            raise DataError(f"expected the records of runs, and {path} does not exist")
        inside = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
        if not inside:
            raise DataError(f"no .jsonl file in {path}; `tapr bench --out {path}` writes them")
        found.update({file.resolve(): file for file in inside})
    return list(found.values())


def _lines(path: Path, problems: list[str]) -> Iterator[tuple[int, Any]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    for number, raw in enumerate(text.splitlines(), 1):
        try:
            yield number, json.loads(raw)
        except ValueError as error:
            problems.append(f"{path}, line {number}: not JSON: {error}")
