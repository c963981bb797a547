"""Small copies of images for the dashboard."""

import io

from PIL import Image
from torch import Tensor

from tapr.service.seen import Picture

SIDE = 96  # pixels at the most


def picture(image: Tensor, before: int, after: int) -> Picture:
    """A small PNG of an image [C, H, W] in [0, 1], and its classes before and after adaptation."""
    pixels = (image.detach().clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()
    drawn = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    drawn.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    drawn.save(file, "PNG")
    return Picture(file.getvalue(), before, after)
