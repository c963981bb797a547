"""Published results of the field's methods, with the source of every number.

The numbers are errors in %, as printed; `Published.accuracy` turns them into accuracies. Compare a
number only with others of its own table: model, images, protocol and learning rates differ between
tables. `reports.beside` shows a table's numbers where the setting is the same.
"""

from collections.abc import Mapping
from typing import NamedTuple

_BENCHMARK = (
    "Marsden, Doebler & Yang, benchmark.md of mariodoebler/test-time-adaptation, mean of 5 seeds"
)
_QUOTED = "Diffusion-calibrated continual TTA, AAAI 2026, which quotes the originals"
_RTTDP = "RTTDP (test-time poisoning), its table of methods before an attack"
_EATA = "README of mr-eggplant/EATA; means over the corruptions are computed"
_CLOCK = "Alfarra et al., ICML 2024, the stream that waits for the method"

_CIFAR10 = ("cifar10c", "WRN-28-10", "28-10")
_CIFAR100 = ("cifar100c", "ResNeXt-29 (trained with AugMix)", "resnext")
_RESNET50 = ("imagenet-c", "ResNet-50", "resnet50")


class Published(NamedTuple):
    """A published table: the errors of several methods in one setting."""

    data: str
    model: str
    model_key: str  # a part of the name or architecture by which this model is recognised
    protocol: str  # as `tapr bench --protocol`
    order: str | None  # as `tapr bench --order`
    images: int | None  # of each domain; None: not known
    batch_size: int
    source: str
    errors: Mapping[str, float]  # method -> mean error over the corruptions, in %
    severity: int | None = 5

    def accuracy(self, method: str) -> float | None:
        """The share of images predicted right, or None when the table has no such method."""
        error = self.errors.get(method)
        return None if error is None else round(1 - error / 100, 4)


def _table(
    net: tuple[str, str, str],
    protocol: str,
    source: str,
    errors: Mapping[str, float],
    order: str | None = None,
    images: int | None = None,
) -> Published:
    small = net[0] != "imagenet-c"
    count = images or (10_000 if small else 5_000)
    return Published(*net, protocol, order, count, 200 if small else 64, source, errors)


TABLES: tuple[Published, ...] = (
    _table(
        _CIFAR10,
        "continual",
        _BENCHMARK,
        {
            **{"source": 43.5, "norm": 20.4, "tent": 20.0, "eata": 17.9, "sar": 20.4, "roid": 16.2},
            **{"cotta": 16.5, "rotta": 19.3, "adacontrast": 18.5, "rmt": 17.0, "lame": 64.3},
        },
    ),
    _table(
        _CIFAR100,
        "continual",
        _BENCHMARK,
        {
            **{"source": 46.4, "norm": 35.4, "tent": 62.2, "eata": 32.2, "sar": 32.0, "roid": 29.3},
            **{"cotta": 32.8, "rotta": 34.8, "adacontrast": 33.5, "rmt": 30.2, "lame": 98.5},
        },
    ),
    _table(
        _RESNET50,
        "continual",
        _BENCHMARK,
        {
            **{"source": 82.0, "norm": 68.6, "tent": 62.6, "eata": 58.0, "sar": 61.9, "roid": 54.5},
            **{"cotta": 63.1, "rotta": 67.3, "adacontrast": 65.5, "rmt": 59.9, "lame": 93.5},
        },
    ),
    _table(
        _CIFAR10,
        "mixed",
        _BENCHMARK,
        {
            **{"source": 43.5, "norm": 33.8, "tent": 44.1, "eata": 28.6, "sar": 33.8, "roid": 28.0},
            **{"cotta": 32.5, "rotta": 33.4, "adacontrast": 26.2, "rmt": 31.0, "lame": 75.2},
        },
    ),
    _table(
        _CIFAR100,
        "mixed",
        _BENCHMARK,
        {
            **{"source": 46.4, "norm": 45.8, "tent": 82.5, "eata": 36.9, "sar": 45.5, "roid": 35.0},
            **{"cotta": 43.1, "rotta": 45.4, "adacontrast": 41.8, "rmt": 38.6, "lame": 98.4},
        },
    ),
    _table(
        _RESNET50,
        "mixed",
        _BENCHMARK,
        {
            **{"source": 82.0, "norm": 82.5, "tent": 86.4, "eata": 72.3, "sar": 79.4, "roid": 69.5},
            **{"cotta": 76.0, "rotta": 78.1, "adacontrast": 90.8, "rmt": 75.4, "lame": 95.1},
        },
    ),
    _table(
        ("cifar10c", "ResNet-26 with GroupNorm", "resnet26"),
        "continual",
        _BENCHMARK,
        {
            **{"source": 32.7, "tent": 87.6, "eata": 40.8, "sar": 37.1, "roid": 15.9, "lame": 11.3},
            **{"cotta": 44.5, "rotta": 33.7, "adacontrast": 30.5, "rmt": 57.5},
        },
        order="sorted",
    ),
    _table(_CIFAR10, "continual", _RTTDP, {"rpl": 21.0}),
    _table(_CIFAR100, "continual", _RTTDP, {"rpl": 47.1}),
    _table(
        _RESNET50,
        "each",
        _EATA,
        {"norm": 66.5, "tent": 57.4, "eta": 51.9, "eata": 52.2, "memo": 76.1},
        images=50_000,
    ),
    _table(
        ("imagenet-c", "ResNet-50 with GroupNorm, trained with a rotation head", "resnet50-gn"),
        "each",
        _EATA,
        {"source": 82.6, "ttt": 62.4},
        images=50_000,
    ),
    _table(
        _RESNET50,
        "each",
        _CLOCK,
        {
            **{"source": 82.0, "norm": 66.7, "tent": 57.3, "eata": 52.0, "sar": 56.2},
            **{"shot-im": 59.9, "cotta": 61.5, "memo": 76.3, "lame": 82.7},
        },
        images=50_000,
    ),
)

_ORDER = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur"),
    *("motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast"),
    *("elastic_transform", "pixelate", "jpeg_compression"),
)


def _by_corruption(*errors: float) -> dict[str, float]:
    return dict(zip(_ORDER, errors, strict=True))


# (data, method) -> errors in % by corruption, of the continual stream in this order; `QUOTED`.
BY_CORRUPTION: Mapping[tuple[str, str], Mapping[str, float]] = {
    ("cifar10c", "source"): _by_corruption(
        *(72.3, 65.7, 72.9, 46.9, 54.3, 34.8, 42.0, 25.1, 41.3, 26.0, 9.3, 46.7, 26.6, 58.5, 30.3)
    ),
    ("cifar10c", "norm"): _by_corruption(
        *(28.1, 26.1, 36.3, 12.8, 35.3, 14.2, 12.1, 17.3, 17.4, 15.3, 8.4, 12.6, 23.8, 19.7, 27.3)
    ),
    ("cifar10c", "tent"): _by_corruption(
        *(24.8, 20.5, 28.5, 14.5, 31.7, 16.2, 15.0, 19.2, 17.6, 17.4, 11.4, 16.3, 24.9, 21.6, 26.0)
    ),
    ("cifar10c", "cotta"): _by_corruption(
        *(24.6, 21.9, 26.5, 11.9, 27.8, 12.4, 10.6, 15.2, 14.4, 12.8, 7.4, 11.1, 18.7, 13.6, 17.8)
    ),
    ("cifar10c", "rotta"): _by_corruption(
        *(30.3, 25.4, 34.6, 18.3, 34.0, 14.7, 11.0, 16.4, 14.6, 14.0, 8.0, 12.4, 20.3, 16.8, 19.4)
    ),
    ("cifar10c", "rmt"): _by_corruption(
        *(24.1, 20.2, 25.7, 13.2, 25.5, 14.7, 12.8, 16.2, 15.4, 14.6, 10.8, 14.0, 18.0, 14.1, 16.6)
    ),
    ("cifar10c", "roid"): _by_corruption(
        *(23.7, 18.7, 26.4, 11.5, 28.1, 12.4, 10.1, 14.7, 14.3, 12.0, 7.5, 9.3, 19.8, 14.5, 20.3)
    ),
    ("cifar100c", "source"): _by_corruption(
        *(73.0, 68.0, 39.4, 29.3, 54.1, 30.8, 28.8, 39.5, 45.8, 50.3, 29.5, 55.1, 37.2, 74.7, 41.2)
    ),
    ("cifar100c", "norm"): _by_corruption(
        *(42.1, 40.7, 42.7, 27.6, 41.9, 29.7, 27.9, 34.9, 35.0, 41.5, 26.5, 30.3, 35.7, 32.9, 41.2)
    ),
    ("cifar100c", "cotta"): _by_corruption(
        *(40.1, 37.7, 39.7, 26.8, 38.0, 27.9, 26.5, 32.9, 31.7, 40.4, 24.6, 26.8, 32.5, 28.1, 33.8)
    ),
    ("cifar100c", "rotta"): _by_corruption(
        *(49.1, 44.9, 45.5, 30.2, 42.7, 29.5, 26.1, 32.2, 30.7, 37.5, 24.7, 29.1, 32.6, 30.4, 36.7)
    ),
    ("cifar100c", "rmt"): _by_corruption(
        *(40.2, 36.2, 36.0, 27.9, 33.9, 28.4, 26.4, 28.7, 28.8, 31.1, 25.5, 27.1, 28.0, 26.6, 29.0)
    ),
    ("cifar100c", "roid"): _by_corruption(
        *(36.5, 31.9, 33.2, 24.9, 34.9, 26.8, 24.3, 28.9, 28.5, 31.1, 22.8, 24.2, 30.7, 26.5, 34.4)
    ),
    ("imagenet-c", "source"): _by_corruption(
        *(97.8, 97.1, 98.2, 81.7, 89.8, 85.2, 78.0, 83.5, 77.0, 75.9, 41.3, 94.5, 82.5, 79.3, 68.5)
    ),
    ("imagenet-c", "cotta"): _by_corruption(
        *(84.5, 82.0, 80.4, 81.8, 79.5, 69.2, 58.8, 60.8, 61.1, 48.5, 36.5, 67.5, 47.8, 41.8, 45.9)
    ),
    ("imagenet-c", "rotta"): _by_corruption(
        *(88.3, 82.8, 82.1, 91.3, 83.7, 72.9, 59.4, 66.2, 64.3, 53.3, 35.6, 74.5, 54.3, 48.2, 52.6)
    ),
    ("imagenet-c", "rmt"): _by_corruption(
        *(79.9, 76.3, 73.1, 75.7, 72.9, 64.7, 56.8, 56.4, 58.3, 49.0, 40.6, 58.2, 47.8, 43.7, 44.8)
    ),
    ("imagenet-c", "roid"): _by_corruption(
        *(71.7, 62.2, 62.2, 69.6, 66.5, 57.1, 49.3, 52.3, 57.4, 43.5, 33.4, 59.1, 45.4, 41.8, 46.2)
    ),
}
QUOTED = _QUOTED
