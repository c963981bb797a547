"""Names and numbers in, adapters out; wrong ones get a sentence."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapr
from tapr.augment import Augmentation, AugMix, RandAugment
from tapr.methods import find_model


def test_the_default_is_pest_with_the_papers_values(model: nn.Module) -> None:
    adapter: Any = tapr.adapt(model, "pest")
    assert adapter.recipe == {
        "method": "pest",
        "preset": "paper",
        "seed": 0,
        "augmentation": "augmix",
        "augmentation_preset": "paper",
        "augmentation_options": {},
        "views": 2,
        "consistency": "jensen_shannon",
        "consistency_weight": 1.0,
        "entropy_weight": 1.0,
        "optimizer": "sgd",
        "lr": 1e-4,
        "momentum": 0.9,
        "weight_decay": 5e-4,
        "scope": "all",
        "steps": 5,
        "episodic": False,
        "predict": "after",
        "redraw": False,
        "statistics": "running",
        "statistics_momentum": 0.1,
        "prior": 16.0,
        "feed": "views",
        "max_grad_norm": None,
    }
    augmix = adapter.views.augmentation
    assert isinstance(augmix, AugMix)
    assert (augmix.severity, augmix.width, augmix.depth, augmix.alpha) == (2, 1, 3, 1)
    group = adapter.optimizer.param_groups[0]
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (1e-4, 0.9, 5e-4)
    assert len(group["params"]) == len(list(model.parameters()))


def test_the_released_preset_uses_the_released_augmentations(model: nn.Module) -> None:
    for name, expected in (("augmix", AugMix.released()), ("randaugment", RandAugment.released())):
        adapter: Any = tapr.adapt(model, "pest", preset="released", augmentation=name)
        assert repr(adapter.views.augmentation) == repr(expected)


def test_options_of_the_augmentation(model: nn.Module) -> None:
    options = {"m": 3, "scale": "centred"}
    adapter: Any = tapr.adapt(
        model, "pest", augmentation="randaugment", augmentation_options=options
    )
    assert repr(adapter.views.augmentation) == repr(RandAugment(m=3, scale="centred"))
    assert adapter.recipe["augmentation_options"] == options


def test_a_loaded_default_is_not_shared(model: nn.Module) -> None:
    with pytest.raises(TypeError):
        tapr.presets("pest")["paper"] = {}  # type: ignore[index]
    tapr.adapt(model, "pest", steps=1)
    assert tapr.presets("pest")["paper"]["steps"] == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "tnet"}, "unknown method 'tnet'; did you mean 'tent'"),
        ({"method": "xyz"}, "expected one of .*'cmf', .*'tent', 'ttt'"),
        ({"preset": "relesed"}, "unknown preset 'relesed'; did you mean 'released'"),
        ({"augmentation": "agmix"}, "unknown augmentation 'agmix'; did you mean 'augmix'"),
        ({"augmentation_preset": "papper"}, "did you mean 'paper'"),
        (
            {"augmentation_options": {"severty": 3}},
            "did you mean 'severity'",
        ),
        (
            {"augmentation_options": {"severity": 3}, "augmentation_preset": "released"},
            "this preset of it takes none",
        ),
        ({"augmentation_options": {"severity": 30}}, "severity"),
        ({"step": 3}, "unknown option 'step' of method 'pest'; did you mean 'steps'"),
        ({"method": "tent", "views": 2}, "unknown option 'views' of method 'tent'"),
        ({"scope": "al"}, "unknown scope 'al'; did you mean 'all'"),
        ({"statistics": "runing"}, "unknown statistics 'runing'; did you mean 'running'"),
        ({"feed": "view"}, "unknown feed 'view'; did you mean 'views'"),
        ({"predict": "aftr"}, "unknown predict 'aftr'; did you mean 'after'"),
        ({"consistency": "squared"}, "did you mean 'squared_error'"),
        ({"optimizer": "sdg"}, "unknown optimizer 'sdg'; did you mean 'sgd'"),
        ({"lr": -1.0}, "expected lr of at least 0 and below inf, got -1.0"),
        ({"lr": float("nan")}, "expected lr of at least 0 and below inf, got nan"),
        ({"lr": "fast"}, "expected lr of at least 0 and below inf, got 'fast'"),
        ({"momentum": 2}, "expected momentum of at least 0 and below 1, got 2"),
        ({"steps": 0}, "expected steps to be a whole number of at least 1, got 0"),
        ({"steps": 2.5}, "expected steps to be a whole number of at least 1, got 2.5"),
        ({"views": 0}, "expected views >= 1 for a consistency"),
        ({"consistency_weight": 0, "entropy_weight": 0}, "at least one objective"),
        ({"prior": -1}, "prior strength of 0 or more, got -1"),
        ({"prior": None}, "prior strength of 0 or more, got None"),
        ({"statistics_momentum": 0}, r"statistics momentum in \(0, 1\], got 0"),
        ({"statistics_momentum": "x"}, r"statistics momentum in \(0, 1\], got 'x'"),
        ({"max_grad_norm": "x"}, "gradient norm limit above 0, got 'x'"),
        ({"augmentation_options": None}, "expected augmentation_options as a mapping, got None"),
        ({"episodic": "no"}, "expected episodic to be True or False, got 'no'"),
        ({"max_grad_norm": 0}, "gradient norm limit above 0, got 0"),
    ],
)
def test_wrong_arguments_get_a_sentence(
    model: nn.Module, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        tapr.adapt(model, **{"method": "pest", **arguments})


class Darker(Augmentation):
    """An augmentation of a user's own."""

    def sample(self, shape: Any, generator: torch.Generator) -> Tensor:
        return torch.rand(shape[0], 1, 1, 1, generator=generator)

    def transform(self, images: Tensor, params: Tensor) -> Tensor:
        return images * params


def test_an_augmentation_of_your_own_works_and_is_asked_for_again(
    model: nn.Sequential, images: Tensor, tmp_path: Any
) -> None:
    adapter = tapr.adapt(model, "pest", augmentation=Darker())
    adapter(images)
    adapter.save(tmp_path / "state")
    with pytest.raises(tapr.TaprError, match=r"pass it again: tapr.load\(path, model, augment"):
        tapr.load(tmp_path / "state", model)
    other = tapr.load(tmp_path / "state", model, augmentation=Darker())
    assert torch.equal(adapter(images), other(images))


class Duck:
    """The shape of an augmentation, without its base class."""

    sample = Darker.sample
    transform = Darker.transform


def test_an_object_with_the_shape_of_an_augmentation_works(
    model: nn.Module, images: Tensor
) -> None:
    expected = tapr.adapt(model, "pest", augmentation=Darker())(images)
    assert torch.equal(tapr.adapt(model, "pest", augmentation=Duck())(images), expected)


SOURCE_IMAGES = ("eata",)
FILTERING = ("sar", "deyo", "roid", "cmf")  # look again at some of the images alone
ALONE = ("source", "norm", "tent", "pest", "eta", "eata", "rdumb", "rpl", "shot", *FILTERING)


@pytest.mark.parametrize("method", ALONE)
def test_passes_are_what_the_model_is_called_for(
    model: nn.Sequential, images: Tensor, method: str
) -> None:
    needed: dict[str, Any] = {"source_images": images} if method in SOURCE_IMAGES else {}
    adapter = tapr.adapt(model, method, **needed)
    seen = []
    adapter.model.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    prediction = adapter.predict(images)
    assert sum(seen) == prediction.forward <= adapter.passes.forward * len(images)
    assert prediction.backward <= adapter.passes.backward * len(images)
    if method not in FILTERING:
        assert prediction.forward == adapter.passes.forward * len(images)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torch.nn:nothing", "has no attribute 'nothing'"),
        ("no_such_module:model", "No module named 'no_such_module'"),
        ("torch.nn:Linear", "missing 2 required positional arguments"),
        ("torch:get_num_threads", "to be or return a torch.nn.Module, got int"),
    ],
)
def test_find_model_says_what_is_wrong_with_a_function_of_yours(name: str, message: str) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        find_model(name)


def test_find_model_takes_a_function_of_yours() -> None:
    assert isinstance(find_model("torch.nn:Identity"), nn.Identity)
