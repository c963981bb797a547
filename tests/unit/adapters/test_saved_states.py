"""A state that is not ours, damaged or of another model is refused, and nothing is touched."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import tapr
from tapr.methods.source import Source


@pytest.fixture
def saved(model: nn.Sequential, images: Tensor, tmp_path: Path) -> Path:
    adapter = tapr.adapt(model, "pest")
    adapter(images)
    adapter.save(tmp_path / "state.safetensors")
    return tmp_path / "state.safetensors"


def test_missing(model: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(tapr.TaprError, match="found no file"):
        tapr.load(tmp_path / "nothing", model)


@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_truncated(model: nn.Module, saved: Path, size: int) -> None:
    saved.write_bytes(saved.read_bytes()[:size])
    with pytest.raises(tapr.TaprError, match="truncated or not a state saved by tapr"):
        tapr.load(saved, model)


def test_a_pickle_is_not_run(model: nn.Module, tmp_path: Path) -> None:
    torch.save(model, tmp_path / "model.pt")
    with pytest.raises(tapr.TaprError, match="not a state saved by tapr"):
        tapr.load(tmp_path / "model.pt", model)


def test_somebody_elses_safetensors(model: nn.Module, tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(tapr.TaprError, match="but not a state saved by tapr"):
        tapr.load(tmp_path / "model.safetensors", model)


def test_a_header_without_its_contents(model: nn.Module, tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(3)}, tmp_path / "state", {"format": "tapr-state-1"})
    with pytest.raises(tapr.TaprError, match="not a state saved by tapr"):
        tapr.load(tmp_path / "state", model)


def test_another_architecture_or_other_weights(
    make_model: Callable[..., nn.Sequential], saved: Path
) -> None:
    retrained = make_model()
    with torch.no_grad():
        next(retrained.parameters()).add_(1e-3)
    for other in (make_model(classes=4), make_model(norm=None), retrained):
        with pytest.raises(tapr.TaprError, match="another source model"):
            tapr.load(saved, other)


def test_another_method_is_refused_and_the_adapter_goes_on(
    model: nn.Sequential, images: Tensor, saved: Path
) -> None:
    tent, fresh = tapr.adapt(model, "tent"), tapr.adapt(model, "tent")
    with pytest.raises(tapr.TaprError, match="another method or scope"):
        tent.load(saved)
    assert torch.equal(tent(images), fresh(images))


def test_an_adapter_made_by_hand_loads_by_hand(
    model: nn.Sequential, images: Tensor, tmp_path: Path
) -> None:
    Source(model).save(tmp_path / "state")
    with pytest.raises(tapr.TaprError, match=r"adapter.load\(path\)"):
        tapr.load(tmp_path / "state", model)
    assert Source(model).load(tmp_path / "state")(images).shape == (8, 5)


def test_a_folder_that_cannot_be_written(model: nn.Module, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(tapr.TaprError, match="cannot write"):
        tapr.adapt(model, "pest").save(tmp_path / "file" / "state")


def test_saving_over_a_state_keeps_the_old_one_on_failure(
    model: nn.Module, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved.read_bytes()

    def fail(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tapr.models.state.save", fail)
    with pytest.raises(KeyboardInterrupt):
        tapr.adapt(model, "pest").save(saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]
