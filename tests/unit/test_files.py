"""Files appear whole or not at all; seeds are named."""

from pathlib import Path

import pytest
import torch

import tapr
from tapr import rng
from tapr.files import atomic


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    path.write_text("old")

    def write_half() -> None:
        with atomic(path) as part:
            part.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").write_text("")
    with atomic(tmp_path / "ours") as part:
        part.write_text("")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(tapr.TaprError, match="cannot write"), atomic(tmp_path / "file" / "x"):
        pass


def test_named_streams_of_randomness_are_independent_and_repeatable() -> None:
    def draw(*name: object) -> torch.Tensor:
        return torch.rand(4, generator=rng.generator(*name))  # type: ignore[arg-type]

    assert torch.equal(draw(0, "a"), draw(0, "a"))
    different = [draw(0, "a"), draw(0, "b"), draw(1, "a"), draw(0, "a", 1), draw(0)]
    for i, one in enumerate(different):
        assert not any(torch.equal(one, other) for other in different[:i])
