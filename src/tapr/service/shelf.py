"""The folder of a server: the streams' states, their snapshots, and their model and method.

FOLDER/server.json             the method and its options
FOLDER/source.safetensors      the state before any adaptation, which identifies the model
FOLDER/predictions.sqlite      the journal, if there is one
FOLDER/streams/NAME/           state.safetensors, about.json, snapshots/WHEN.safetensors

Several replicas may share a folder (`--on ray`): `streams/NAME/owner` then names the one that has
the stream. A replica that is asked for a stream takes it over, with the state that is on disk; the
replica that had it before no longer writes it.
"""

import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tapr import files
from tapr.adapters import Adapter
from tapr.errors import DataError, InputError, StateError
from tapr.runs.store import locked, save_state

log = logging.getLogger("tapr.service")
NAMES = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_WHEN = re.compile(r"\d{8}T\d{6}\.\d{6}Z")
SUFFIX = ".safetensors"


@dataclass
class About:
    """Facts about a stream that are saved beside its state."""

    created: float = 0.0  # seconds since 1970
    images: int = 0  # predicted
    batches: int = 0
    frozen: bool = False


class Snapshot(NamedTuple):
    """An earlier state of a stream."""

    name: str  # the time at which it was taken
    bytes: int


def check_name(name: str) -> str:
    """Refuse a stream's name that is not a valid folder name on every file system."""
    if not NAMES.fullmatch(name):
        raise InputError(
            "expected a stream's name of 1 to 64 lower-case letters, digits, '.', '_' and '-',"
            f" beginning with a letter or digit, got {name[:80]!r}"
        )
    return name


class Shelf:
    """Reads and writes the folder, for one process or for several with an `owner` name each."""

    def __init__(self, folder: Path, owner: str | None = None) -> None:
        self.folder, self.owner = folder, owner
        self._streams = folder / "streams"
        self._held = ExitStack()

    def hold(self) -> None:
        """Lock the folder for this process, and remove files that a killed process left."""
        self._held.enter_context(locked(self.folder))
        for part in self.folder.rglob(".*.part"):
            part.unlink(missing_ok=True)

    def claim(self, adapter: Adapter) -> None:
        """Check that the folder belongs to this model and method; lock it unless it is shared."""
        if self.owner is None:
            self.hold()
        try:
            self._check(adapter)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Unlock the folder."""
        self._held.close()

    def _check(self, adapter: Adapter) -> None:
        about, source = self.folder / "server.json", self.folder / f"source{SUFFIX}"
        recipe = json.loads(json.dumps(adapter.recipe))
        if not about.exists():
            save_state(adapter, source)
            _write(about, {"recipe": recipe})
            return
        begun = _read(about).get("recipe")
        if begun != recipe:
            raise DataError(
                f"{self.folder} holds streams of {begun}, now {recipe}: give the same method and"
                " options, or another folder with --state"
            )
        try:
            adapter.load(source)
        except StateError as error:
            raise DataError(
                f"{self.folder} holds streams of another model: give the same model, or another"
                f" folder with --state ({error})"
            ) from error

    def names(self) -> list[str]:
        """The names of the streams in the folder."""
        found = self._streams.iterdir() if self._streams.is_dir() else ()
        return sorted(path.name for path in found if NAMES.fullmatch(path.name))

    def state(self, name: str) -> Path:
        """Where the state of a stream is, or will be."""
        return self._streams / check_name(name) / f"state{SUFFIX}"

    def has(self, name: str) -> bool:
        """Whether anything of this stream is on disk."""
        return self.state(name).parent.is_dir()

    def owns(self, name: str) -> bool:
        """Whether this process owns the stream; it owns all in a folder that is not shared."""
        if self.owner is None:
            return True
        try:
            return self._owner(name).read_text(encoding="utf-8") == self.owner
        except OSError:
            return False

    def take(self, name: str) -> None:
        """Make this process the owner of the stream, in a shared folder."""
        if self.owner is not None:
            with files.atomic(self._owner(name)) as part:
                part.write_text(self.owner, encoding="utf-8")

    def _owner(self, name: str) -> Path:
        return self.state(name).with_name("owner")

    def about(self, name: str) -> About:
        """The saved facts about a stream; empty ones if they are missing or damaged."""
        try:
            found = _read(self.state(name).with_name("about.json"))
            begun = asdict(About())
            return About(**{key: type(begun[key])(found.get(key, begun[key])) for key in begun})
        except (DataError, TypeError, ValueError) as error:
            log.warning("the saved facts about the stream %s cannot be read: %s", name, error)
            return About()

    def write(self, name: str, adapter: Adapter, about: About) -> None:
        """Save the adapter's state as the stream's, with the facts about it."""
        save_state(adapter, self.state(name))
        self.note(name, about)

    def note(self, name: str, about: About) -> None:
        """Save the facts about a stream without its state."""
        _write(self.state(name).with_name("about.json"), asdict(about))

    def remove(self, name: str) -> None:
        """Delete a stream with its snapshots."""
        shutil.rmtree(self.state(name).parent, ignore_errors=True)

    def snapshots(self, name: str) -> list[Snapshot]:
        """The snapshots of a stream, the oldest first."""
        return [Snapshot(path.stem, path.stat().st_size) for path in self._snapshots(name)]

    def snapshot(self, name: str, most: int) -> str:
        """Keep the state on disk as a snapshot, and only the newest `most`; return its name."""
        when = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        path = self._place(name, when)
        path.parent.mkdir(exist_ok=True)
        try:
            os.link(self.state(name), path)  # a state is replaced, never written into
        except OSError:  # a file system without links, or a full one
            with files.atomic(path) as part:
                shutil.copyfile(self.state(name), part)
        for old in list(self._snapshots(name))[:-most]:
            old.unlink(missing_ok=True)
        return when

    def kept(self, name: str, snapshot: str) -> Path:
        """The path of a snapshot."""
        path = self._place(name, snapshot)
        if not _WHEN.fullmatch(snapshot) or not path.is_file():
            names = ", ".join(each.stem for each in self._snapshots(name)) or "none"
            raise InputError(
                f"expected one of this stream's snapshots ({names}), got {snapshot[:80]!r}"
            )
        return path

    def _place(self, name: str, snapshot: str) -> Path:
        return self.state(name).parent / "snapshots" / f"{snapshot}{SUFFIX}"

    def _snapshots(self, name: str) -> Iterator[Path]:
        folder = self._place(name, "").parent
        found = folder.iterdir() if folder.is_dir() else ()
        return iter(sorted(path for path in found if _WHEN.fullmatch(path.stem)))


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} is damaged: expected an object, got {type(content).__name__}")
    return content


def _write(path: Path, content: dict[str, Any]) -> None:
    with files.atomic(path) as part:
        part.write_text(json.dumps(content, allow_nan=False) + "\n", encoding="utf-8")
