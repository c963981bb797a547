"""USPS: the official text files, where the user has them, enlarged to the other digits' size."""

from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapr.datasets.base import Dataset, Labels, Linked, Pixels, Watcher
from tapr.datasets.classes import DIGITS
from tapr.datasets.digits import enlarged
from tapr.datasets.members import find_packed
from tapr.errors import DataError

SIDE = 16
VALUES = SIDE * SIDE
WANTED = "zip.train.gz and zip.test.gz, or LIBSVM's usps.bz2 and usps.t.bz2 (unpacked or not)"


class Split(NamedTuple):
    """A split: the two files that may hold it, and the number of images of each digit."""

    zip: str  # of "The Elements of Statistical Learning": label, values
    libsvm: str  # label + 1, then number:value
    counts: tuple[int, ...]


SPLITS = {
    "train": Split("zip.train", "usps", (1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644)),
    "test": Split("zip.test", "usps.t", (359, 264, 198, 166, 200, 160, 170, 147, 166, 177)),
}


class Usps(Linked):
    """USPS where the user has it: a few megabytes of text, read and checked at each load."""

    name = "usps"
    about = "9,298 handwritten digits, enlarged to 32 x 32"
    size = "yours"
    classes = DIGITS
    splits: ClassVar[tuple[str, ...]] = tuple(SPLITS)

    def get(self, watch: Watcher, origin: Path | None = None) -> None:
        """Check the files in the folder `origin`, and remember that folder."""
        origin = origin or self.where()
        if origin is None:
            raise DataError(
                f"usps is not downloaded for you: put {WANTED} into a folder, "
                "then `tapr data get usps --from FOLDER`"
            )
        if not origin.is_dir():
            raise DataError(f"expected a folder with {WANTED}, but {origin} is not a folder")
        found = [split for split in self.splits if _find(origin, split)]
        if not found:
            raise DataError(f"expected {origin} to hold {WANTED}; it holds none of them")
        for split in found:
            read_usps(origin, split)
        self.remember(origin)
        watch.note(f"usps {' and '.join(found)} is in {origin}, verified")

    def verify(self, watch: Watcher) -> list[str]:
        """Read every split that the folder has; one that was never there is not an error."""
        folder = self.where()
        if folder is None:
            return ["usps is not here"]
        found = [split for split in self.splits if _find(folder, split)]
        problems = [] if found else [f"{folder} holds none of {WANTED}"]
        for done, split in enumerate(found, 1):
            try:
                read_usps(folder, split)
            except DataError as error:
                problems.append(str(error))
            watch.progress(done, len(found))
        return problems

    def load(self, split: str) -> Dataset:
        """Load a split from the remembered folder."""
        self.check_split(split)
        folder = self.where()
        if folder is None:
            raise DataError(
                f"usps is not here; `tapr data get usps --from FOLDER` takes a folder with {WANTED}"
            )
        return Dataset(self.name, *read_usps(folder, split), self.classes)


def read_usps(folder: Path, split: str) -> tuple[Pixels, Labels]:
    """Decode a split: for every image a line with its label and 16 x 16 values from -1 to 1."""
    found = _find(folder, split)
    if found is None:
        raise DataError(f"usps has no {split} split in {folder}: expected {WANTED}")
    name, data = found
    what, first = f"{folder}: {name}", int(name == SPLITS[split].libsvm)
    table = _table(data, what, VALUES * (1 + first))
    values = table[:, 1:]
    if first:
        numbers, values = values[:, ::2], values[:, 1::2]
        if (numbers != np.arange(1, VALUES + 1)).any():
            raise DataError(f"{what}: expected the values 1: to {VALUES}: in every line")
    labels = _labels(table[:, 0], what, first)
    counts = tuple(np.bincount(labels, minlength=10).tolist())
    if counts != SPLITS[split].counts:
        raise DataError(
            f"{what} is not the {split} split of usps: expected {sum(SPLITS[split].counts)} "
            f"images, {SPLITS[split].counts} of each digit, got {len(labels)}, {counts}"
        )
    if not (np.abs(values) <= 1).all():  # false for NaN, too
        raise DataError(
            f"{what}: expected values from -1 to 1, got {values[~(abs(values) <= 1)][0]}"
        )
    return enlarged((values.reshape(-1, SIDE, SIDE) + 1) * 127.5), labels


def _find(folder: Path, split: str) -> tuple[str, bytes] | None:
    files = SPLITS[split].zip, SPLITS[split].libsvm
    contents = find_packed(folder, files)
    return next(((name, contents[name]) for name in files if name in contents), None)


def _table(data: bytes, what: str, width: int) -> NDArray[np.float64]:
    """A row of numbers for each line: the label and `width` more."""
    try:
        rows = [line.split() for line in data.decode("ascii").replace(":", " ").splitlines()]
        for number, row in enumerate(rows, 1):
            if len(row) != 1 + width:
                raise DataError(
                    f"{what}, line {number}: expected a label and {VALUES} values, "
                    f"got {len(row)} numbers instead of {1 + width}"
                )
        return np.array(rows, np.float64).reshape(-1, 1 + width)
    except ValueError as error:
        raise DataError(f"{what}: expected lines of numbers, {error}") from error


def _labels(column: NDArray[np.float64], what: str, first: int) -> Labels:
    wrong = np.flatnonzero(~np.isin(column, np.arange(first, first + 10)))
    if len(wrong):
        raise DataError(
            f"{what}, line {wrong[0] + 1}: expected a label from {first} to {first + 9}, "
            f"got {column[wrong[0]]:g}"
        )
    return column.astype(np.int64) - first
