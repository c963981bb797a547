import pytest
import torch
from torch import nn

from tapr.errors import InputError
from tapr.models import build, load

SIZES = {  # Zagoruyko & Komodakis 2016, tables 4 and 5: 36.5 M and 2.2 M
    ("wrn-28-10", 10): 36_479_194,
    ("wrn-40-2", 10): 2_243_546,
    ("wrn-40-2", 100): 2_255_156,
}


def robustbench_names(depth: int) -> set[str]:
    """The names in RobustBench's WideResNet checkpoints, written out from its layout."""
    norm = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    names = {"conv1.weight", "fc.weight", "fc.bias", *(f"bn1.{part}" for part in norm)}
    for block in (1, 2, 3):
        for layer in range((depth - 4) // 6):
            start = f"block{block}.layer.{layer}"
            names |= {f"{start}.bn{number}.{part}" for number in (1, 2) for part in norm}
            names |= {f"{start}.conv{number}.weight" for number in (1, 2)}
            if layer == 0:
                names.add(f"{start}.convShortcut.weight")
    return names


def synthetic(architecture: str, classes: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        key: torch.rand(value.shape, generator=generator) if value.ndim else value
        for key, value in build(architecture, classes).state_dict().items()
        if not key.startswith("normalize.")
    }


@pytest.mark.parametrize(("architecture", "classes"), SIZES)
def test_parameter_counts(architecture: str, classes: int) -> None:
    with torch.device("meta"):
        model = build(architecture, classes)
    assert sum(value.numel() for value in model.parameters()) == SIZES[architecture, classes]


@pytest.mark.parametrize(("architecture", "classes"), [("wrn-40-2", 100), ("wrn-10-3", 7)])
def test_forward_shape(architecture: str, classes: int) -> None:
    with torch.no_grad():
        assert build(architecture, classes).eval()(torch.rand(2, 3, 32, 32)).shape == (2, classes)


@pytest.mark.parametrize(("architecture", "depth"), [("wrn-28-10", 28), ("wrn-40-2", 40)])
def test_names_are_those_of_robustbench(architecture: str, depth: int) -> None:
    with torch.device("meta"):
        names = set(build(architecture, 10).state_dict())
    assert names == robustbench_names(depth) | {"normalize.mean", "normalize.std"}


def test_meta_forward_shape_of_the_wide_one() -> None:
    with torch.device("meta"):
        assert build("wrn-28-10", 10)(torch.rand(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize("classes", [10, 100])
def test_augmix_checkpoint_loads_with_its_normalisation(classes: int, tmp_path: object) -> None:
    state = synthetic("wrn-40-2", classes)
    path = f"{tmp_path}/augmix.pt"
    torch.save({"state_dict": {f"module.{key}": value for key, value in state.items()}}, path)

    model = load(path, architecture="robustbench:Hendrycks2020AugMix_WRN")

    loaded = model.state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in state.items())
    assert torch.equal(loaded["normalize.mean"].flatten(), torch.full((3,), 0.5))
    assert torch.equal(loaded["normalize.std"].flatten(), torch.full((3,), 0.5))


def test_standard_checkpoint_loads_and_its_input_stays_as_it_is(tmp_path: object) -> None:
    with torch.device("meta"):
        shapes = build("robustbench:Standard", 10).state_dict()
    state = {
        key: torch.zeros((), dtype=value.dtype).expand(value.shape)  # one number on disk
        for key, value in shapes.items()
        if not key.startswith("normalize.")
    }
    path = f"{tmp_path}/Standard.pt"
    torch.save(state, path)

    loaded = load(path, architecture="robustbench:Standard").state_dict()

    assert set(loaded) - set(state) == {"normalize.mean", "normalize.std"}
    assert not loaded["normalize.mean"].any()
    assert bool((loaded["normalize.std"] == 1).all())


def test_stored_normalisation_and_unused_blocks_are_understood(tmp_path: object) -> None:
    state = synthetic("wrn-10-1", 4)
    state["mu"] = torch.tensor([0.1, 0.2, 0.3]).view(1, 3, 1, 1)
    state["sigma"] = torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1)
    state["sub_block1.layer.0.bn1.weight"] = torch.ones(16)
    torch.save(state, f"{tmp_path}/model.pth")

    loaded = load(f"{tmp_path}/model.pth", architecture="wrn-10-1").state_dict()

    assert loaded["normalize.mean"].flatten().tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert loaded["normalize.std"].flatten().tolist() == pytest.approx([0.4, 0.5, 0.6])


def test_block_arithmetic_against_a_loop_by_hand() -> None:
    model = build("wrn-10-1", 3).eval()
    images = torch.rand(2, 3, 32, 32)
    modules = dict(model.named_modules())

    def run(name: str, value: torch.Tensor) -> torch.Tensor:
        module = modules[name]
        assert isinstance(module, nn.Module)
        return module(value)  # type: ignore[no-any-return]

    with torch.no_grad():
        features = run("conv1", images)
        for block, shortcut in (("block1", False), ("block2", True), ("block3", True)):
            start = f"{block}.layer.0"
            active = run(f"{start}.bn1", features).clamp(min=0)
            hidden = run(f"{start}.bn2", run(f"{start}.conv1", active)).clamp(min=0)
            skip = run(f"{start}.convShortcut", active) if shortcut else features
            features = run(f"{start}.conv2", hidden) + skip
        pooled = run("bn1", features).clamp(min=0).flatten(2).mean(2)
        assert torch.allclose(model(images), run("fc", pooled), atol=1e-6)


@pytest.mark.parametrize("name", ["wrn-27-10", "wrn-4-1", "wrn-28-0"])
def test_impossible_sizes(name: str) -> None:
    with pytest.raises(InputError, match="depth of 6n"):
        build(name, 10)
