"""Digits: the renderer's promises, and the real ones enlarged."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tapr import datasets
from tapr.datasets import DATASETS, digits, render
from tapr.errors import DataError

pytest.importorskip("matplotlib")
FEW = ("DejaVuSans", "cmr10")


def mean_error(one: Any, other: Any) -> float:
    return float(np.abs(one.astype(float) - other).mean())


def test_a_rendering_depends_on_the_seed_and_its_number_alone() -> None:
    images, labels = render.render(3, 2 * render.BATCH + 7, FEW)
    assert images.shape == (2 * render.BATCH + 7, 32, 32, 3)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(labels, np.arange(len(images)) % 10)
    np.testing.assert_array_equal(render.render(3, 20, FEW)[0], images[:20])
    assert mean_error(render.render(4, 20, FEW)[0], images[:20]) > 20
    assert len(np.unique(images.reshape(len(images), -1), axis=0)) == len(images)


def test_a_batch_equals_its_images_one_by_one() -> None:
    together = render.draw(0, range(5, 9), 2)
    alone = [render.draw(0, range(number, number + 1), 2) for number in range(5, 9)]
    labels = np.arange(5, 9)
    fields = render.distances(FEW)
    images = render.compose(render.coverage(fields, together, labels), together)
    for image, drawn, label in zip(images, alone, labels, strict=True):
        ink = render.coverage(fields, drawn, np.array([label]))
        np.testing.assert_array_equal(render.compose(ink, drawn)[0], image)


def test_every_property_fills_its_range() -> None:
    drawn = render.draw(0, range(1000), 18)
    for name, (low, high) in render.RANGES.items():
        values = drawn.values[name]
        edge = (high - low) / 50
        assert low <= values.min() < low + edge, name
        assert high - edge < values.max() <= high, name
    assert set(drawn.font) == set(range(18))
    assert 0.4 < drawn.lighter.mean() < 0.6


def plain(**values: float) -> render.Drawn:
    """One rendering without any variation but what is given."""
    middle = {"width": 1.0, "softness": 1.0, "contrast": 1.0, "height": 24.0}
    all_values = {name: middle.get(name, 0.0) for name in render.RANGES} | values
    return render.Drawn(
        {name: np.array([value], np.float32) for name, value in all_values.items()},
        np.zeros(1, np.int64),
        np.ones(1, np.bool_),
        np.zeros((1, 2, 3), np.float32),
        np.zeros((1, 32, 32, 3), np.float32),
    )


def ink(digit: int = 0, **values: float) -> Any:
    return render.coverage(render.distances(FEW), plain(**values), np.array([digit]))[0]


def centre(mask: Any) -> tuple[float, float]:
    y, x = np.mgrid[: len(mask), : render.SIDE]
    return float((mask * y).sum() / mask.sum()), float((mask * x).sum() / mask.sum())


def test_what_the_properties_do() -> None:
    upright = ink()
    rows = np.flatnonzero((upright > 0.5).any(1))
    assert (rows[0], rows[-1]) == (4, 27)  # 24 pixels high, in the middle
    assert centre(upright) == pytest.approx((15.5, 15.5), abs=0.3)
    assert np.flatnonzero((ink(height=16) > 0.5).any(1)).tolist() == list(range(8, 24))
    assert centre(ink(across=1.0)) == pytest.approx((15.5, 19.5), abs=0.3)
    assert centre(ink(down=-1.0)) == pytest.approx((11.5, 15.5), abs=0.3)
    assert ink(thickness=0.05).sum() > 1.4 * upright.sum()
    assert ink(width=1.25).any(0).sum() > upright.any(0).sum()
    slanted = ink(1, slant=0.3) > 0.5
    assert centre(slanted[:12])[1] > centre(ink(1)[:12])[1] + 1  # the top leans to the right
    soft = ink(softness=4.0)
    assert ((soft > 0.1) & (soft < 0.9)).sum() > 2 * ((upright > 0.1) & (upright < 0.9)).sum()


def test_ink_is_lighter_or_darker_by_the_contrast() -> None:
    mask = ink()[None]
    light = render.compose(mask, plain(contrast=0.4, level=0.5))
    dark = render.compose(mask, plain(contrast=0.4, level=0.5)._replace(lighter=np.zeros(1, bool)))
    assert (light.min(), light.max()) == (76, 179)  # 0.3 and 0.7 of 255
    np.testing.assert_allclose(light.astype(int) + dark, 255, atol=1)


def test_a_glyph_is_the_one_pillow_draws() -> None:
    """The field's inside, and the font's own picture of the digit."""
    from PIL import ImageDraw, ImageFont

    sheet = Image.new("L", (200, 200))
    font = ImageFont.truetype(render.font_folder() / "cmr10.ttf", 100)
    ImageDraw.Draw(sheet).text((20, 20), "4", 255, font)
    box = sheet.getbbox()
    assert box
    width = round((box[2] - box[0]) * 64 / (box[3] - box[1]))
    drawn = np.asarray(sheet.crop(box).resize((width, 64))) > 127
    left = 48 - width // 2
    ours = render.distances(FEW)[1, 4][16:80, left : left + width] > 0
    assert (ours != drawn).mean() < 0.03


def test_held_out_fonts_are_not_trained_on() -> None:
    assert not set(render.FONTS) & set(render.HELD_OUT)
    assert digits.RENDERED["train"].seed != digits.RENDERED["validation"].seed
    validation = datasets.load("digits", "validation")
    assert (len(validation), validation.name) == (2000, "digits:validation")
    assert validation.labels is not None
    assert np.bincount(validation.labels).tolist() == [200] * 10


def test_real_digits_are_scikit_learns_enlarged() -> None:
    sklearn = pytest.importorskip("sklearn.datasets")
    data = datasets.load("digits")
    assert data.images.shape == (1797, 32, 32, 3)
    assert (data.images == data.images[..., :1]).all()
    np.testing.assert_array_equal(data.labels, sklearn.load_digits().target)
    small = np.rint(sklearn.load_digits().images[:50] * 255 / 16).astype(np.uint8)
    for ours, image in zip(data.images[..., 0], small, strict=False):
        theirs = Image.fromarray(image).resize((32, 32), Image.Resampling.BILINEAR)
        assert np.abs(ours.astype(int) - np.asarray(theirs)).max() <= 1  # Pillow rounds twice


def test_the_entry(watch: Any) -> None:
    pytest.importorskip("sklearn")
    DATASETS["digits"].get(watch)
    assert DATASETS["digits"].verify(watch) == []
    with pytest.raises(DataError, match="leave --from out"):
        DATASETS["digits"].get(watch, Path())
    with pytest.raises(DataError, match="digits has no split 'all'"):
        datasets.load("digits", "all")


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch, watch: Any) -> None:
    monkeypatch.setattr("tapr.datasets.digits.find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"need scikit-learn, .*pip install 'torch-tapr\[digits\]'"):
        datasets.load("digits")
    with pytest.raises(DataError, match="need scikit-learn"):
        DATASETS["digits"].get(watch)


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch, watch: Any) -> None:
    monkeypatch.setattr("tapr.datasets.render.find_spec", lambda name: None)
    render.distances.cache_clear()
    with pytest.raises(DataError, match=r"matplotlib's fonts.*pip install 'torch-tapr\[digits\]'"):
        datasets.load("digits", "train")
    assert "need matplotlib's fonts" in DATASETS["digits"].verify(watch)[-1]


def test_fonts_that_are_missing_or_have_no_digits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, watch: Any
) -> None:
    with pytest.raises(DataError, match=r"STIXNonUni\.ttf has no digit 0"):
        render.render(0, 1, ("STIXNonUni",))
    monkeypatch.setattr(render, "font_folder", lambda: tmp_path)
    with pytest.raises(DataError, match=r"cannot read the font .*nothing\.ttf"):
        render.render(0, 1, ("nothing",))
    assert len(DATASETS["digits"].verify(watch)) == 22
