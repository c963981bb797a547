"""Tensors that are no images: each is predicted, or refused by a sentence; the adapter stays.

`TAPR_ATTACK=N`: 20 N tensors are drawn for every method, besides those of the table.
"""

import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.attack.kinds import METHODS
from torch import Tensor

import tapr
from tapr.testing import small_model

AREA = "image tensors x methods"
DRAWN = 20 * int(os.environ.get("TAPR_ATTACK", "1"))
x = torch.rand(4, 3, 10, 9, generator=torch.Generator().manual_seed(0))


class Subclass(Tensor):
    pass


def freed() -> Tensor:
    images = x.clone()
    images.untyped_storage().resize_(0)
    return images


def fake() -> Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    images: Tensor = FakeTensorMode().from_tensor(x)
    return images


def made_in_inference_mode() -> Tensor:
    with torch.inference_mode():
        return x.clone()


# What is predicted as x would be: the same numbers in another guise.
SAME: dict[str, Callable[[], Any]] = {
    "itself": lambda: x,
    "channels last": lambda: x.contiguous(memory_format=torch.channels_last),
    "a strided view": lambda: torch.stack([x, x])[0],
    "a negative view": lambda: torch._neg_view(-x),
    "that requires a gradient": lambda: x.clone().requires_grad_(),
    "amid a graph": lambda: x.clone().requires_grad_() * 1,
    "a parameter": lambda: torch.nn.Parameter(x.clone()),
    "a subclass": lambda: x.as_subclass(Subclass),
    "made in inference mode": made_in_inference_mode,
    "just above 1": lambda: x.where(x < x.max(), 1 + 5e-5),
}
# What is predicted, somehow.
DEFINED: dict[str, Callable[[], Any]] = {
    "no images": lambda: x[:0],
    "one image": lambda: x[:1],
    "expanded images": lambda: x[:1].expand(4, -1, -1, -1),
    "one expanded number": lambda: torch.tensor(0.5).expand(4, 3, 10, 9),
    "numpy's expanded memory": lambda: torch.from_numpy(np.full((4, 3, 10, 9), 0.5, "f4")),
    "overlapping memory": lambda: torch.rand(300).as_strided((4, 3, 10, 9), (1, 2, 3, 4)),
    "all black": lambda: x * 0,
    "all white": lambda: x * 0 + 1,
    "minus zero": lambda: -x * 0,
    "denormal": lambda: x * 1e-42,
}
REFUSED: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "text": lambda: "cat",
    "an array": lambda: x.numpy(),
    "a list": lambda: x.tolist(),
    "a list of tensors": lambda: list(x),
    "a module": small_model,
    "no axes": lambda: torch.tensor(0.5),
    "one axis": lambda: x[0, 0, 0],
    "three axes": lambda: x[0],
    "five axes": lambda: x[None],
    "no channels": lambda: x[:, :0],
    "no height": lambda: x[:, :, :0],
    "no width": lambda: x[:, :, :, :0],
    "nothing at all": lambda: x[:0, :0, :0, :0],
    "no images without height": lambda: x[:0, :, :0],
    "one channel": lambda: x[:, :1],
    "five channels": lambda: torch.rand(4, 5, 10, 9),
    "no images of five channels": lambda: torch.rand(0, 5, 10, 9),
    "one pixel": lambda: x[:, :, :1, :1],
    "four pixels": lambda: x[:, :, :2, :2],
    "NaN": lambda: x * float("nan"),
    "one NaN": lambda: x.index_fill(3, torch.tensor([2]), float("nan")),
    "infinity": lambda: x / 0,
    "minus infinity": lambda: -x / 0,
    "normalised": lambda: x - 0.5,
    "0 to 255": lambda: x * 255,
    "just too much": lambda: x + 1e-3,
    "huge": lambda: x * 3e38,
    "uint8": lambda: (x * 255).byte(),
    "uint16": lambda: (x * 255).to(torch.uint16),
    "int64": lambda: (x * 255).long(),
    "bool": lambda: x > 0.5,
    "bits": lambda: x.view(torch.uint8).view(torch.bits8),
    "complex": lambda: x.to(torch.complex64),
    "complex half": lambda: x.to(torch.complex32),
    "half": x.half,
    "bfloat16": x.bfloat16,
    "double": x.double,
    "float8 e4m3": lambda: x.to(torch.float8_e4m3fn),
    "float8 e5m2": lambda: x.to(torch.float8_e5m2),
    "sparse": x.to_sparse,
    "sparse in part": lambda: x.to_sparse(2),
    "sparse rows": lambda: x.flatten(1).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([x[0], x[1]]),
    "nested, of two sizes": lambda: torch.nested.nested_tensor([x[0], x[1, :, :5]]),
    "mkldnn": x.to_mkldnn,
    "quantized": lambda: torch.quantize_per_tensor(x, 1 / 255, 0, torch.quint8),
    "meta": lambda: x.to("meta"),
    "masked": lambda: torch.masked.masked_tensor(x, x > 0.5),
    "fake": fake,
    "memory that is gone": freed,
}
pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of the tensors it is asked for


@pytest.fixture(params=METHODS)
def adapter(request: pytest.FixtureRequest) -> tapr.Adapter:
    made = tapr.adapt(small_model(), request.param)
    made(x)
    return made


def test_the_same_numbers_in_another_guise_give_the_same_logits(
    adapter: tapr.Adapter, tally: Any
) -> None:
    before = adapter.capture()
    plain = adapter(x)
    for name, make in SAME.items():
        adapter.put_back(before)

        def predict(make: Callable[[], Any] = make) -> str | None:
            given = make()
            version = None if given.is_inference() else given._version
            logits = adapter(given)
            if version is not None and given._version != version:
                return "the images were written"
            return None if torch.allclose(logits, plain, atol=1e-3) else "other logits"

        tally.attempt(AREA, name, predict)
    assert tally.results == len(SAME)


def test_odd_images_have_finite_logits(adapter: tapr.Adapter, tally: Any) -> None:
    for name, make in DEFINED.items():
        tally.attempt(AREA, name, lambda make=make: defined(adapter, make()))
    assert tally.results == len(DEFINED)


def test_what_is_no_batch_of_images_is_never_a_raw_exception(
    adapter: tapr.Adapter, tally: Any
) -> None:
    before = adapter.capture()
    for name, make in REFUSED.items():
        tally.attempt(AREA, name, lambda make=make: f"predicted {adapter(make()).shape}")
        tally.unchanged(AREA, name, adapter, before)
    assert tally.sentences == len(REFUSED)


def defined(adapter: tapr.Adapter, images: Tensor) -> str | None:
    logits = adapter(images)
    if logits.shape != (len(images), 5):
        return f"logits of shape {list(logits.shape)}"
    return None if logits.isfinite().all() else "logits that are not finite"


numbers = st.one_of(st.floats(width=32), st.sampled_from([-0.0, 1.0, 1.0001, 1.001, 255.0, 1e-40]))
sizes = st.lists(st.integers(0, 12), max_size=5)
kinds = st.sampled_from(
    [torch.float32] * 6
    + [torch.float64, torch.float16, torch.bfloat16, torch.float8_e5m2, torch.uint8, torch.bool]
    + [torch.int16, torch.complex64]
)


@pytest.mark.parametrize("method", METHODS)
def test_drawn_tensors(method: str, tally: Any) -> None:
    adapter = tapr.adapt(small_model(), method)
    assert adapter.source  # the optimiser is made now, and not by the first call
    good = st.tuples(st.integers(0, 3), st.just(3), st.integers(1, 12), st.integers(1, 12))

    @settings(max_examples=DRAWN, derandomize=True, deadline=None, database=None)
    @given(st.one_of(good, sizes), kinds, numbers, numbers, st.booleans())
    def attack(size: list[int], kind: torch.dtype, one: float, two: float, spoil: bool) -> None:
        images = torch.rand(list(size), generator=torch.Generator().manual_seed(0))
        if images.numel() and spoil:
            images.view(-1)[0], images.view(-1)[-1] = one, two
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = images.to(kind)
        before = adapter.capture()
        what = f"{list(size)} {kind}" + (f" with {one}, {two}" if spoil else "")
        if tally.attempt(AREA, what, lambda: defined(adapter, given)) is not None:
            tally.unchanged(AREA, what, adapter, before)

    attack()
    assert tally.sentences
    assert tally.results
