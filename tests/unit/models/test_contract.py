"""Normalisation inside, outside, from a config: the same predictions. Contradictions are named."""

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapr
from tapr.errors import InputError, StateError, UnknownNameError
from tapr.models import contract, inputs

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NUMBERS: dict[str, Any] = {"mean": MEAN, "std": STD}
HALF: dict[str, Any] = {"mean": 0.5, "std": 0.5}


class Processor:
    """Shaped like an image processor of Hugging Face."""

    def to_dict(self) -> dict[str, Any]:
        return {"image_mean": list(MEAN), "image_std": list(STD), "do_normalize": True, "size": 8}


class Preset(nn.Module):
    """Shaped like torchvision's `ImageClassification`."""

    def __init__(self) -> None:
        super().__init__()
        self.crop_size, self.resize_size = [224], [256]
        self.mean, self.std = list(MEAN), list(STD)
        self.interpolation = SimpleNamespace(value="bilinear")


WEIGHTS = SimpleNamespace(transforms=Preset)  # shaped like a member of torchvision's enums
CONFIGS: dict[str, object] = {
    "table": NUMBERS,
    "processor": Processor(),
    "preset": Preset(),
    "weights": WEIGHTS,
    "model": "model",
}


@pytest.fixture
def net(make_model: Callable[..., nn.Sequential]) -> nn.Module:
    model = make_model()
    model.pretrained_cfg = {**NUMBERS, "input_size": (3, 8, 8)}  # type: ignore[assignment]
    return model


@pytest.fixture
def batches() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(6, 3, 10, 9, generator=generator) for _ in range(3)]


def normalised(images: Tensor) -> Tensor:
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    return (images - mean) / std


def predicted(adapter: tapr.Adapter, batches: list[Tensor]) -> Tensor:
    return torch.cat([adapter.predict(batch).logits for batch in batches])


@pytest.mark.parametrize("method", ["source", "steady", "tent", "pest:steps=1"])
def test_inside_outside_and_from_a_config_agree(
    net: nn.Module, batches: list[Tensor], method: str
) -> None:
    whole = inputs.in_front(net, MEAN, STD)
    expected = predicted(tapr.adapt(whole, method), batches)
    ways = {name: tapr.adapt(net, method, preprocessing=told) for name, told in CONFIGS.items()}
    ways["numbers"] = tapr.adapt(net, method, **NUMBERS)
    for name, adapter in ways.items():
        assert torch.allclose(predicted(adapter, batches), expected, atol=1e-5, rtol=0), name
    outside = tapr.adapt(net, method, **NUMBERS, images="normalized")
    found = predicted(outside, [normalised(batch) for batch in batches])
    assert torch.allclose(found, expected, atol=1e-5, rtol=0)


def test_half_precision_images_may_round_a_little(net: nn.Module, batches: list[Tensor]) -> None:
    adapter = tapr.adapt(net.bfloat16(), "source", **NUMBERS, images="normalized")
    assert adapter.predict(normalised(batches[0]).bfloat16()).logits.isfinite().all()


def test_the_callers_model_stays_as_it_was(net: nn.Module, batches: list[Tensor]) -> None:
    before = {name: value.clone() for name, value in net.state_dict().items()}
    predicted(tapr.adapt(net, "tent", **NUMBERS), batches)
    assert inputs.find(net) is None
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_a_saved_state_remembers_the_contract(
    net: nn.Module, batches: list[Tensor], tmp_path: Path
) -> None:
    given = [normalised(batch) for batch in batches]
    adapter = tapr.adapt(net, "tent", **NUMBERS, images="normalized")
    predicted(adapter, given[:2])
    adapter.save(tmp_path / "state.safetensors")
    expected = adapter.predict(given[2]).logits
    again = tapr.load(tmp_path / "state.safetensors", net)
    assert (again.takes, again.recipe["mean"]) == ("normalized", list(MEAN))
    assert torch.equal(again.predict(given[2]).logits, expected)
    with pytest.raises(StateError, match="another source model"):
        tapr.adapt(net, "tent").load(tmp_path / "state.safetensors")
    assert "mean" not in tapr.adapt(net, "tent").recipe  # names of records stay as they were


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"mean": 0.5}, "expected mean and deviation .* together"),
        (
            {"mean": (123.7, 116.3, 103.5), "std": (58, 57, 57)},
            "expected mean from 0 to 1, got 123.7",
        ),
        ({"images": "normalized"}, "images='normalized' needs the mean and std"),
        (
            {"images": "normalised", **HALF},
            "unknown kind of images 'normalised'; did you mean 'norm",
        ),
        ({**HALF, "preprocessing": WEIGHTS}, "one normalisation, got mean 0.5, 0.5, 0.5 .* 0.485"),
        ({"preprocessing": 3}, "expected a preprocessing as 'model'.* got int"),
        ({"preprocessing": {"size": 8}}, "expected a preprocessing with mean .* got dict without"),
    ],
)
def test_what_cannot_be_right_is_refused(net: nn.Module, asked: Any, message: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message):
        tapr.adapt(net, "source", **asked)


def test_a_second_normalisation_is_refused(net: nn.Module) -> None:
    whole = inputs.in_front(net, MEAN, STD)
    assert tapr.adapt(whole, "source", **NUMBERS).model.normalize is not None  # the same numbers
    with pytest.raises(InputError, match=r"normalises its input itself, by mean 0.485, .* got 0.5"):
        tapr.adapt(whole, "source", **HALF)


def test_a_config_that_is_not_used_is_said(
    net: nn.Module, batches: list[Tensor], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tapr"):
        tapr.adapt(net, "source", **NUMBERS)
        tapr.adapt(inputs.in_front(net, MEAN, STD), "source")
        tapr.adapt(nn.Sequential(nn.Identity(), net), "source")  # what is around it normalises
        assert not caplog.records
        tapr.adapt(net, "source")
    assert "the model's config says mean 0.485, 0.456, 0.406" in caplog.text
    notes = [
        text for level, text in tapr.check(net, batches[0], "norm").findings if level == "note"
    ]
    assert any("which is not applied: pass preprocessing='model'" in note for note in notes)
    notes = [text for level, text in tapr.check(net, None, "norm", **HALF).findings]
    assert any("you gave 0.5, 0.5, 0.5 and 0.5, 0.5, 0.5: yours are used" in note for note in notes)
    fine = str(tapr.check(net, batches[0], "norm", preprocessing="model"))
    assert "normalised by mean [0.485, 0.456, 0.406]" in fine
    assert "nobody" not in fine


def test_images_of_the_wrong_kind_are_named(net: nn.Module, batches: list[Tensor]) -> None:
    with pytest.raises(InputError, match=r"got minimum -2.* look normalised already.*'normalized'"):
        tapr.adapt(net, "source").predict(normalised(batches[0]))
    adapter = tapr.adapt(net, "source", **HALF, images="normalized")
    with pytest.raises(InputError, match=r"pixels from -0\.\d+ to 1\.\d+; are these the numbers"):
        adapter.predict(normalised(batches[0]))
    with pytest.raises(InputError, match="expected images with 3 channels, got 1"):
        adapter.predict(batches[0][:, :1])


def test_choose_takes_the_same_arguments(net: nn.Module) -> None:
    images = torch.rand(64, 3, 10, 9, generator=torch.Generator().manual_seed(1))
    asked: dict[str, Any] = {"candidates": ["norm"], "batch_size": 32}
    inside = tapr.choose(net, images, preprocessing="model", **asked)
    outside = tapr.choose(net, normalised(images), **NUMBERS, images="normalized", **asked)
    plain = tapr.choose(net, images, **asked)
    credits = [[c.credit for c in choice.candidates] for choice in (inside, outside, plain)]
    assert credits[0] == pytest.approx(credits[1], abs=1e-5)
    assert credits[0] != pytest.approx(credits[2], abs=1e-5)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"size": {"height": 32, "width": 24}}, {"input_size": (3, 32, 24), "crop_mode": "squash"}),
        (
            {"size": {"shortest_edge": 224}, "crop_pct": 0.875},
            {"input_size": (3, 224, 224), "crop_pct": 0.875},
        ),
        (
            {"size": {"shortest_edge": 384}, "crop_pct": 0.875},
            {"input_size": (3, 384, 384), "crop_mode": "squash"},
        ),
        (
            {
                "size": {"shortest_edge": 256},
                "do_center_crop": True,
                "crop_size": {"height": 224, "width": 224},
            },
            {"input_size": (3, 224, 224), "crop_pct": 0.875},
        ),
        ({"size": 224, "resample": 3}, {"input_size": (3, 224, 224), "interpolation": "bicubic"}),
    ],
)
def test_sizes_of_hugging_face(table: dict[str, Any], expected: dict[str, Any]) -> None:
    found = contract.settings({"image_mean": [0.5] * 3, "image_std": [0.5] * 3, **table})
    assert {**found, **expected} == found


def test_sizes_of_torchvision() -> None:
    found = contract.settings(WEIGHTS)
    assert (found["input_size"], found["crop_pct"]) == ((3, 224, 224), 0.875)
    assert found["interpolation"] == "bilinear"
