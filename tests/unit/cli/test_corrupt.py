"""`tapr corrupt`: the published layout, resuming, and its errors."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from tapr.cli import app
from tapr.cli.corrupt import RECORD
from tapr.corruptions import corrupt
from tapr.datasets import load
from tapr.errors import DataError, InputError, TaprError, UnknownNameError

NAMES = ("--corruption", "contrast", "--corruption", "gaussian_noise")


@pytest.fixture
def data(tmp_path: Path) -> str:
    random = np.random.default_rng(0)
    for name in ("ant", "bee"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            pixels = random.integers(0, 256, (32, 32, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return f"folder:{tmp_path / 'photos'}"


def _corrupt(data: str, out: Path, *options: str) -> str:
    command = ["corrupt", data, "-o", str(out), *options]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_published_layout(data: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _corrupt(data, out, *NAMES, "--seed", "4")
    clean = load(data)
    for name in ("contrast", "gaussian_noise"):
        written = np.load(out / f"{name}.npy", allow_pickle=False)
        assert written.dtype == np.uint8
        assert written.shape == (5 * 6, 32, 32, 3)
        for severity in range(1, 6):
            block = written[(severity - 1) * 6 : severity * 6]
            images = np.asarray(clean.images[:])
            np.testing.assert_array_equal(block, corrupt(images, name, severity, seed=4))
    labels = np.load(out / "labels.npy", allow_pickle=False)
    assert clean.labels is not None
    np.testing.assert_array_equal(labels, np.tile(clean.labels, 5))
    names = {"contrast.npy", "gaussian_noise.npy", "labels.npy", RECORD}
    assert {path.name for path in out.iterdir()} == names


def test_some_severities_of_some_images(data: str, tmp_path: Path) -> None:
    options = ("--severity", "5", "--severity", "2", "--images", "2", "--corruption", "pixelate")
    assert "4 images" in _corrupt(data, tmp_path / "out", *options)
    assert np.load(tmp_path / "out" / "pixelate.npy").shape == (4, 32, 32, 3)


def test_whole_files_are_kept_and_damaged_ones_written_again(data: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _corrupt(data, out, *NAMES)
    whole = (out / "contrast.npy").read_bytes()
    kept = (out / "gaussian_noise.npy").stat().st_mtime_ns
    (out / "contrast.npy").write_bytes(whole[:1000])
    output = _corrupt(data, out, *NAMES)
    assert "gaussian_noise.npy: kept" in output
    assert "contrast.npy: 30 images" in output
    assert (out / "contrast.npy").read_bytes() == whole
    assert (out / "gaussian_noise.npy").stat().st_mtime_ns == kept


def test_an_interruption_leaves_nothing_half_written(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def stop(images: object, name: str, severity: int, **options: object) -> np.ndarray:
        if (name, severity) == ("gaussian_noise", 3):
            raise KeyboardInterrupt
        return np.asarray(images)

    monkeypatch.setattr("tapr.streams.domains.corrupt", stop)
    result = CliRunner().invoke(app, ["corrupt", data, "-o", str(out), *NAMES])
    assert result.exit_code != 0
    assert {path.name for path in out.iterdir()} == {"contrast.npy", "labels.npy", RECORD}
    monkeypatch.undo()
    assert "contrast.npy: kept" in _corrupt(data, out, *NAMES)


def test_other_settings_need_another_folder(data: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _corrupt(data, out, *NAMES)
    for options in (["--seed", "1"], ["--images", "3"], ["--severity", "5"]):
        with pytest.raises(DataError, match="was started with"):
            _corrupt(data, out, *NAMES, *options)
    (out / RECORD).write_text(json.dumps([1])[:-1])
    with pytest.raises(DataError, match="is damaged"):
        _corrupt(data, out, *NAMES)


def test_foreign_files_are_not_touched(data: str, tmp_path: Path) -> None:
    np.save(tmp_path / "fog.npy", np.zeros(3))
    with pytest.raises(DataError, match="did not write"):
        _corrupt(data, tmp_path, *NAMES)
    assert not (tmp_path / "labels.npy").exists()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (["--corruption", "fgo"], UnknownNameError, "did you mean 'fog'"),
        (["--severity", "6"], InputError, "severity from 1 to 5, got 6"),
        (["--images", "0"], InputError, "expected 1 to 6 images"),
        (["--split", "train"], InputError, "one split"),
    ],
)
def test_bad_options_write_nothing(
    data: str, tmp_path: Path, options: list[str], error: type[TaprError], message: str
) -> None:
    with pytest.raises(error, match=message):
        _corrupt(data, tmp_path / "out", *options)
    assert not (tmp_path / "out").exists()


def test_images_without_labels(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    Image.new("RGB", (32, 32), (9, 99, 200)).save(photos / "one.png")
    assert "no labels" in _corrupt(f"folder:{photos}", tmp_path / "out", "--corruption", "contrast")
    assert not (tmp_path / "out" / "labels.npy").exists()
