"""The cost of a batch: predicted, and compared with what happens."""

from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

import tapr
from tapr.methods.source import Source

METHODS: dict[str, dict[str, Any]] = {
    "source": {},
    "norm": {"statistics": "running"},
    "tent": {},
    "pest": {"steps": 2},
    "pest-control": {"steps": 2, "lr": 0.0},
    "memo": {"views": 4},
}


@pytest.mark.parametrize("name", METHODS)
def test_flops_and_passes_are_what_happens(model: nn.Module, images: Tensor, name: str) -> None:
    adapter = tapr.adapt(model, name.partition("-")[0], **METHODS[name])
    before = adapter.state_dict()
    cost = adapter.cost(images.shape)
    after = adapter.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before if k != "_extra_state")
    seen: list[int] = []
    adapter.model.register_forward_hook(lambda m, inputs, out: seen.append(len(inputs[0])))
    with FlopCounterMode(display=False) as counter:
        adapter(images)
    assert cost.forward == sum(seen)
    assert cost.backward == adapter.passes.backward * len(images)
    assert cost.flops == counter.get_total_flops()


def test_memory_grows_with_what_is_kept_for_the_backward(model: nn.Module) -> None:
    def memory(method: str, images: int = 8, **options: Any) -> int:
        return tapr.adapt(model, method, **options).cost((images, 3, 10, 9)).memory

    assert memory("source") < memory("norm") + 1 < memory("tent") < memory("pest")
    grown = memory("pest", images=16) - memory("pest")
    assert grown == pytest.approx(memory("pest", images=24) - memory("pest", images=16))
    # Of an image: convolution input, its output and the normalised one (ReLU's), each float32.
    between = 4 * (3 * 90 + 3 * 6 * 90 + 3 * 8 * 16 + 32)
    assert grown / 8 / 3 == pytest.approx(between, rel=0.5)


def test_memo_holds_one_image_s_passes_at_a_time_and_all_views(model: nn.Module) -> None:
    def memory(images: int, **options: Any) -> int:
        return tapr.adapt(model, "memo", views=4, **options).cost((images, 3, 10, 9)).memory

    views = 4 * 4 * 3 * 10 * 9  # bytes of the four float32 views of an image
    assert memory(2) - memory(1) == views
    assert memory(99) - memory(98) == 3 * views  # repeated, cropped and mixed
    assert memory(9, vectorised=True) - memory(1, vectorised=True) > 2 * 8 * views


def test_memo_s_memory_is_what_tensors_take_at_the_peak(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(32, 3, 32, 32, generator=generator)
    adapter = tapr.adapt(model, "memo", views=64)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        adapter(images)
    events = profiler.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    peak = max(accumulate(change for _, change in changes))
    assert 0.6 < adapter.cost(images.shape).memory / peak < 1.2


def test_an_adapter_of_your_own_and_a_wrong_shape(model: nn.Module) -> None:
    assert Source(model).cost((4, 3, 10, 9))[:2] == (4, 0)
    with pytest.raises(tapr.TaprError, match=r"shape \[B, C, H, W\] of a batch, got \[3, 10, 9\]"):
        Source(model).cost((3, 10, 9))
