import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

import tapr
from tapr.datasets import Dataset
from tapr.errors import InputError, StateError, UnknownNameError
from tapr.models import card, load
from tapr.runs.cards import accuracy, measure, rotation_accuracy
from tapr.runs.train import Recipe, Training, recipe
from tapr.runs.train_views import AUGMENTS, cropped_and_flipped

RECIPE = Recipe("stripes", epochs=3, batch_size=32, learning_rate=0.05)


def stripes(count: int = 96, side: int = 16) -> Dataset:
    """Class 0 has light rows, class 1 light columns, under noise."""
    generator = np.random.default_rng(0)
    labels = generator.integers(2, size=count)
    images = generator.integers(120, size=(count, side, side, 3), dtype=np.uint8)
    images[labels == 0, ::2] += 100
    images[labels == 1, :, ::2] += 100
    return Dataset("stripes", images, labels, ("rows", "columns"))


def trained(folder: Path, recipe: Recipe = RECIPE, steps: int | None = None) -> Training:
    training = Training(recipe, stripes(), folder)
    for _ in islice(training.run(), steps):
        pass
    return training


def same(one: Training, other: Training) -> bool:
    states = [(one.model, other.model), (one.average, other.average)]
    return all(
        torch.equal(value, right.state_dict()[key])
        for left, right in states
        for key, value in left.state_dict().items()
    )


def test_it_learns_and_the_average_is_what_is_saved(tmp_path: Path) -> None:
    training = trained(tmp_path, replace(RECIPE, epochs=12))
    losses = [record["loss"] for record in training.history]
    assert losses[-1] < 0.5 * losses[0]

    path = training.save()

    assert accuracy(load(path), stripes()) > 0.9
    saved, average = load(path).state_dict(), training.average.state_dict()
    assert torch.equal(saved["bn1.running_var"], average["bn1.running_var"])
    assert torch.equal(saved["conv1.weight"], average["conv1.weight"].half().float())


def test_the_model_normalises_by_the_training_images(tmp_path: Path) -> None:
    state = Training(RECIPE, stripes(), tmp_path).model.state_dict()
    pixels = stripes().images.astype(np.float64).reshape(-1, 3) / 255
    assert state["normalize.mean"].flatten().tolist() == pytest.approx(pixels.mean(0), abs=1e-6)
    assert state["normalize.std"].flatten().tolist() == pytest.approx(pixels.std(0, ddof=1))


def test_same_seed_same_weights_and_the_global_generator_is_left_alone(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    first = trained(tmp_path / "a")
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(5)
    assert same(first, trained(tmp_path / "b"))
    assert not same(first, trained(tmp_path / "c", replace(RECIPE, seed=1)))


@pytest.mark.parametrize("steps", [4, 6])  # 3 steps and a record per epoch: after one, within two
def test_an_interrupted_training_ends_in_the_same_weights(steps: int, tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole")
    trained(tmp_path / "cut", steps=steps)

    resumed = Training(RECIPE, stripes(), tmp_path / "cut")
    resumed.resume()
    list(resumed.run())

    assert same(whole, resumed)
    log = [json.loads(line) for line in (tmp_path / "cut" / "log.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in log] == [1, 2, 3]
    assert [record["loss"] for record in log] == [record["loss"] for record in whole.history]


def test_another_recipe_is_not_resumed(tmp_path: Path) -> None:
    trained(tmp_path, steps=4)
    other = Training(replace(RECIPE, seed=7), stripes(), tmp_path)
    before = {key: value.clone() for key, value in other.model.state_dict().items()}
    with pytest.raises(StateError, match="made with other settings: seed 0 there, 7 here"):
        other.resume()
    assert all(torch.equal(value, before[key]) for key, value in other.model.state_dict().items())


@pytest.mark.parametrize("content", [None, b"", b"text", "cut", "other"])
def test_no_checkpoint_or_a_damaged_one(content: bytes | str | None, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    if content == "other":
        torch.save({"weights": torch.ones(1)}, path)
    elif content == "cut":
        trained(tmp_path, steps=4)
        path.write_bytes(path.read_bytes()[:-500])
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(StateError, match=r"checkpoint\.pt"):
        Training(RECIPE, stripes(), tmp_path).resume()


def test_the_card_repeats_the_training(tmp_path: Path) -> None:
    facts = card(trained(tmp_path).save())
    assert facts["command"] == (
        "tapr train stripes --model small --epochs 3 --seed 0 --batch-size 32 "
        "--learning-rate 0.05 --weight-decay 0.0005 --label-smoothing 0 --augment crop-flip"
    )
    assert (facts["classes"], facts["training_images"]) == (2, 96)
    assert facts["torch"] == torch.__version__


def test_augmix_trains_and_costs_three_views(tmp_path: Path) -> None:
    training = Training(replace(RECIPE, augment="augmix"), stripes(), tmp_path)
    seen = []
    training.model.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    next(training.run())
    assert seen == [96]


def test_label_smoothing_changes_the_loss(tmp_path: Path) -> None:
    plain = trained(tmp_path / "a", steps=4).history[0]["loss"]
    smooth = trained(tmp_path / "b", replace(RECIPE, label_smoothing=0.3), steps=4).history[0]
    assert smooth["loss"] != plain


def test_every_crop_is_a_shift_and_perhaps_a_mirror() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (200, 16, 16, 3), generator=generator, dtype=torch.uint8)
    before = images.clone()
    padded = np.pad(images.numpy(), ((0, 0), (2, 2), (2, 2), (0, 0)))

    moved = (cropped_and_flipped(images, generator) * 255).round().byte().permute(0, 2, 3, 1)

    found = set()
    for image, source in zip(moved.numpy(), padded, strict=True):
        matches = [
            (down, right, flip)
            for down in range(5)
            for right in range(5)
            for flip in (1, -1)
            if np.array_equal(source[down : down + 16, right : right + 16][:, ::flip], image)
        ]
        assert len(matches) == 1
        found.update(matches)
    assert len(found) > 45  # of 50
    assert torch.equal(images, before)


def test_bad_recipes(tmp_path: Path) -> None:
    for field, value in {
        "epochs": 0,
        "batch_size": -1,
        "learning_rate": 0.0,
        "label_smoothing": 1.0,
        "weight_decay": -1.0,
    }.items():
        with pytest.raises(InputError, match=f"expected {field}"):
            replace(RECIPE, **{field: value})  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="did you mean 'augmix'"):
        replace(RECIPE, augment="augmax")
    with pytest.raises(InputError, match="at least one batch of 200"):
        Training(replace(RECIPE, batch_size=200), stripes(), tmp_path)
    with pytest.raises(UnknownNameError, match="unknown architecture"):
        Training(replace(RECIPE, architecture="smal"), stripes(), tmp_path)
    with pytest.raises(InputError, match="cannot use the device 'abacus'"):
        Training(RECIPE, stripes(), tmp_path, device="abacus")


def test_each_data_set_has_its_own_recipe_and_what_is_given_wins() -> None:
    assert recipe("cifar10") == Recipe("cifar10")
    assert (recipe("digits").augment, recipe("digits", augment="augmix").augment) == (
        "none",
        "augmix",
    )
    assert recipe("visda", seed=3).weights == "timm:resnet50"
    assert "--weights timm:resnet50" in recipe("visda").command()
    assert "--weights" not in recipe("digits").command()


def test_weights_go_with_their_network() -> None:
    assert recipe("visda", architecture="wrn-40-2").weights is None
    assert recipe("visda", architecture="resnet-50").weights == "timm:resnet50"
    assert recipe("visda", architecture="wrn-40-2", weights="a.pth").weights == "a.pth"


def test_images_as_they_are() -> None:
    seen = []

    def model(images: torch.Tensor) -> torch.Tensor:
        seen.append(images)
        return images.mean((2, 3))

    images = torch.randint(256, (4, 8, 8, 3), dtype=torch.uint8)
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    AUGMENTS["none"](model, images, torch.zeros(4, dtype=torch.long), 0.0, generator)  # type: ignore[arg-type]
    assert torch.equal((seen[0] * 255).round().byte(), images.permute(0, 3, 1, 2))
    assert torch.equal(generator.get_state(), before)


ARROWS = replace(RECIPE, architecture="small-narrow-rotation", epochs=12, augment="none")


def shaded(count: int = 96, side: int = 16) -> Dataset:
    """Stripes that fade towards the bottom, so that a turn can be told."""
    data = stripes(count, side)
    light = np.linspace(1, 0, side)[:, None, None]
    return replace(data, images=(data.images * light).astype(np.uint8))


def test_a_rotation_head_learns_along_and_ttt_takes_the_saved_model(tmp_path: Path) -> None:
    training = Training(ARROWS, shaded(), tmp_path)
    list(training.run())
    first, last = training.history[0], training.history[-1]
    assert last["rotation_accuracy"] > max(0.9, first["rotation_accuracy"])
    assert last["loss"] < first["loss"]

    path = training.save()
    model = load(path)

    assert accuracy(model, shaded()) > 0.9
    assert rotation_accuracy(model, shaded()) > 0.9
    assert "--model small-narrow --rotation --epochs 12" in card(path)["command"]
    predicted = tapr.adapt(model, "ttt", copies=2).predict(torch.rand(4, 3, 16, 16))
    assert predicted.steps == 1


def test_the_card_has_the_rotation_accuracy_of_models_with_such_a_head(tmp_path: Path) -> None:
    twin = Training(ARROWS, shaded(), tmp_path).model
    plain = Training(RECIPE, shaded(), tmp_path).model
    names = [number.name for number in islice(measure(twin, shaded()), 3)]
    assert names == ["clean", "rotation", "gaussian_noise"]
    assert [number.name for number in islice(measure(plain, shaded()), 2)] == [
        "clean",
        "gaussian_noise",
    ]


def test_an_interrupted_joint_training_ends_in_the_same_weights(tmp_path: Path) -> None:
    recipe = replace(ARROWS, epochs=2)
    whole = trained(tmp_path / "whole", recipe)
    trained(tmp_path / "cut", recipe, steps=5)
    resumed = Training(recipe, stripes(), tmp_path / "cut")
    resumed.resume()
    list(resumed.run())
    assert same(whole, resumed)
    assert not torch.equal(
        whole.model.state_dict()["turns.3.weight"],
        Training(recipe, stripes(), tmp_path).model.state_dict()["turns.3.weight"],
    )
