"""`tapr views`: what it draws, what it skips, and its errors."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from tapr.cli import app
from tapr.errors import DataError, UnknownNameError


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["views", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    for name, shape in {"a.png": (20, 30, 3), "more/b.png": (12, 12), "c.png": (8, 8, 4)}.items():
        Image.fromarray(random.integers(0, 256, shape, np.uint8)).save(folder / name)
    (folder / "broken.png").write_bytes(b"not a picture")
    (folder / "notes.txt").write_text("not meant as one")
    return folder


@pytest.mark.parametrize("name", ["augmix", "randaugment", "identity"])
def test_a_folder_is_drawn_and_the_unreadable_told(photos: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "new" / "views.png"
    result = run(photos, "--augmentation", name, "-o", out)
    assert result.exit_code == 0
    assert "views of a.png, c.png, b.png" in result.output
    assert "skipped" in result.output
    assert "broken.png" in result.output
    assert "notes.txt" not in result.output
    with Image.open(out) as page:
        assert page.width > page.height


def test_the_seed_decides(photos: Path, tmp_path: Path) -> None:
    pages = []
    for number, seed in enumerate((1, 1, 2)):
        out = tmp_path / f"{number}.png"
        assert run(photos / "a.png", "--seed", seed, "-o", out).exit_code == 0
        pages.append(out.read_bytes())
    assert pages[0] == pages[1] != pages[2]


def test_counts_are_obeyed(photos: Path, tmp_path: Path) -> None:
    sizes = []
    for count, images in ((1, 1), (3, 1), (1, 2)):
        out = tmp_path / "views.png"
        run(photos, "--augmentation", "identity", "--count", count, "--images", images, "-o", out)
        with Image.open(out) as page:
            sizes.append(page.size)
    assert sizes[1][0] > sizes[0][0]
    assert sizes[2][1] > sizes[0][1]


def test_large_photographs_are_shrunk(tmp_path: Path) -> None:
    Image.new("RGB", (5000, 100)).save(tmp_path / "wide.png")
    assert run(tmp_path / "wide.png", "--count", 1, "-o", tmp_path / "views.png").exit_code == 0


def test_errors_say_what_was_expected(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="found nothing at"):
        run(tmp_path / "nowhere")
    with pytest.raises(DataError, match="expected at least one readable image"):
        run(photos / "broken.png")
    with pytest.raises(UnknownNameError, match="did you mean 'augmix'"):
        run(photos, "--augmentation", "augmixx")
