"""The one place where a file becomes an image: known kinds only, and always RGB of 8 bits.

| the file's image              | becomes                                                     |
|-------------------------------|-------------------------------------------------------------|
| grey, 1-bit, palette          | the same colours in RGB                                     |
| CMYK, YCbCr, HSV              | RGB by Pillow's plain formulas, without a colour profile    |
| with transparency             | the colours as they are stored: the alpha channel is dropped |
| grey of 9 to 16 bits          | its full range scaled to 0 .. 255, rounded                  |
| colour of 16 bits a channel   | the upper 8 bits of each value, which is all Pillow reads   |
| animated, or of several pages | its first frame                                             |
| turned by its EXIF tag        | upright                                                     |
| float or 32-bit               | refused: nothing says which value is white                  |
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from tapr.datasets.members import read_regular
from tapr.errors import DataError

# By content, not by name. Pillow knows more, some of which start other programs (EPS: Ghostscript).
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")

_RANGE_UNKNOWN = {"F": "float", "I": "32-bit"}
_SCALED_TO_16_BITS = ("PNG", "PPM")  # what Pillow reads as "I" although it has 16 bits
_ORIENTATION = 0x0112  # the EXIF tag
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDEWAYS = range(5, 9)  # orientations that swap width and height
_BITS_PER_SAMPLE, _PHOTOMETRIC = 258, 262  # TIFF tags
_WHITE_IS_ZERO = 0


def read_image(path: Path) -> Image.Image:
    """Read the image in a file, as `decode` does; DataError says why when there is none."""
    return decode(read_regular(path))


def decode(data: bytes, *, upright: bool = True) -> Image.Image:
    """Decode a file's bytes to an RGB image, turned as its EXIF tag says unless not `upright`."""
    with _opened(data) as image:
        image.load()
        turn = _TURNS.get(_orientation(image)) if upright else None
        colours = to_rgb(image)
        return colours if turn is None else colours.transpose(turn)


def probe(data: bytes) -> tuple[int, int]:
    """The (height, width) of an image, upright; DataError when it cannot be decoded."""
    with _opened(data) as image:
        width, height = image.size
        image.draft("RGB", (32, 32))  # a JPEG is then read whole, but decoded small
        before = image.size
        image.load()
        if image.size == before[::-1] != before:  # Pillow has turned a TIFF already
            width, height = height, width
        return (width, height) if _orientation(image) in _SIDEWAYS else (height, width)


def to_rgb(image: Image.Image) -> Image.Image:
    """Turn an image of any mode into RGB of 8 bits, as the table of this module says."""
    _check_range(image)
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I"):  # Pillow would clip, not scale
        return Image.fromarray(_scaled(image)).convert("RGB")
    if image.mode in ("PA", "RGBa") or (image.mode == "P" and "transparency" in image.info):
        image = image.convert("RGBA")
    return image.convert("RGB")


def _orientation(image: Image.Image) -> int:
    """How the camera was held, 1 to 8; to be asked once the image is loaded."""
    found = image.getexif().get(_ORIENTATION)
    return found if isinstance(found, int) else 1


def _scaled(image: Image.Image) -> NDArray[np.uint8]:
    """Grey values of up to 16 bits, scaled to 8 by the whole range: 65535 becomes 255."""
    tags = getattr(image, "tag_v2", {})  # of a TIFF
    bits = tags.get(_BITS_PER_SAMPLE, (16,))[0]
    most = (1 << bits) - 1
    values: NDArray[np.int64] = np.asarray(image).astype(np.int64)
    if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO:  # which Pillow heeds for 8 bits only
        values = most - values
    scaled: NDArray[np.int64] = (510 * values + most) // (2 * most)
    return scaled.clip(0, 255).astype(np.uint8)


def _check_range(image: Image.Image) -> None:
    if image.mode == "I" and image.format in _SCALED_TO_16_BITS:
        return
    if image.mode in _RANGE_UNKNOWN:
        raise DataError(
            f"{_RANGE_UNKNOWN[image.mode]} image, whose range is not known: "
            "expected 8 or 16 bits a channel"
        )


@contextmanager
def _opened(data: bytes) -> Iterator[Image.Image]:
    Image.init()
    known = [name for name in FORMATS if name in Image.OPEN]
    try:
        with Image.open(io.BytesIO(data), formats=known) as image:
            _check_range(image)
            yield image
    except DataError:
        raise
    except UnidentifiedImageError as error:  # whose own words are about a BytesIO object
        raise DataError("it is not an image of a known format") from error
    except MemoryError as error:
        raise DataError("it takes more memory than there is") from error
    except Exception as error:  # Pillow raises many kinds on a damaged file
        raise DataError(str(error) or type(error).__name__) from error
