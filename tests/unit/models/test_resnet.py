import pytest
import torch
from torch import nn

from tapr.models import build, load
from tapr.models.resnet import ResNet


def torchvision_names() -> set[str]:
    """The names of torchvision's resnet50, written out from its layout."""
    norm = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    names = {"conv1.weight", "fc.weight", "fc.bias", *(f"bn1.{part}" for part in norm)}
    for layer, count in enumerate((3, 4, 6, 3), start=1):
        for block in range(count):
            start = f"layer{layer}.{block}"
            names |= {f"{start}.conv{number}.weight" for number in (1, 2, 3)}
            names |= {f"{start}.bn{number}.{part}" for number in (1, 2, 3) for part in norm}
        names.add(f"layer{layer}.0.downsample.0.weight")
        names |= {f"layer{layer}.0.downsample.1.{part}" for part in norm}
    return names


@pytest.mark.parametrize(("classes", "expected"), [(1000, 25_557_032), (12, 23_532_620)])
def test_parameter_counts(classes: int, expected: int) -> None:
    with torch.device("meta"):
        model = build("resnet-50", classes)
    assert sum(value.numel() for value in model.parameters()) == expected


def test_names_are_those_of_torchvision() -> None:
    with torch.device("meta"):
        names = set(build("resnet-50", 12).state_dict())
    assert names == torchvision_names() | {"normalize.mean", "normalize.std"}


def test_a_narrow_one_halves_five_times_and_has_twelve_classes() -> None:
    model = ResNet(12, (1, 1, 1, 1), width=4).eval()
    with torch.no_grad():
        assert model(torch.rand(2, 3, 64, 64)).shape == (2, 12)
        features = model.conv1(torch.rand(1, 3, 64, 64))
        features = nn.functional.max_pool2d(features, 3, 2, 1)
        deepest = model.layer4(model.layer3(model.layer2(model.layer1(features))))
    assert deepest.shape == (1, 128, 2, 2)


def test_a_checkpoint_with_torchvisions_names_loads(tmp_path: object) -> None:
    with torch.device("meta"):
        shapes = build("resnet-50", 12).state_dict()
    state = {
        key: torch.ones((), dtype=value.dtype).expand(value.shape)
        for key, value in shapes.items()
        if not key.startswith("normalize.")
    }
    torch.save(state, f"{tmp_path}/resnet50.pth")

    model = load(f"{tmp_path}/resnet50.pth", architecture="resnet-50", classes=12)

    mean = model.state_dict()["normalize.mean"].flatten().tolist()
    assert mean == pytest.approx([0.485, 0.456, 0.406])
    assert bool((model.state_dict()["layer3.5.conv2.weight"] == 1).all())
