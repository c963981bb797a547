"""`tapr show`: the sheet's layout and its errors."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from tapr.cli import app
from tapr.errors import DataError, InputError, UnknownNameError


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Three classes of four images each, of 32 x 32."""
    random = np.random.default_rng(0)
    for name in ("ant", "bee", "cow"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(4):
            pixels = random.integers(0, 256, (32, 32, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return f"folder:{tmp_path / 'photos'}"


def _show(data: str, out: Path, *options: str) -> Image.Image:
    result = CliRunner().invoke(
        app, ["show", data, "-o", str(out), *options], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert result.output.startswith(f"{out}: ")
    with Image.open(out) as image:
        assert image.format == "PNG"
        return image.copy()


def test_clean(data: str, tmp_path: Path) -> None:
    page = _show(data, tmp_path / "a.png", "--images", "3")
    assert page.width > 3 * 128
    assert page.height < 2 * 128


def test_many_clean_images_are_wrapped(data: str, tmp_path: Path) -> None:
    page = _show(data, tmp_path / "a.png", "--images", "12")
    assert page.width < 12 * 128
    assert page.height > 2 * 128


def test_the_pixels_are_those_the_model_sees(data: str, tmp_path: Path) -> None:
    from tapr.corruptions import corrupt
    from tapr.datasets import load

    options = ["--corruption", "gaussian_noise", "--image", "5", "--zoom", "1", "--seed", "3"]
    page = np.asarray(_show(data, tmp_path / "a.png", *options))
    image = load(data).images[5:6]
    (noisy,) = corrupt(image, "gaussian_noise", 5, seed=3, indices=np.array([5]))
    for pixels in (image[0], noisy):
        assert _holds(page, pixels)


def _holds(page: np.ndarray, pixels: np.ndarray) -> bool:
    windows = np.lib.stride_tricks.sliding_window_view(page, (1, 32, 3))[..., 0, :, :]
    starts = np.argwhere((windows[:, :, 0] == pixels[0]).all(axis=(-1, -2)))
    return any((page[y : y + 32, x : x + 32] == pixels).all() for y, x in starts)


def test_rows_are_corruptions_and_columns_severities(data: str, tmp_path: Path) -> None:
    names = ["--corruption", "gaussian_noise", "--corruption", "shot_noise"]
    levels = [part for level in "135" for part in ("--severity", level)]
    wide = _show(data, tmp_path / "a.png", *names, *levels, "--zoom", "1")
    narrow = _show(data, tmp_path / "b.png", *names[:2], *levels[:4], "--zoom", "1")
    assert wide.width - narrow.width >= 32
    assert wide.height - narrow.height >= 32


def test_big_pictures_are_made_small(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (2000, 1000)).save(tmp_path / "photos" / "a.png")
    page = _show(f"folder:{tmp_path / 'photos'}", tmp_path / "a.png")
    assert page.width < 700


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (["--corruption", "fgo"], UnknownNameError, "unknown corruption 'fgo'; did you mean 'fog'"),
        (["--corruption", "fog", "--severity", "6"], InputError, "severity from 1 to 5, got 6"),
        (["--corruption", "fog", "--severity", "0"], InputError, "severity from 1 to 5, got 0"),
        (["--image", "12"], InputError, "expected image numbers from 0 to 11, got 12"),
        (["--split", "train"], InputError, "a folder has one split"),
    ],
)
def test_bad_options(
    data: str, tmp_path: Path, options: list[str], error: type[Exception], message: str
) -> None:
    out = tmp_path / "a.png"
    with pytest.raises(error, match=message):
        CliRunner().invoke(app, ["show", data, "-o", str(out), *options], catch_exceptions=False)
    assert not out.exists()


def test_unwritable_picture(data: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot write"):
        _show(data, tmp_path / "file" / "a.png")


def test_help_has_an_example() -> None:
    result = CliRunner().invoke(app, ["show", "--help"])
    assert "Example: tapr show cifar10" in result.output
