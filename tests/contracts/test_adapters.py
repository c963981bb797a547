"""What every adapter owes, whatever its method: one table, every property."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapr
from tapr.adapters import Adapter
from tapr.objectives import Objective
from tapr.types import Loss

ADAPTERS: dict[str, dict[str, Any]] = {
    "source": {},
    "norm": {},
    "norm-running": {"statistics": "running"},
    "norm-cumulative": {"statistics": "cumulative"},
    "norm-blend": {"statistics": "blend", "prior": 4.0},
    "tent": {},
    "tent-blend": {"statistics": "blend", "predict": "after"},
    "tent-episodic": {"episodic": True, "lr": 0.1},
    "tent-released": {"preset": "released"},
    "pest": {"lr": 0.01},
    "pest-randaugment": {"augmentation": "randaugment", "lr": 0.01, "redraw": True},
    "pest-released": {"preset": "released", "lr": 0.01},
    "pest-batch": {"statistics": "batch", "predict": "before", "lr": 0.01},
    "pest-cumulative": {"statistics": "cumulative", "feed": "untouched", "lr": 0.01},
    "pest-untouched": {"feed": "untouched", "lr": 0.01},
    "pest-blend": {"statistics": "blend", "lr": 0.01},
    "pest-source": {"statistics": "source", "lr": 0.01},
    "pest-consistency": {"entropy_weight": 0.0, "lr": 0.01},
    "pest-entropy": {"consistency_weight": 0.0, "lr": 0.01},
    "pest-squared": {"consistency": "squared_error", "lr": 0.01},
    "pest-backbone": {"scope": "backbone", "lr": 0.01},
    "pest-predicate": {"scope": lambda name, parameter: name.endswith("bias"), "lr": 0.01},
    "pest-clipped": {"max_grad_norm": 1e-3, "lr": 0.01},
}
Make = Callable[..., Adapter]


@pytest.fixture(params=ADAPTERS, ids=str)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(name: str, model: nn.Module) -> Make:
    def make(**more: Any) -> Adapter:
        return tapr.adapt(model, name.partition("-")[0], **{**ADAPTERS[name], **more})

    return make


def batches() -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.rand(size, 3, 10, 9, generator=generator) for size in (8, 8, 5)]


def states_equal(a: nn.Module, b: nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def test_the_callers_model_is_bit_identical_afterwards(make: Make, model: nn.Module) -> None:
    before = deepcopy(model)
    flags = [p.requires_grad for p in model.parameters()]
    adapter = make()
    for batch in batches():
        adapter(batch)
    assert states_equal(model, before)
    assert [p.requires_grad for p in model.parameters()] == flags
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_pre_hooks for m in adapter.modules())


def test_only_parameters_in_scope_move(make: Make, model: nn.Module, name: str) -> None:
    adapter = make()
    for batch in batches():
        adapter(batch)
    source = dict(model.named_parameters())
    moved = {n for n, p in adapter.model.named_parameters() if not torch.equal(p, source[n])}
    every = set(source)
    expected = {
        "tent": {"1.weight", "1.bias"},
        "source": set(),
        "norm": set(),
        "pest": every,
        "pest-backbone": {n for n in every if not n.startswith("7")},
        "pest-predicate": {n for n in every if n.endswith("bias")},
    }
    wanted = expected.get(name, expected[name.partition("-")[0]])
    # Batch norm subtracts what a bias before it adds: whether rounding moves that one is no matter.
    assert moved - {"0.bias"} == wanted - {"0.bias"}


def test_reset_restores_bit_for_bit(make: Make) -> None:
    adapter = make()
    first = [adapter.predict(batch) for batch in batches()]
    adapter.reset()
    again = [adapter.predict(batch) for batch in batches()]
    for a, b in zip(first, again, strict=True):
        assert torch.equal(a.logits, b.logits)
        assert a[1:] == b[1:]


def test_same_seed_same_logits_and_the_global_generator_is_untouched(make: Make) -> None:
    before = torch.random.get_rng_state()
    a, b = make(), make()
    for batch in batches():
        assert torch.equal(a(batch), b(batch))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_works_under_no_grad_with_the_same_result(make: Make) -> None:
    a, b = make(), make()
    with torch.no_grad():
        inside = [a(batch) for batch in batches()]
    outside = [b(batch) for batch in batches()]
    assert all(torch.equal(x, y) for x, y in zip(inside, outside, strict=True))
    assert not any(x.requires_grad for x in outside)


def test_inference_mode_is_refused_and_leaves_the_state(make: Make) -> None:
    adapter = make()
    with torch.inference_mode(), pytest.raises(tapr.TaprError, match="inference_mode"):
        adapter(batches()[0])
    assert torch.equal(adapter(batches()[0]), make()(batches()[0]))


def test_images_made_in_inference_mode_are_welcome(make: Make) -> None:
    with torch.inference_mode():
        images = batches()[0].clone()
    assert torch.equal(make()(images), make()(batches()[0]))


def test_a_batch_of_one_is_defined(make: Make) -> None:
    logits = make()(batches()[0][:1])
    assert logits.shape == (1, 5)
    assert torch.isfinite(logits).all()


def test_an_empty_batch_gives_empty_logits_and_changes_nothing(make: Make) -> None:
    adapter = make()
    assert adapter(torch.zeros(0, 3, 10, 9)).shape == (0, 5)
    assert torch.equal(adapter(batches()[0]), make()(batches()[0]))


def test_images_are_not_written(make: Make) -> None:
    images = batches()[0]
    before = images.clone()
    make()(images)
    assert torch.equal(images, before)


def test_state_goes_on_from_disk(make: Make, model: nn.Module, tmp_path: Path, name: str) -> None:
    adapter = make()
    first, *rest = batches()
    adapter(first)
    adapter.save(tmp_path / "state.safetensors")
    own = {k: v for k, v in ADAPTERS[name].items() if callable(v)}
    other = tapr.load(tmp_path / "state.safetensors", model, **own)
    for batch in rest:
        assert torch.equal(adapter(batch), other(batch))
    other.reset()
    assert torch.equal(other(first), make()(first))
    assert [p.name for p in tmp_path.iterdir()] == ["state.safetensors"]


def test_state_goes_on_from_a_state_dict(make: Make) -> None:
    adapter, other = make(), make()
    first, *rest = batches()
    adapter(first)
    other.load_state_dict(adapter.state_dict())
    for batch in rest:
        assert torch.equal(adapter(batch), other(batch))
    other.reset()
    assert torch.equal(other(first), make()(first))


def test_train_and_eval_calls_change_nothing(make: Make) -> None:
    adapter = make()
    adapter.train()
    adapter.model.train()
    assert torch.equal(adapter(batches()[0]), make()(batches()[0]))


def test_inplace_adapts_the_model_itself(make: Make, model: nn.Module) -> None:
    expected = make()(batches()[0])
    adapter = make(inplace=True)
    assert adapter.model is model
    assert torch.equal(adapter(batches()[0]), expected)


class Filtering(Objective):
    """Lets no image drive the update."""

    def forward(self, view_logits: Tensor) -> Loss:
        value = view_logits.square().sum((0, 2))
        return Loss(value, torch.zeros_like(value, dtype=torch.bool), {})


@pytest.mark.parametrize("name", ["tent", "pest-batch"])
def test_an_all_filtered_batch_takes_no_step(make: Make, model: nn.Module, name: str) -> None:
    adapter: Any = make()
    adapter.objective = Filtering()
    prediction = adapter.predict(batches()[0])
    assert (prediction.steps, prediction.kept, prediction.loss) == (0, 0, None)
    assert states_equal(adapter.model, model)


# Images are looked at before any method runs, so a few methods stand for all here.
FEW = pytest.mark.parametrize("name", ["source", "norm-running", "pest"])


@FEW
@pytest.mark.parametrize("shape", [(3, 10, 9), (8, 30), (8, 3, 10), (8, 3, 10, 9, 1)])
def test_wrong_rank_is_refused(make: Make, shape: tuple[int, ...]) -> None:
    refused(make, torch.zeros(shape), "expected images of shape")


@FEW
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: (x * 255).to(torch.uint8), r"uint8; divide by 255"),
        (lambda x: x * 255, r"expected images in \[0, 1\], got maximum 2\d\d.*divide by 255"),
        (lambda x: x * 2 - 1, "got minimum -.*normalis"),
        (lambda x: x.masked_fill(x > 0.9, float("nan")), "NaN or infinity in 8 of 8"),
        (lambda x: x.masked_fill(x > 0.9, float("inf")), "NaN or infinity in 8 of 8"),
        (lambda x: x[:, :1], "expected images with 3 channels.* got 1"),
        (lambda x: x.numpy(), "torch.Tensor, got ndarray"),
    ],
)
def test_bad_images_get_a_sentence_and_leave_the_state(
    make: Make, change: Callable[[Tensor], Any], message: str
) -> None:
    refused(make, change(batches()[0]), message)


def refused(make: Make, images: Any, message: str) -> None:
    adapter, fresh = make(), make()
    first, second, _ = batches()
    adapter(first), fresh(first)
    with pytest.raises(tapr.TaprError, match=message):
        adapter(images)
    assert torch.equal(adapter(second), fresh(second))
