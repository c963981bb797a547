import pytest
import torch

import tapr
from tapr import datasets
from tapr.models import SHIPPED, card, load
from tapr.runs.cards import ROUNDING, accuracy

LIMITS = {  # bytes, the floor of clean accuracy, images it is measured on
    "cifar10-small": (3_000_000, 0.88, 10_000),
    "cifar10-small-rotation": (3_000_000, 0.87, 10_000),
    "cifar100-small": (4_000_000, 0.60, 10_000),
    "cifar100-small-rotation": (3_000_000, 0.60, 10_000),
    "digits-small": (1_000_000, 0.60, 1_797),  # of real digits; it was trained on rendered ones
    "digits-small-rotation": (1_000_000, 0.54, 1_797),
}


def test_what_is_shipped() -> None:
    assert set(LIMITS) <= set(SHIPPED)


@pytest.mark.parametrize("name", LIMITS)
def test_shipped_models_are_small_and_good_and_say_how_they_were_made(name: str) -> None:
    size, floor, images = LIMITS[name]
    facts = card(name)
    model = load(name)
    assert SHIPPED[name].stat().st_size <= size
    assert facts["clean_accuracy"] >= floor
    assert facts["severity_5_mean_of_15"] < facts["clean_accuracy"]
    assert facts["test_images"] == images
    assert len(facts["severity_5_accuracy"]) == 19
    assert facts["command"].startswith(f"tapr train {facts['dataset']} ")
    with torch.no_grad():
        assert model(torch.rand(2, 3, 32, 32)).shape == (2, facts["classes"])


@pytest.mark.parametrize(
    ("name", "begun_with", "rotation"),
    [
        ("cifar10-small", "cifar10-small", 0.75),
        ("cifar100-small", "cifar100-small", 0.6),
        ("digits-small", None, 0.5),  # trained from scratch; its head sees real digits turned
    ],
)
def test_the_twin_is_one_that_ttt_takes_and_says_what_it_began_with(
    name: str, begun_with: str | None, rotation: float
) -> None:
    facts = card(f"{name}-rotation")
    assert facts["rotation_accuracy"] > rotation
    assert facts.get("begun_with") == begun_with
    assert "--rotation" in facts["command"]
    adapter = tapr.adapt(load(f"{name}-rotation"), "ttt", copies=2)
    assert adapter.predict(torch.rand(4, 3, 32, 32)).steps == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", LIMITS)
def test_clean_accuracy_is_that_of_the_card(name: str) -> None:
    facts = card(name)
    if datasets.DATASETS[facts["dataset"]].where() is None:
        pytest.skip(f"{facts['dataset']} is not in the cache")
    measured = accuracy(load(name), datasets.load(facts["dataset"], "test"))
    assert measured == pytest.approx(facts["clean_accuracy"], abs=ROUNDING)
