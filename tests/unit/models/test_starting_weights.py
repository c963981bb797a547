import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tapr.errors import ModelError
from tapr.models import build
from tapr.models.resnet import ResNet
from tapr.models.zoo import start_from


def body(model: nn.Module) -> dict[str, torch.Tensor]:
    return {k: v for k, v in model.state_dict().items() if not k.startswith(("fc.", "normalize."))}


def test_all_but_the_head_comes_from_the_file(tmp_path: Path) -> None:
    given, model = build("resnet-20", 100), build("resnet-20", 12)
    torch.save(given.state_dict(), tmp_path / "given.pth")
    head = model.fc.weight.clone()  # type: ignore[union-attr,operator]
    start_from(model, str(tmp_path / "given.pth"), "resnet-20")
    assert all(torch.equal(value, body(given)[key]) for key, value in body(model).items())
    assert torch.equal(model.fc.weight, head)  # type: ignore[arg-type,union-attr]


def test_a_rotation_head_begins_fresh(tmp_path: Path) -> None:
    given, model = build("resnet-20", 12), build("resnet-20-rotation", 12)
    torch.save(given.state_dict(), tmp_path / "given.pth")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    start_from(model, str(tmp_path / "given.pth"), "resnet-20-rotation")
    for key, value in model.state_dict().items():
        source = before if key.startswith(("turns.", "fc.")) else given.state_dict()
        assert torch.equal(value, source[key]), key


def test_timm_brings_its_normalisation(monkeypatch: pytest.MonkeyPatch) -> None:
    network = ResNet(1000, (1, 1, 1, 1), width=2)
    del network.normalize
    network.pretrained_cfg = {"mean": (0.1,) * 3, "std": (0.2,) * 3, "num_classes": 1000}  # type: ignore[assignment]
    fake = SimpleNamespace(
        is_model=lambda name: True, create_model=lambda name, pretrained: network
    )
    monkeypatch.setitem(sys.modules, "timm", fake)
    model = ResNet(12, (1, 1, 1, 1), width=2)
    start_from(model, "timm:resnet50", "resnet-50")
    assert torch.equal(model.conv1.weight, network.conv1.weight)
    torch.testing.assert_close(model.normalize.mean.flatten(), torch.full((3,), 0.1))


def test_without_timm_the_error_names_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ModelError, match=r"tapr\[timm\].*or give a file you have with --weights"):
        start_from(build("resnet-20", 12), "timm:resnet50", "resnet-50")
