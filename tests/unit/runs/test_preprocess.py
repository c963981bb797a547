"""Images as the model's own config wants them, whoever wrote it; a wrong range is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import tapr
from tapr.datasets.preprocessing import Preprocessing
from tapr.methods import find_model
from tapr.models import checkpoint, inputs
from tapr.runs.preprocess import config, preprocessing

TIMM: dict[str, Any] = {
    "input_size": (3, 224, 224),
    "crop_pct": 0.875,
    "interpolation": "bicubic",
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "num_classes": 5,
}


def photo(width: int, height: int) -> Image.Image:
    """Smooth, so that a shift by a pixel shows less than a wrong crop."""
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([x, y, (x + y) / 2], -1).astype(np.uint8))


@pytest.mark.parametrize("size", [(640, 480), (480, 640), (100, 90), (224, 224), (1000, 225)])
def test_the_crop_is_torchvisions(size: tuple[int, int]) -> None:
    image = photo(*size)
    short = 256  # int(224 / 0.875)
    width, height = (
        (short, int(short * size[1] / size[0]))
        if size[0] <= size[1]
        else (int(short * size[0] / size[1]), short)
    )
    left, top = round((width - 224) / 2), round((height - 224) / 2)
    expected = image.resize((width, height), Image.Resampling.BICUBIC)
    expected = expected.crop((left, top, left + 224, top + 224))
    assert np.array_equal(preprocessing(TIMM).prepare(image), np.asarray(expected))


def test_an_image_of_the_right_size_is_left_alone() -> None:
    image = photo(32, 32)
    assert np.array_equal(Preprocessing((3, 32, 32)).prepare(image), np.asarray(image))


def test_squash_grey_and_sideways(tmp_path: Path) -> None:
    squashed = preprocessing({"input_size": (3, 10, 20), "crop_mode": "squash"}).prepare(
        photo(50, 50)
    )
    assert np.array_equal(squashed, np.asarray(photo(50, 50).resize((20, 10), 2)))
    assert Preprocessing((1, 8, 8)).prepare(photo(9, 12)).shape == (8, 8, 1)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    photo(60, 20).save(tmp_path / "sideways.png", exif=exif)
    upright = Preprocessing((3, 60, 20)).read(tmp_path / "sideways.png")
    assert upright[:, 0, 0].std() > upright[0, :, 0].std()


def pretrained(model: Any, **changed: Any) -> nn.Module:
    model.pretrained_cfg = {**TIMM, **changed}
    return model  # type: ignore[no-any-return]


def test_timms_config_normalises_in_front(model: nn.Sequential, images: Tensor) -> None:
    found = preprocessing(config(pretrained(model), "my_models:net"))
    assert found == Preprocessing(
        (3, 224, 224),
        0.875,
        "center",
        "bicubic",
        TIMM["mean"],
        TIMM["std"],
    )
    mean, std = (torch.tensor(TIMM[key]).view(3, 1, 1) for key in ("mean", "std"))
    assert torch.allclose(
        inputs.normalized(model, found.mean, found.std)(images), model((images - mean) / std)
    )
    assert "0.875 of the shorter side, 3 x 224 x 224, bicubic; normalised by mean 0.485" in str(
        found
    )


def test_a_config_inside_a_wrapper_of_yours_leaves_normalising_to_it(model: nn.Sequential) -> None:
    wrapped = nn.Sequential(nn.Identity(), pretrained(model))
    found = preprocessing(config(wrapped, "my_models:net"))
    assert (found.size, found.mean) == ((3, 224, 224), None)
    assert inputs.normalized(wrapped, found.mean, found.std) is wrapped


def test_what_timm_models_of_ours_have_in_front_is_not_doubled(model: nn.Sequential) -> None:
    whole = inputs.in_front(pretrained(model), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    found = preprocessing(config(whole, "timm:net"))
    done = inputs.normalized(whole, found.mean, found.std)
    assert done is whole
    assert done.state_dict()["normalize.mean"].flatten().tolist() == pytest.approx(TIMM["mean"])


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("file", ["mine.json", "config.json"])
def test_a_json_file_beside_the_weights(tmp_path: Path, file: str, nested: bool) -> None:
    checkpoint.save(tapr.models.build("wrn-10-1", 5), tmp_path / "mine.safetensors", "wrn-10-1")
    content = {"architecture": "x", "pretrained_cfg": TIMM} if nested else TIMM
    (tmp_path / file).write_text(json.dumps(content))
    model = find_model(str(tmp_path / "mine.safetensors"))
    found = preprocessing(config(model, str(tmp_path / "mine.safetensors")))
    assert (found.size, found.crop, found.interpolation) == ((3, 224, 224), 0.875, "bicubic")
    done = inputs.normalized(model, found.mean, found.std)
    assert done is model  # its own layer is set, there is no second one
    assert inputs.find(done).std.flatten().tolist() == pytest.approx(TIMM["std"])  # type: ignore[union-attr]


@pytest.mark.parametrize("name", tapr.models.SHIPPED)
def test_shipped_models_say_their_size_and_normalise_themselves(name: str) -> None:
    model = find_model(name)
    found = preprocessing(config(model, name))
    assert (found.size, found.mean) == ((3, 32, 32), None)
    assert inputs.normalized(model, found.mean, found.std) is model


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"input_size": None}, "does not say which size.* --size 224"),
        ({"input_size": (4, 8, 8)}, "expected a size of 1 or 3 channels"),
        ({"input_size": (224, 224)}, "expected 3 numbers as input_size"),
        ({"mean": (123.7, 116.3, 103.5)}, "expected mean from 0 to 1, got 123.7; divide by 255"),
        ({"std": (58.4, 57.1, 57.4)}, "expected std from 1e-09 to 1, got 58.4; divide by 255"),
        ({"std": (0.0, 0.5, 0.5)}, "expected std from 1e-09 to 1, got 0"),
        ({"std": None}, "expected mean and deviation"),
        ({"mean": "imagenet"}, "expected 3 numbers as mean, got 'imagenet'"),
        ({"crop_pct": 1.5}, "expected a crop above 0 and up to 1, got 1.5"),
        ({"interpolation": "bicubik"}, "unknown interpolation 'bicubik'; did you mean 'bicubic'"),
        ({"crop_mode": "border"}, "unknown crop_mode 'border'"),
    ],
)
def test_what_cannot_be_right_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        preprocessing({**TIMM, **changed})


def test_a_damaged_config_is_named(tmp_path: Path, model: nn.Module) -> None:
    for text, message in (("{", "is not JSON"), ("[1]", "expected a JSON object in .*got list")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(tapr.TaprError, match=message):
            config(model, str(tmp_path / "mine.pth"))
