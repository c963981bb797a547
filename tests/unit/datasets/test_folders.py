"""Sets of folders by name: where they are, their splits, and what a damaged file does."""

import logging
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tapr import datasets, streams
from tapr.datasets import DATASETS
from tapr.datasets.base import Logged
from tapr.datasets.preprocessing import Preprocessing
from tapr.errors import DataError

FIT = Preprocessing((3, 16, 16))


@pytest.fixture(autouse=True)
def cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAPR_CACHE", str(tmp_path / "cache"))


def save(path: Path, colour: int = 0, size: tuple[int, int] = (20, 24)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (colour, colour, colour)).save(path)
    return path


def have(name: str, folder: Path) -> None:
    DATASETS[name].get(Logged(), folder)


def test_a_folder_of_class_folders(tmp_path: Path) -> None:
    for place, wordnet in enumerate(("n01443537", "n01440764", "n02007558")):
        save(tmp_path / "r" / wordnet / "art_0.jpg", 40 * place)
    have("imagenet-r", tmp_path / "r")
    data = datasets.load("imagenet-r", size=FIT)
    assert data.classes == ("n01440764", "n01443537", "n02007558")
    assert (data.name, data.images[:].shape) == ("imagenet-r:test", (3, 16, 16, 3))
    assert datasets.is_sized("imagenet-r")
    assert datasets.is_only("imagenet-r")
    assert not datasets.is_only("imagenet-v2")
    with pytest.raises(DataError, match=r"imagenet-r in .* has no split 'photo'"):
        datasets.load("imagenet-r", "photo", size=FIT)


@pytest.mark.parametrize("asked", ["Real World", "real_world", "RealWorld"])
def test_a_folder_of_domains(tmp_path: Path, asked: str) -> None:
    for domain in ("Art", "Real World"):
        save(tmp_path / "home" / domain / "Alarm_Clock" / "00001.jpg")
    have("office-home", tmp_path / "home")
    assert datasets.load("office-home", asked, size=FIT).classes == ("Alarm_Clock",)
    with pytest.raises(DataError, match="has no split 'Arts'; expected one of 'Art'"):
        datasets.load("office-home", "Arts", size=FIT)


def test_val_is_the_test_split_of_imagenet(tmp_path: Path) -> None:
    save(tmp_path / "in" / "train" / "n01440764" / "a.JPEG", 9)
    save(tmp_path / "in" / "val" / "n01440764" / "b.JPEG", 200)
    have("imagenet", tmp_path / "in")
    assert datasets.load("imagenet", size=FIT).images[0].mean() > 190
    assert datasets.load("imagenet", "train", size=FIT).images[0].mean() < 20


def test_what_is_not_here_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="pacs is not here; `tapr data get pacs --from FOLDER`"):
        datasets.load("pacs", "photo")
    with pytest.raises(DataError, match="pacs is not downloaded for you: get it from https"):
        DATASETS["pacs"].get(Logged())
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="expected folders of images, one for each class"):
        have("pacs", tmp_path / "empty")
    assert DATASETS["pacs"].verify(Logged()) == ["pacs is not here"]


@pytest.fixture
def published(tmp_path: Path) -> Path:
    for corruption in ("fog", "snow"):
        for severity in range(1, 6):
            for wordnet in ("n01440764", "n01443537"):
                for number in range(3):
                    file = tmp_path / "c" / corruption / str(severity) / wordnet / f"{number}.JPEG"
                    save(file, 50 * severity, (224, 224))
    have("imagenet-c", tmp_path / "c")
    return tmp_path / "c"


def test_imagenet_c_as_published(published: Path) -> None:
    big = Preprocessing((3, 224, 224), 0.875)
    domains = streams.corrupted("imagenet-c", ["fog", "snow"], [1, 5], size=big)
    assert [str(domain.origin) for domain in domains] == ["imagenet-c, read from files"] * 4
    assert [domain.name for domain in domains] == ["fog-1", "fog-5", "snow-1", "snow-5"]
    first = domains[1].read(domains[1].numbers)
    assert first.shape == (6, 224, 224, 3)  # not resized to 256 and cropped again
    assert abs(first.mean() - 250) < 2
    with pytest.raises(DataError, match=r"imagenet-c in .* has no 'fgo-5'; did you mean 'fog-5'"):
        datasets.load("imagenet-c", "fgo-5")


def test_without_the_published_folders_photographs_are_corrupted(tmp_path: Path) -> None:
    for number in range(4):
        save(tmp_path / "in" / "n01440764" / f"{number}.JPEG", 100)
    with pytest.raises(DataError, match="imagenet is not here"):
        streams.corrupted("imagenet-c", ["fog"], size=FIT)
    have("imagenet", tmp_path / "in")
    (domain,) = streams.corrupted("imagenet-c", ["brightness"], [3], size=FIT)
    assert str(domain.origin) == "imagenet:test, generated with seed 0"
    assert domain.read(domain.numbers[:2]).mean() > 110


def test_a_truncated_photograph_is_named_and_the_stream_goes_on(
    published: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = published / "fog" / "5" / "n01440764" / "1.JPEG"
    noise = np.random.default_rng(0).integers(0, 256, (224, 224, 3), np.uint8)
    Image.fromarray(noise).save(bad, "JPEG")
    bad.write_bytes(bad.read_bytes()[:9000])
    with caplog.at_level(logging.WARNING, "tapr.streams"):
        domains = streams.corrupted("imagenet-c", ["fog"], size=FIT)
    assert "left out: n01440764/1.JPEG of imagenet-c:fog-5: image file is truncated" in caplog.text
    batches = list(streams.Stream(domains, 2))
    assert sum(len(batch.images) for batch in batches) == 5
