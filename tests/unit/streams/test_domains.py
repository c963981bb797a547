"""Domains: which images, where from, the same picture whatever the subset."""

from pathlib import Path

import numpy as np
import pytest

from tapr import streams
from tapr.corruptions import corrupt
from tapr.datasets import Dataset
from tapr.datasets.base import Logged
from tapr.datasets.catalogue import CIFAR10C
from tapr.errors import InputError, UnknownNameError
from tapr.streams import Origin
from tapr.streams.domains import Subset, choose

RANDOM = np.random.default_rng(0)
DATA = Dataset(
    "small",
    RANDOM.integers(0, 256, (12, 32, 32, 3), np.uint8),
    RANDOM.integers(0, 3, 12),
    ("a", "b", "c"),
)


def test_clean() -> None:
    domain = streams.clean(DATA, [3, 1])
    np.testing.assert_array_equal(domain.read(domain.numbers), DATA.images[[3, 1]])
    assert domain.labels is not None
    assert DATA.labels is not None
    np.testing.assert_array_equal(domain.labels, DATA.labels[[3, 1]])
    assert (domain.name, len(domain), domain.classes) == ("clean", 2, DATA.classes)
    assert (domain.corruption, domain.severity, str(domain.origin)) == (None, None, "small")


def test_a_subset_gets_the_same_pictures() -> None:
    whole = corrupt(np.asarray(DATA.images), "gaussian_noise", 3, seed=7)
    for subset in ([5, 2, 9], 4, None):
        domain = streams.generated(DATA, "gaussian_noise", 3, subset, seed=7)
        np.testing.assert_array_equal(domain.read(domain.numbers), whole[domain.numbers])
        assert (domain.name, domain.corruption, domain.severity) == (
            "gaussian_noise-3",
            "gaussian_noise",
            3,
        )
        assert domain.origin == Origin("small", "generated", 7)
        assert str(domain.origin) == "small, generated with seed 7"


def test_corrupted_makes_a_domain_for_each() -> None:
    domains = streams.corrupted(DATA, ["shot_noise", "gaussian_noise"], [1, 5], subset=2)
    assert [domain.name for domain in domains] == [
        "shot_noise-1",
        "shot_noise-5",
        "gaussian_noise-1",
        "gaussian_noise-5",
    ]
    assert {len(domain) for domain in domains} == {2}


def test_clean_images_are_a_domain_beside_others() -> None:
    domains = streams.corrupted(DATA, ["fog", "clean"], [1, 3])
    assert [domain.name for domain in domains] == ["fog-1", "fog-3", "clean"]
    np.testing.assert_array_equal(domains[2].read(np.arange(3)), DATA.images[:3])


def test_published_files_are_used_when_all_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tapr.streams.domains.load", _load_small)
    (domain,) = streams.corrupted("cifar10c", ["shot_noise"])
    assert domain.origin == Origin("small", "generated", 0)
    folder = tmp_path / "published"
    folder.mkdir()
    images = RANDOM.integers(0, 256, (60, 32, 32, 3), np.uint8)
    np.save(folder / "shot_noise.npy", images)
    np.save(folder / "labels.npy", np.tile(DATA.labels, 5))  # type: ignore[arg-type]
    CIFAR10C.get(Logged(), folder)
    (domain,) = streams.corrupted("cifar10c", ["shot_noise"], [2], subset=3)
    assert domain.origin == Origin("cifar10c", "published")
    assert str(domain.origin) == "cifar10c, read from files"
    np.testing.assert_array_equal(domain.read(domain.numbers), images[12:15])
    for domain in streams.corrupted("cifar10c", ["shot_noise", "gaussian_noise"]):
        assert domain.origin == Origin("small", "generated", 0)


def _load_small(name: str, split: str = "test", size: object = None) -> Dataset:
    from tapr.datasets import load

    return DATA if name == "cifar10" else load(name, split)


def test_so_many_are_the_first() -> None:
    assert choose(DATA, 3).tolist() == [0, 1, 2]
    assert choose(DATA, None).tolist() == list(range(12))
    assert choose(DATA, np.array([4, 4])).tolist() == [4, 4]


def test_so_many_of_a_class_sorted_set_are_spread_over_it() -> None:
    by_class = Dataset("x", DATA.images, np.repeat(np.arange(3), 4), DATA.classes)
    assert choose(by_class, 3).tolist() == [0, 4, 8]
    assert choose(by_class, 12).tolist() == list(range(12))


@pytest.mark.parametrize(
    ("subset", "message"),
    [
        (0, "expected 1 to 12 images of small, got 0"),
        (13, "expected 1 to 12 images of small, got 13"),
        ([], "expected the subset as a list of image numbers"),
        ([12], "expected image numbers from 0 to 11, got 12 to 12"),
        ([-1, 3], "got -1 to 3"),
        (np.array([0.5]), "as a list of image numbers"),
    ],
)
def test_bad_subsets(subset: Subset, message: str) -> None:
    with pytest.raises(InputError, match=message):
        streams.clean(DATA, subset)


@pytest.mark.parametrize("severity", [0, 6, True, 2.5])
def test_bad_severity(severity: int) -> None:
    with pytest.raises(InputError, match=f"expected a severity from 1 to 5, got {severity}"):
        streams.corrupted(DATA, ["fog"], [severity])


def test_bad_names() -> None:
    with pytest.raises(UnknownNameError, match="unknown corruption 'fgo'; did you mean 'fog'"):
        streams.corrupted(DATA, ["fgo"])
    with pytest.raises(UnknownNameError, match="did you mean 'cifar10c'"):
        streams.corrupted("cifar10cc")
    with pytest.raises(InputError, match="at least one corruption and one severity"):
        streams.corrupted(DATA, [])
