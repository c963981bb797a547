"""What a model's output is taken for: one documented rule."""

from collections.abc import Mapping

from torch import Tensor

from tapr.errors import ModelError
from tapr.models.state import FLOATS, oddity


def logits_of(output: object, images: int) -> Tensor:
    """Find the [B, K] logits in a model's output.

    A tensor is taken as it is; of a mapping the entry `logits`; of an object with the attribute
    `.logits` that; of any other tuple or list the first element.

    >>> import torch
    >>> tuple(logits_of({"logits": torch.zeros(2, 5)}, images=2).shape)
    (2, 5)
    """
    found = output
    if isinstance(found, Mapping):
        found = found.get("logits")
    elif isinstance(found, tuple | list) and not hasattr(found, "logits"):
        found = found[0] if found else None
    elif not isinstance(found, Tensor):
        found = getattr(found, "logits", None)
    if not isinstance(found, Tensor):
        raise ModelError(
            "expected the model to return logits [B, K], or a tuple that begins with them, or a"
            f" mapping or object with 'logits', got {type(output).__name__}"
        )
    if oddity(found) or found.dtype not in FLOATS:
        raise ModelError(
            "expected logits as a plain tensor of floats, got one"
            f" {oddity(found) or f'of {found.dtype}'}"
        )
    if found.ndim != 2 or len(found) != images or found.shape[1] < 2:
        raise ModelError(
            f"expected logits of shape [{images}, K] with K >= 2 classes, got {list(found.shape)}"
        )
    return found
