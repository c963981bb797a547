"""What every adapter owes, whatever its method: one table, every check of `tapr.testing`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import Transformer, Turning
from torch import Tensor, nn

import tapr
from tapr import testing
from tapr.adapters import Adapter
from tapr.objectives import Objective
from tapr.types import Loss, Outputs

SOURCE_IMAGES = {
    "source_images": torch.rand(12, 3, 10, 9, generator=torch.Generator().manual_seed(2))
}
SOURCE = {**SOURCE_IMAGES, "source_labels": torch.arange(12) % 5}
LOOSE: dict[str, Any] = {"threshold": 1.0, "margin": 1.5}  # every image drives the step
ADAPTERS: dict[str, dict[str, Any]] = {
    "source": {},
    "source-votes": {"votes": "original,flip,zoom", "weights": "information"},
    "steady": {},
    "steady-equal": {"weights": "equal", "window": 10.0},
    "steady-learning": {"learn": True, "every": 4, "one_class": 1.0},
    "steady-two": {"votes": "original,flip", "share": [0.2, 0.7], "window": 10.0},
    "norm": {},
    "norm-votes": {"votes": "original,flip,zoom", "weights": "information"},
    "norm-running": {"statistics": "running"},
    "norm-cumulative": {"statistics": "cumulative"},
    "norm-blend": {"statistics": "blend", "prior": 4.0},
    "norm-share": {"statistics": "share", "share": 0.3},
    "norm-window": {"statistics": "window", "window": 10.0, "votes": "original,flip"},
    "norm-shares": {"statistics": "window", "share": [0.2, 0.7], "votes": "original+zoom"},
    "tent": {},
    "tent-votes": {"votes": "original,flip,zoom", "weights": "information"},
    "tent-blend": {"statistics": "blend", "predict": "after"},
    "tent-episodic": {"episodic": True, "lr": 0.1},
    "tent-released": {"preset": "released"},
    "tent-window": {"statistics": "window", "share": 0.3, "votes": "original,flip,zoom"},
    "pest": {"lr": 0.01},
    "pest-share": {"statistics": "share", "share": [0.1, 0.5, 0.9], "lr": 0.01},
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
    "lame": {},
    "lame-released": {"preset": "released"},
    "lame-linear": {"kernel": "linear", "symmetric": True},
    "cotta": {"views": 3, "certainty": 0.5, "lr": 0.01},
    "cotta-released": {"preset": "released", "views": 2, "certainty": 0.5, "restore": 0.1},
    "cotta-imagenet": {"preset": "imagenet", "views": 2},
    "rotta": {"capacity": 8, "every": 4, "lr": 0.01},
    "rotta-released": {"preset": "released", "capacity": 3, "every": 5, "lr": 0.01},
    "memo": {"views": 3},
    "memo-vectorised": {"views": 2, "vectorised": True},
    "memo-imagenet": {"preset": "imagenet", "views": 2},
    "memo-adamw": {"preset": "adamw", "views": 2, "lr": 0.01},
    "memo-benchmark": {"preset": "benchmark", "views": 2},
    "rmt": {"lr": 0.01},
    "rmt-source": {**SOURCE, "warm_up": 20, "warm_up_batch": 6},
    "rmt-means": {"preset": "released", "class_means": torch.eye(5, 32)},
    "adacontrast": {"remembered": 30, "plain_first": 8, "neighbours": 3, "lr": 0.01},
    "adacontrast-empty": {"queue_start": "empty", "remembered": 6, "lr": 0.01},
    "note": {"capacity": 6, "every": 4, "lr": 0.01},
    "note-released": {"preset": "released", "capacity": 8, "every": 5},
    "note-iid": {"preset": "iid", "capacity": 5, "every": 6},
    "t3a": {"supports": 2},
    "t3a-all": {"supports": None},
    "t3a-released": {"supports": -1},
    "tent-come": {"objective": "come"},
    "eta": {**LOOSE},
    "eta-filtered": {},
    "eta-come": {"objective": "come", **LOOSE},
    "eta-released": {"preset": "released", **LOOSE},
    "eata": {"source_images": torch.linspace(0, 1, 4 * 270).view(4, 3, 10, 9), **LOOSE},
    "rdumb": {"every": 2, **LOOSE},
    "sar": {"threshold": 1.0},
    "sar-released": {"preset": "released", "threshold": 1.0, "lr": 0.1},
    "sar-recovering": {"recovery": 1.0, "threshold": 1.0},
    "deyo": {"threshold": 1.0, "drop": -2.0},
    "deyo-pixel": {"destroy": "pixel", "threshold": 1.0, "drop": 0.0},
    "deyo-occlusion": {"destroy": "occlusion", "threshold": 1.0, "drop": 0.0},
    "rpl": {},
    "rpl-released": {"preset": "released"},
    "shot": {"lr": 0.01},
    "shot-im": {"preset": "im"},
    "shot-lame": {"preset": "lame"},
    "roid": {},
    "roid-released": {"preset": "released"},
    "roid-plain": {"weighting": False, "agreement": False, "prior_correction": "none"},
    "cmf": {},
    "cmf-released": {"preset": "released"},
    "ttt": {"copies": 3, "lr": 0.01},
    "ttt-slow": {"preset": "slow", "copies": 2, "upright": 0.5},
    "foa": {**SOURCE_IMAGES, "population": 6},
    "foa-plain": {**SOURCE_IMAGES, "population": 7, "prompts": 1, "shift": False},
}
Make = Callable[..., Adapter]


@pytest.fixture(params=ADAPTERS, ids=str)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(name: str, device: torch.device) -> nn.Module:
    return model_for(name).eval().to(device)


def model_for(name: str) -> nn.Module:
    """FOA needs a transformer, TTT a head that tells rotations."""
    return {"foa": Transformer, "ttt": Turning}.get(name.partition("-")[0], testing.small_model)()


def size_for(name: str) -> tuple[int, int, int]:
    """Width and height differ, to tell them apart; TTT takes square images only."""
    return (3, 9, 9) if name.startswith("ttt") else (3, 10, 9)


@pytest.fixture
def make(name: str, model: nn.Module) -> Make:
    def make(given: nn.Module = model, **more: Any) -> Adapter:
        return tapr.adapt(given, name.partition("-")[0], **{**ADAPTERS[name], **more})

    return make


@pytest.mark.parametrize("check", testing.CHECKS)
def test_every_check_holds(make: Make, model: nn.Module, name: str, check: str) -> None:
    testing.CHECKS[check](testing.Subject(make, model, size_for(name)))


ACTING = ("steady", "norm-running", "tent", "pest", "lame", "rdumb", "memo", "note", "cotta")


@pytest.mark.parametrize("name", ACTING)
@pytest.mark.parametrize("check", [c for c in testing.CHECKS if c != "watching_changes_no_number"])
def test_every_check_holds_when_the_guard_acts(make: Make, model: nn.Module, check: str) -> None:
    def acting(given: nn.Module = model, **more: Any) -> Adapter:
        return make(given, guard="act", **more)

    testing.CHECKS[check](testing.Subject(acting, model, (3, 10, 9)))


def batches(name: str = "") -> list[Tensor]:
    return testing.Subject(tapr.adapt, nn.Identity(), size_for(name)).batches()


def states_equal(a: nn.Module, b: nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def test_only_parameters_in_scope_move(make: Make, model: nn.Module, name: str) -> None:
    adapter = make()
    for batch in batches(name):
        adapter(batch)
    source = dict(model.named_parameters())
    moved = {n for n, p in adapter.model.named_parameters() if not torch.equal(p, source[n])}
    every = set(source)
    expected = {
        "tent": {"1.weight", "1.bias"},
        "source": set(),
        "steady": set(),
        "steady-learning": {"1.weight", "1.bias"},
        "norm": set(),
        "cotta": every,
        "rotta": {"1.weight", "1.bias"},
        "note": {"1.weight", "1.bias"},
        "memo": set(),
        "rmt": every,
        "adacontrast": every,
        "lame": set(),
        "t3a": set(),
        "foa": set(),
        "ttt": {n for n in every if not n.startswith("7")},
        "ttt-slow": set(),
        "eta": {"1.weight", "1.bias"},
        "eata": {"1.weight", "1.bias"},
        "rdumb": {"1.weight", "1.bias"},
        "sar": {"1.weight", "1.bias"},
        "sar-recovering": set(),
        "deyo": {"1.weight", "1.bias"},
        "rpl": {"1.weight", "1.bias"},
        "rpl-released": every,
        "shot": {n for n in every if not n.startswith("7")},
        "shot-lame": {"1.weight", "1.bias"},
        "roid": {"1.weight", "1.bias"},
        "cmf": {"1.weight", "1.bias"},
        "pest": every,
        "pest-backbone": {n for n in every if not n.startswith("7")},
        "pest-predicate": {n for n in every if n.endswith("bias")},
    }
    wanted = expected.get(name, expected[name.partition("-")[0]])
    # Batch norm subtracts what a bias before it adds: whether rounding moves that one is no matter.
    assert moved - {"0.bias"} == wanted - {"0.bias"}


def test_a_state_names_its_method_and_options(
    make: Make, model: nn.Module, tmp_path: Path, name: str
) -> None:
    adapter = make()
    first, *rest = batches(name)
    adapter(first)
    adapter.save(tmp_path / "state.safetensors")
    own = {k: v for k, v in ADAPTERS[name].items() if callable(v) or isinstance(v, Tensor)}
    other = tapr.load(tmp_path / "state.safetensors", model, **own)
    for batch in rest:
        assert torch.equal(adapter(batch), other(batch))
    assert [p.name for p in tmp_path.iterdir()] == ["state.safetensors"]


class Filtering(Objective):
    """Lets no image drive the update."""

    def forward(self, outputs: Outputs) -> Loss:
        value = outputs.logits.square().sum((0, 2))
        return Loss.mean(value, torch.zeros_like(value, dtype=torch.bool))


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
