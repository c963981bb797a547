"""A disk that is full while a state is written: a sentence, and the old state is still there."""

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tapr
from tapr.testing import small_model

AREA = "full disks"
IMAGES = torch.rand(4, 3, 10, 9, generator=torch.Generator().manual_seed(0))


def saved(folder: Path) -> tuple[tapr.Adapter, Path]:
    adapter = tapr.adapt(small_model())
    adapter(IMAGES)
    adapter.save(folder / "state")
    return adapter, folder / "state"


def attack(adapter: tapr.Adapter, file: Path, tally: Any) -> None:
    before, content = adapter.capture(), file.read_bytes()
    adapter(IMAGES / 2)
    after = adapter.capture()

    def save() -> str:
        adapter.save(file)
        return "it was saved"

    said = tally.attempt(AREA, "save", save)
    tally.unchanged(AREA, "save", adapter, after)
    if file.read_bytes() != content or list(file.parent.iterdir()) != [file]:
        tally.count(AREA, "lost", "the old state, or a part of the new one lies about")
    assert said is not None
    assert "cannot write" in said
    adapter.load(file)
    tally.unchanged(AREA, "load", adapter, before)


def test_a_full_disk_never_takes_the_old_state_along(tmp_path: Path, tally: Any) -> None:
    """On a tmpfs that holds one state, but not two."""
    disk = tmp_path / "disk"
    disk.mkdir()
    size = saved(tmp_path)[1].stat().st_size * 3 // 2
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"no disk can be mounted here: {error}")
    if done.returncode:
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    try:
        attack(*saved(disk), tally)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files")
@pytest.mark.parametrize("size", [0, 1, 100, 4096])
def test_a_file_that_may_not_grow_never_takes_the_old_state_along(
    size: int, tmp_path: Path, tally: Any
) -> None:
    adapter, file = saved(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        attack(adapter, file, tally)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
