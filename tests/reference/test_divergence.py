"""The consistency against scipy, finite differences, and its bounds."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import rel_entr
from torch import Tensor

from tapr.objectives import (
    JensenShannon,
    SquaredError,
    SummedKL,
    Term,
    entropy,
    jensen_shannon,
    squared_error,
)
from tapr.types import Outputs


def said(logits: Tensor) -> Outputs:
    return Outputs(logits, torch.zeros(logits.shape[1], 3, 1, 1))


def draw(seed: int, views: int = 2, scale: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(views, 7, 10, generator=generator, dtype=torch.float64)


@given(st.integers(0, 10**6), st.floats(0.01, 50))
@settings(max_examples=40)
def test_two_views_equal_scipys_relative_entropies(seed: int, scale: float) -> None:
    logits = draw(seed, scale=scale)
    p, q = logits.softmax(-1).numpy()
    expected = (rel_entr(p, (p + q) / 2) + rel_entr(q, (p + q) / 2)).sum(-1) / 2
    np.testing.assert_allclose(jensen_shannon(logits).numpy(), expected, atol=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(0, 1e4))
@settings(max_examples=60)
def test_between_zero_and_log_v(seed: int, views: int, scale: float) -> None:
    value = jensen_shannon(draw(seed, views, scale))
    assert (value >= 0).all()
    assert (value <= math.log(views) + 1e-12).all()


def test_the_bounds_are_met() -> None:
    exclusive = 1e4 * torch.eye(4, dtype=torch.float64)[:, None]
    assert jensen_shannon(exclusive).item() == pytest.approx(math.log(4), abs=1e-12)
    equal = draw(0, 1).expand(3, -1, -1)
    assert jensen_shannon(equal).abs().max().item() < 1e-15
    assert squared_error(equal).abs().max().item() < 1e-30


@pytest.mark.parametrize("term", [JensenShannon(), SummedKL(), SquaredError()])
def test_gradients_equal_finite_differences(term: Term) -> None:
    logits = draw(1, views=3)[:, :2].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: term.per_image(said(x)), (logits,))


def test_entropy_gradient_equals_finite_differences() -> None:
    assert torch.autograd.gradcheck(entropy, (draw(2)[0].clone().requires_grad_(),))


def test_summed_kl_is_v_times_jensen_shannon_where_nothing_is_clamped() -> None:
    logits = draw(3, views=3, scale=1.0)
    expected = 3 * jensen_shannon(logits)
    torch.testing.assert_close(SummedKL().per_image(said(logits)), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0.0, 80.0, 6e4, math.inf])
@pytest.mark.parametrize("term", [JensenShannon(), SummedKL(), SquaredError()])
def test_saturated_logits_stay_finite(dtype: torch.dtype, size: float, term: Term) -> None:
    size = min(size, float(torch.finfo(dtype).max))
    logits = (torch.eye(3, dtype=torch.float64) * 2 - 1).mul(size).to(dtype)
    logits = logits[:, None].requires_grad_()
    value = term.per_image(said(logits)) + entropy(logits[0])
    value.sum().backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(value).all()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_are_judged_in_single(dtype: torch.dtype) -> None:
    logits = draw(4, views=3).to(dtype)
    value = jensen_shannon(logits)
    assert value.dtype == torch.float32
    torch.testing.assert_close(
        value.double(), jensen_shannon(logits.double()), rtol=1e-4, atol=1e-6
    )


def test_masked_classes_are_left_out() -> None:
    logits = draw(5, views=3)
    masked = torch.cat([logits, torch.full((3, 7, 2), -math.inf, dtype=torch.float64)], -1)
    torch.testing.assert_close(jensen_shannon(masked), jensen_shannon(logits))
    torch.testing.assert_close(entropy(masked), entropy(logits))
