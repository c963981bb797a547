"""Models of 16 bits learn, on a CPU too, where torch's fused SGD does not."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapr

SIXTEEN = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("kind", SIXTEEN)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_step_of_16_bits_is_not_lost(
    model: nn.Module, images: Tensor, kind: torch.dtype, momentum: float
) -> None:
    options: dict[str, Any] = {
        "steps": 1,
        "lr": 0.5,
        "momentum": momentum,
        "consistency_weight": 0.0,
    }
    exact = tapr.adapt(model, "pest", **options)
    rough = tapr.adapt(model.to(kind), "pest", **options)
    exact.model.float()
    exact(images), rough(images.to(kind))
    for (name, one), two in zip(
        exact.model.named_parameters(), rough.model.parameters(), strict=True
    ):
        torch.testing.assert_close(two.float(), one, atol=0.06, rtol=0.02, msg=name)
    source = dict(model.named_parameters())
    still = {n for n, p in rough.model.named_parameters() if torch.equal(p, source[n])}
    assert still <= {"0.bias"}  # which batch norm takes out again


@pytest.mark.parametrize("kind", SIXTEEN)
@pytest.mark.parametrize("method", ["tent", "pest"])
def test_what_is_remembered_of_16_bits_is_finite(
    model: nn.Module, images: Tensor, kind: torch.dtype, method: str
) -> None:
    junk = [torch.full_like(p, torch.inf, dtype=kind) for p in model.parameters() for _ in range(9)]
    del junk  # memory that is used again without being cleared would show it
    adapter = tapr.adapt(model.to(kind), method)
    for _ in range(3):
        adapter(images.to(kind))
    assert all(t.isfinite().all() for t in adapter.live().values() if t.is_floating_point())


def test_an_adapter_made_smaller_within_a_stream_still_learns(
    model: nn.Module, images: Tensor
) -> None:
    adapter = tapr.adapt(model, "pest", lr=0.1)
    adapter(images)
    adapter.bfloat16()
    before = [p.detach().clone() for p in adapter.model.parameters()]
    adapter(images.bfloat16())
    after = list(adapter.model.parameters())
    assert any(not torch.equal(p, q) for p, q in zip(before, after, strict=True))
