"""Devices by name, checked before any work, and how batches are moved to them."""

import torch
from torch import Tensor

from tapr.errors import InputError

AUTO = "auto"


def usable(device: torch.device | str) -> torch.device:
    """Return the device, or raise InputError when a tensor cannot be made on it.

    "auto" is a GPU where there is one, else Apple's MPS, else the CPU.

    >>> usable("cpu")
    device(type='cpu')
    """
    try:
        return torch.empty(0, device=_best() if device == AUTO else device).device
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
        reason = str(error).splitlines()[0]
        raise InputError(f"cannot use the device {str(device)!r}: {reason}") from error


def sent(images: Tensor, device: torch.device | str) -> Tensor:
    """The images on the device; a GPU gets them from pinned memory, and we do not wait for it."""
    if torch.device(device).type == "cuda" and images.device.type == "cpu":
        return images.pin_memory().to(device, non_blocking=True)
    return images.to(device)


def _best() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
