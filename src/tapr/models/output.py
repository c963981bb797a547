"""What a model's output is taken for: one documented rule."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import functional

from tapr.errors import InputError, ModelError
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


class Answers:
    """Makes answers of a kind, such as `ImageClassifierOutput`; without a kind, they are logits."""

    def __init__(self, kind: type | None) -> None:
        self.kind = kind

    def __call__(self, logits: Tensor, labels: Tensor | None = None) -> Any:
        """The answer with these logits, and their loss where there are labels."""
        if self.kind is None:
            if labels is not None:
                raise InputError("expected labels for a model of Hugging Face only: leave them out")
            return logits
        loss = None if labels is None else functional.cross_entropy(logits, labels)
        return self.kind(loss=loss, logits=logits)


def answers(output: object) -> Answers:
    """How to answer as a model does whose output this is: outputs of Hugging Face stay such."""
    is_kind = hasattr(output, "logits") and hasattr(output, "to_tuple")
    return Answers(type(output) if is_kind else None)
