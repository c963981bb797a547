"""Noise: every value of every channel is disturbed on its own."""

import numpy as np

from tapr.corruptions.common import Bytes, Draws, Level, to_bytes, to_unit


def gaussian_noise(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Add normal noise."""
    sigma = level.of((0.04, 0.06, 0.08, 0.09, 0.10), (0.08, 0.12, 0.18, 0.26, 0.38))
    noise = draws.normal(*images.shape[1:])
    noise *= sigma
    noise += to_unit(images)
    return to_bytes(noise)


def shot_noise(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Count photons: fewer at higher severities."""
    photons = level.of((500, 250, 100, 75, 50), (60, 25, 12, 5, 3))
    return to_bytes(draws.poisson(to_unit(images) * np.float32(photons)) / photons)


def impulse_noise(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Replace values by black or white."""
    amount = level.of((0.01, 0.02, 0.03, 0.05, 0.07), (0.03, 0.06, 0.09, 0.17, 0.27))
    lot = draws.uniform(0, 1, *images.shape[1:])
    noisy = np.where(lot < amount, np.uint8(0), images)
    noisy[lot < amount / 2] = 255
    return noisy


def speckle_noise(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Add normal noise in proportion to the value."""
    sigma = level.of((0.06, 0.1, 0.12, 0.16, 0.2), (0.15, 0.2, 0.35, 0.45, 0.6))
    noise = draws.normal(*images.shape[1:])
    noise *= sigma
    noise += 1
    noise *= to_unit(images)
    return to_bytes(noise)
