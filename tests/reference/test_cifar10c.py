"""Our corruptions against figures derived from the original arithmetic (see derive_*.py)."""

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from tapr import cache
from tapr.corruptions import CORRUPTIONS, corrupt
from tapr.corruptions.common import Draws, Level
from tapr.corruptions.photographs import SHA256, photographs

HERE = Path(__file__).parent
SEEDS = 8
EXACT = (
    "brightness",
    "contrast",
    "saturate",
    "pixelate",
    "jpeg_compression",
    "defocus_blur",
    "gaussian_blur",
    "zoom_blur",
)
# Large random shapes: a hundred images vary by more than the tolerance, so the figures of 100
# images may differ by what they vary from seed to seed.
VARIED = ("snow", "fog", "spatter")
STEADY = ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "glass_blur")

_spec = importlib.util.spec_from_file_location("derive", HERE / "derive_cifar10c_figures.py")
assert _spec is not None
assert _spec.loader is not None
derive = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(derive)

FIGURES: dict[str, Any] = json.loads((HERE / "cifar10c_figures.json").read_text())
both_severities = pytest.mark.parametrize("severity", [3, 5])


class Given(Draws):
    """Draws whose first uniform values are given, in units of their range; the rest is random."""

    def __init__(self, values: ArrayLike, seed: int = 0) -> None:
        self._values: NDArray[np.float32] | None = np.asarray(values, np.float32)
        super().__init__(seed, np.arange(len(self._values)))

    def uniform(self, low: float, high: float, *shape: int) -> NDArray[np.float32]:
        if self._values is None:
            return super().uniform(low, high, *shape)
        values, self._values = self._values.reshape(-1, *shape), None
        return low + np.float32(high - low) * values


@pytest.fixture(scope="module")
def clean() -> NDArray[np.uint8]:
    mosaic = np.asarray(Image.open(HERE / "cifar10_first_100.webp"))
    return mosaic.reshape(10, 32, 10, 32, 3).swapaxes(1, 2).reshape(100, 32, 32, 3)


def share_within(ours: NDArray[np.uint8], name: str, severity: int, levels: int = 1) -> float:
    reference = np.frombuffer(
        bytes.fromhex(FIGURES["samples"][str(severity)][name]), np.uint8
    ).astype(int)
    return float((np.abs(ours.ravel()[derive.SAMPLE] - reference) <= levels).mean())


def excess(
    runs: Sequence[dict[str, NDArray[np.float64]]], name: str, severity: int, spreads: float
) -> dict[str, float]:
    """How far our figures are from the reference's, as a share of what is allowed."""
    shares = {}
    for key, values in FIGURES["statistics"][str(severity)][name].items():
        reference = np.array(values)
        ours = np.array([run[key] for run in runs])
        relative, absolute = (0.1, 0) if key == "power" else (0.05, 0.5)
        allowed = np.maximum(relative * np.abs(reference), absolute)
        allowed = np.maximum(allowed, spreads * ours.std(axis=0, ddof=1))
        shares[key] = float((np.abs(ours.mean(axis=0) - reference) / allowed).max())
    return shares


@both_severities
@pytest.mark.parametrize("name", EXACT)
def test_without_chance_we_are_within_one_level(
    clean: NDArray[np.uint8], name: str, severity: int
) -> None:
    assert share_within(corrupt(clean, name, severity), name, severity) >= 0.999


@both_severities
def test_jpeg_is_equal(clean: NDArray[np.uint8], severity: int) -> None:
    ours = corrupt(clean, "jpeg_compression", severity)
    assert share_within(ours, "jpeg_compression", severity, levels=0) == 1


@both_severities
def test_motion_blur_at_the_same_angles(clean: NDArray[np.uint8], severity: int) -> None:
    draws = Given((np.array(FIGURES["angles"][str(severity)]) + 45) / 90)
    ours = CORRUPTIONS["motion_blur"](clean, Level(severity, large=False), draws)
    assert share_within(ours, "motion_blur", severity) >= 0.999


def frost_is_here() -> bool:
    return all((cache.folder() / "frost" / name).is_file() for name in SHA256)


@both_severities
@pytest.mark.skipif(not frost_is_here(), reason="the frost photographs are not in the cache")
def test_frost_with_the_same_crops(clean: NDArray[np.uint8], severity: int) -> None:
    sizes = [(picture.shape[0] // 5, picture.shape[1] // 5) for picture in photographs()]
    lots = [
        ((which + 0.5) / 5, *((np.array([top, left]) + 0.5) / (np.array(sizes[which]) - 32)))
        for which, top, left in FIGURES["crops"]
    ]
    ours = CORRUPTIONS["frost"](clean, Level(severity, large=False), Given(lots))
    assert share_within(ours, "frost", severity) >= 0.999


@both_severities
def test_elastic_transform_with_the_same_stretch(clean: NDArray[np.uint8], severity: int) -> None:
    shifts = (np.array(FIGURES["shifts"]) + 1) / 2
    level = Level(severity, large=False)
    runs = [
        derive.measure(clean, CORRUPTIONS["elastic_transform"](clean, level, Given(shifts, seed)))
        for seed in range(SEEDS)
    ]
    assert max(excess(runs, "elastic_transform", severity, spreads=0).values()) <= 1


@both_severities
@pytest.mark.parametrize("name", STEADY + VARIED)
def test_chance_has_the_same_distribution(
    clean: NDArray[np.uint8], name: str, severity: int
) -> None:
    runs = [
        derive.measure(clean, corrupt(clean, name, severity, seed=seed)) for seed in range(SEEDS)
    ]
    shares = excess(runs, name, severity, spreads=3.5 if name in VARIED else 0)
    assert max(shares.values()) <= 1, shares


@pytest.mark.parametrize("name", [*STEADY, *VARIED, "elastic_transform"])
def test_the_neighbouring_severity_would_not_pass(clean: NDArray[np.uint8], name: str) -> None:
    runs = [derive.measure(clean, corrupt(clean, name, 4, seed=seed)) for seed in range(SEEDS)]
    for severity in (3, 5):
        assert max(excess(runs, name, severity, spreads=3.5).values()) > 1
