"""Devices by name, checked before any work."""

import torch

from tapr.errors import InputError


def usable(device: torch.device | str) -> torch.device:
    """Return the device, or raise InputError when a tensor cannot be made on it.

    >>> usable("cpu")
    device(type='cpu')
    """
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
        reason = str(error).splitlines()[0]
        raise InputError(f"cannot use the device {str(device)!r}: {reason}") from error
