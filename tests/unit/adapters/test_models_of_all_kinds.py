"""Any module from images to logits adapts, or gets a sentence that says why not."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import tapr

NORMS: dict[str, Callable[[int], nn.Module] | None] = {
    "batch": nn.BatchNorm2d,
    "sync": nn.SyncBatchNorm,
    "batch-untracked": partial(nn.BatchNorm2d, track_running_stats=False),
    "batch-without-affine": partial(nn.BatchNorm2d, affine=False),
    "group": partial(nn.GroupNorm, 2),
    "instance": partial(nn.InstanceNorm2d, affine=True),
    "layer": lambda channels: nn.LayerNorm([channels, 10, 9]),
    "none": None,
}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("statistics", ["running", "batch", "blend", "cumulative", "source"])
def test_pest_adapts_every_normalisation(
    make_model: Callable[..., nn.Sequential], images: Tensor, norm: str, statistics: str
) -> None:
    adapter = tapr.adapt(make_model(NORMS[norm]), "pest", statistics=statistics, lr=0.01)
    first, second = adapter.predict(images), adapter.predict(images)
    assert second.steps == 5
    assert not torch.equal(first.logits, second.logits)
    assert torch.isfinite(second.logits).all()


@pytest.mark.parametrize("norm", ["group", "instance", "layer", "sync", "batch-untracked"])
def test_tent_moves_scale_and_shift_of_every_normalisation(
    make_model: Callable[..., nn.Sequential], images: Tensor, norm: str
) -> None:
    model = make_model(NORMS[norm])
    adapter = tapr.adapt(model, "tent")
    adapter(images)
    source = dict(model.named_parameters())
    moved = {n for n, p in adapter.model.named_parameters() if not torch.equal(p, source[n])}
    assert moved == {"1.weight", "1.bias"}


@pytest.mark.parametrize(
    ("method", "norm", "message"),
    [
        ("norm", "none", "BatchNorm layers.* found none"),
        ("norm", "group", "BatchNorm layers.* found none"),
        ("tent", "none", "none of the model's 6 parameters is in scope"),
        ("tent", "batch-without-affine", "none of the model's 6 parameters is in scope"),
    ],
)
def test_what_cannot_work_is_said(
    make_model: Callable[..., nn.Sequential], method: str, norm: str, message: str
) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        tapr.adapt(make_model(NORMS[norm]), method)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.BatchNorm3d])
def test_batch_norm_in_one_and_three_dimensions(norm: Callable[[int], nn.Module]) -> None:
    into = nn.Unflatten(1, (4, 3, 1, 1)) if norm is nn.BatchNorm3d else nn.Identity()
    layers = [nn.Flatten(), nn.Linear(12, 12), into]
    norm_layer = norm(4 if norm is nn.BatchNorm3d else 12)
    model = nn.Sequential(*layers, norm_layer, nn.Flatten(), nn.Linear(12, 3)).eval()
    images = torch.rand(6, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    for statistics in ("running", "blend", "cumulative"):
        adapter = tapr.adapt(model, "pest", statistics=statistics, feed="untouched")
        assert adapter.predict(images).steps == 5


def one_value_per_channel() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, 3)).eval()


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("norm", {}),
        ("norm", {"statistics": "running"}),
        ("tent", {}),
        ("pest", {"statistics": "batch"}),
        ("pest", {"feed": "untouched"}),
    ],
)
def test_undefined_statistics_of_one_image_are_said_and_nothing_moves(
    method: str, options: dict[str, Any]
) -> None:
    images = torch.rand(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    adapter, fresh = (tapr.adapt(one_value_per_channel(), method, **options) for _ in range(2))
    fresh.model.load_state_dict(adapter.model.state_dict())
    with pytest.raises(tapr.TaprError, match="larger batch, or statistics='source'"):
        adapter(images[:1])
    assert torch.equal(adapter(images), fresh(images))


@pytest.mark.parametrize(
    ("method", "statistics"), [("pest", "source"), ("norm", "blend"), ("pest", "blend")]
)
def test_stored_and_blended_statistics_are_defined_for_one_image(
    method: str, statistics: str
) -> None:
    adapter = tapr.adapt(one_value_per_channel(), method, statistics=statistics)
    assert adapter(torch.full((1, 3, 2, 2), 0.5)).isfinite().all()


class Returning(nn.Module):
    """A model whose output is made of its logits by `form`."""

    def __init__(self, model: nn.Module, form: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.model, self.form = model, form

    def forward(self, images: Tensor) -> Any:
        return self.form(self.model(images))


class Output(NamedTuple):
    loss: None
    logits: Tensor


@pytest.mark.parametrize(
    "form",
    [
        lambda x: (x, "features"),
        lambda x: [x],
        lambda x: {"features": 0, "logits": x},
        lambda x: SimpleNamespace(logits=x),
        lambda x: Output(None, x),
    ],
)
def test_logits_are_found_in_tuples_mappings_and_objects(
    model: nn.Sequential, images: Tensor, form: Callable[[Tensor], Any]
) -> None:
    adapter = tapr.adapt(Returning(model, form), "pest")
    assert torch.equal(adapter(images), tapr.adapt(model, "pest")(images))


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (lambda x: x.flatten(), r"shape \[\d+, K\] with K >= 2 classes, got \[\d+\]"),
        (lambda x: x[:, :1], r"K >= 2 classes, got \[\d+, 1\]"),
        (lambda x: x[:, :, None, None], r"got \[\d+, 5, 1, 1\]"),
        (lambda x: x[:3], r"got \[3, 5\]"),
        (lambda x: {"scores": x}, "'logits', got dict"),
        (lambda x: (), "'logits', got tuple"),
        (lambda x: "cat", "'logits', got str"),
    ],
)
def test_other_outputs_are_refused(
    model: nn.Sequential, images: Tensor, form: Callable[[Tensor], Any], message: str
) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        tapr.adapt(Returning(model, form), "pest")(images)


def test_a_model_that_lets_no_gradient_through_is_refused(
    model: nn.Sequential, images: Tensor
) -> None:
    with pytest.raises(tapr.TaprError, match="no_grad, or detach"):
        tapr.adapt(Returning(model, lambda x: x.detach()), "pest")(images)


def test_a_frozen_model_is_refused_and_frozen_parameters_stay(model: Any, images: Tensor) -> None:
    model[0].requires_grad_(False)
    adapter: Any = tapr.adapt(model, "pest", lr=0.1)
    adapter(images)
    assert torch.equal(adapter.model[0].weight, model[0].weight)
    assert not torch.equal(adapter.model[7].weight, model[7].weight)
    model.requires_grad_(False)
    with pytest.raises(tapr.TaprError, match=r"all 8 of them are frozen \(requires_grad=False\)"):
        tapr.adapt(model, "pest")


def test_tied_parameters_and_shared_layers_save_and_load(tmp_path: Any, images: Tensor) -> None:
    shared = nn.Conv2d(3, 3, 3, padding=1)
    model = nn.Sequential(shared, nn.ReLU(), shared, nn.Flatten(), nn.Linear(270, 4))
    adapter = tapr.adapt(model, "pest", lr=0.01)
    adapter(images)
    adapter.save(tmp_path / "state")
    assert torch.equal(tapr.load(tmp_path / "state", model)(images), adapter(images))


def test_dropout_stays_off(model: nn.Sequential, images: Tensor) -> None:
    dropping = nn.Sequential(nn.Dropout(0.5), *model.children()).train()
    assert torch.equal(tapr.adapt(dropping, "pest")(images), tapr.adapt(model, "pest")(images))


def test_a_model_that_cannot_be_copied_says_what_to_do(model: nn.Module) -> None:
    model.stream = (line for line in "abc")  # type: ignore[assignment]
    with pytest.raises(tapr.TaprError, match="inplace=True"):
        tapr.adapt(model, "pest")
    assert tapr.adapt(model, "pest", inplace=True).model is model


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(tapr.TaprError, match=r"expected a torch\.nn\.Module, got function"):
        tapr.adapt(lambda x: x, "pest")  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("method", ["source", "norm", "pest"])
def test_a_traced_model_is_refused(model: nn.Module, images: Tensor, method: str) -> None:
    traced = torch.jit.trace(model, images)  # type: ignore[no-untyped-call]
    with pytest.raises(tapr.TaprError, match=r"torch\.jit scripted or traced"):
        tapr.adapt(traced, method)


def test_images_of_another_type_than_the_model(model: nn.Module, images: Tensor) -> None:
    adapter = tapr.adapt(model.to(torch.bfloat16), "pest")
    with pytest.raises(tapr.TaprError, match=r"expected images of torch.bfloat16.*got torch.float"):
        adapter(images)
    assert adapter(images.bfloat16()).dtype == torch.bfloat16


def test_an_expanded_buffer_is_put_back_too(model: nn.Module, images: Tensor) -> None:
    model.register_buffer("ones", torch.ones(1).expand(4))
    adapter = tapr.adapt(model, "pest")
    first = adapter(images)
    adapter.reset()
    assert torch.equal(adapter(images), first)


@pytest.mark.parametrize("method", ["tent", "pest"])
def test_an_adapter_can_be_moved_within_a_stream(
    model: nn.Module, images: Tensor, method: str
) -> None:
    adapter, other = tapr.adapt(model, method), tapr.adapt(model, method)
    adapter(images), other(images)
    torch.testing.assert_close(adapter.double()(images.double()).float(), other(images))
    adapter.reset()
    assert adapter.predict(images.double()).steps
