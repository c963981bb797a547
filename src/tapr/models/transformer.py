"""A vision transformer with timm's parts: found, given prompts, and looked into."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tapr import sync
from tapr.errors import ModelError

PARTS = ("patch_embed", "cls_token", "blocks", "norm", "head")


def find(model: nn.Module) -> Any:
    """The transformer in a model, which may have layers of its own before it."""
    for layer in model.modules():
        if all(getattr(layer, name, None) is not None for name in PARTS):
            blocks = list(layer.blocks)  # type: ignore[arg-type]
            if blocks and all(hasattr(block, "norm1") for block in blocks):
                return layer
    raise ModelError(
        f"expected a vision transformer as timm has them, with {', '.join(PARTS)} and a norm1 in"
        f" every block, and found none in {type(model).__name__}"
    )


@contextmanager
def prompted(transformer: Any, prompts: Tensor | None) -> Iterator[None]:
    """Put tokens [P, D] behind the class token during a forward, before the first block."""
    if prompts is None:
        yield
        return

    def insert(layer: object, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        tokens = inputs[0]
        added = prompts.to(tokens).expand(len(tokens), -1, -1)
        return torch.cat((tokens[:, :1], added, tokens[:, 1:]), 1), *inputs[1:]

    first = getattr(transformer, "norm_pre", None) or transformer.blocks[0]
    handle = first.register_forward_pre_hook(insert)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def class_tokens(transformer: Any) -> Iterator[list[Tensor]]:
    """Collect the class token behind every block during a forward."""
    seen: list[Tensor] = []
    handles = [
        block.register_forward_hook(lambda _, inputs, tokens: seen.append(sync.whole(tokens[:, 0])))
        for block in transformer.blocks
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def normalised(transformer: Any, seen: list[Tensor]) -> Tensor:
    """The class tokens as the next block's first norm, or the last norm, makes them: [B, L, D]."""
    norms = [block.norm1 for block in list(transformer.blocks)[1:]] + [transformer.norm]
    return torch.stack([norm(token) for norm, token in zip(norms, seen, strict=True)], 1)
