"""A device by its name, or a sentence why not."""

import torch

from tapr.errors import InputError


def usable(device: torch.device | str) -> torch.device:
    """The device, on which a tensor has been made to see that it works.

    >>> usable("cpu")
    device(type='cpu')
    """
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
        reason = str(error).splitlines()[0]
        raise InputError(f"cannot use the device {str(device)!r}: {reason}") from error
