"""Streams on one adapter predict bit for bit what adapters of their own would."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapr
from tapr import methods
from tapr.adapters import Adapter
from tapr.errors import DataError, InputError, StateError
from tapr.service.settings import Settings
from tapr.service.streams import FullError, Stream, Streams, UnknownError
from tapr.testing import small_model


def batches(count: int, size: int = 4) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.rand(size, 3, 10, 9, generator=generator) for _ in range(count)]


@pytest.fixture
def make(model: nn.Module, tmp_path: Path) -> Callable[..., Streams]:
    def streams(method: str = "steady", model: nn.Module = model, **settings: Any) -> Streams:
        settings = {"save_every": 3600.0, **settings}
        return Streams(methods.adapt(model, method), Settings(tmp_path / "state", **settings))

    return streams


def predict(streams: Streams, name: str, images: Tensor) -> Tensor:
    stream = streams.find(name)
    streams.enter(stream)
    logits = streams.adapter.predict(images).logits
    streams.keep(stream)
    return logits


@pytest.mark.parametrize("method", ["steady", "tent", "pest", "rotta", "cotta", "norm", "source"])
@pytest.mark.parametrize("in_memory", [1, 10])
def test_each_stream_is_bit_for_bit_an_adapter_of_its_own(
    method: str, in_memory: int, make: Callable[..., Streams], model: nn.Module
) -> None:
    streams = make(method, in_memory=in_memory)
    alone: dict[str, Adapter] = {name: methods.adapt(model, method) for name in "abc"}
    for turn, images in enumerate(batches(9)):
        name = "abcab"[turn % 5]
        assert torch.equal(predict(streams, name, images), alone[name](images)), (turn, name)


def test_a_restart_resumes_all_streams(make: Callable[..., Streams], model: nn.Module) -> None:
    first, second, third = batches(3)
    alone = {name: methods.adapt(model, "pest") for name in "ab"}
    streams = make("pest")
    for name, images in (("a", first), ("b", second)):
        predict(streams, name, images)
        alone[name](images)
    streams.freeze("b", True)
    streams.close()
    again = make("pest")
    assert sorted(again.all) == ["a", "b"]
    assert again.all["b"].about.frozen
    for name in "ab":
        assert torch.equal(predict(again, name, third), alone[name](third))


def test_a_kill_loses_no_more_than_what_was_not_saved(make: Callable[..., Streams]) -> None:
    first, second = batches(2)
    streams = make()
    predict(streams, "a", first)
    assert streams.save(streams.get("a"))
    after = predict(streams, "a", second)
    streams.shelf.release()  # killed: nothing else is written
    again = make()
    assert torch.equal(predict(again, "a", second), after)


def test_a_kill_before_the_first_save_does_not_lose_the_stream(
    make: Callable[..., Streams],
) -> None:
    (images,) = batches(1)
    streams = make()
    answer = predict(streams, "a", images)
    streams.shelf.release()  # killed: nothing else is written
    again = make()
    assert list(again.all) == ["a"]
    assert torch.equal(predict(again, "a", images), answer)  # from the beginning


def test_what_steady_holds_is_kilobytes(make: Callable[..., Streams]) -> None:
    streams = make()
    noise = batches(1)[0]
    predict(streams, "a", (noise + noise.roll(1, 3)) / 2)  # of noise alone nothing is remembered
    whole = sum(tensor.nbytes for tensor in streams.source.tensors.values())
    assert 0 < streams.get("a").own < whole
    moment = streams.get("a").moment
    assert moment is not None
    same = [n for n, t in moment.tensors.items() if t is streams.source.tensors.get(n)]
    assert any("running_mean" in name for name in same)


def test_saves_are_throttled_and_the_idle_go_to_disk(make: Callable[..., Streams]) -> None:
    now = [0.0]
    streams = make(save_every=10.0, idle=60.0)
    streams.clock = lambda: now[0]
    predict(streams, "a", batches(1)[0])
    stream = streams.get("a")
    now[0] = 9.0
    streams.tidy()
    assert not stream.saved
    now[0] = 10.0
    streams.tidy()
    assert stream.saved
    assert stream.in_memory
    now[0] = 71.0
    streams.tidy()
    assert not stream.in_memory


def test_snapshots_roll_back(make: Callable[..., Streams], model: nn.Module) -> None:
    first, second, third = batches(3)
    streams = make("tent", snapshots=2)
    alone = methods.adapt(model, "tent")
    predict(streams, "a", first)
    alone(first)
    name = streams.snapshot("a")
    predict(streams, "a", second)
    streams.roll_back("a", name)
    assert torch.equal(predict(streams, "a", third), alone(third))
    for _ in range(3):
        streams.snapshot("a")
    assert len(streams.snapshots("a")) == 2
    with pytest.raises(InputError, match="one of this stream's snapshots"):
        streams.roll_back("a", name)


def test_snapshots_are_taken_by_themselves(make: Callable[..., Streams]) -> None:
    now = [0.0]
    streams = make(save_every=0.0, snapshot_every=100.0)
    streams.clock = lambda: now[0]
    for moment in (0.0, 50.0, 100.0, 150.0):
        now[0] = moment
        predict(streams, "a", batches(1)[0])
        streams.tidy()
    assert len(streams.snapshots("a")) == 1


def test_an_exported_state_goes_to_another_stream_and_to_the_library(
    make: Callable[..., Streams], model: nn.Module, tmp_path: Path
) -> None:
    first, second = batches(2)
    streams = make("pest")
    predict(streams, "a", first)
    state = streams.export("a")
    streams.adopt("b", state)
    (tmp_path / "state.safetensors").write_bytes(state)
    elsewhere = tapr.load(tmp_path / "state.safetensors", model)
    expected = elsewhere(second)
    assert torch.equal(predict(streams, "b", second), expected)
    assert torch.equal(predict(streams, "a", second), expected)


def test_a_state_that_does_not_fit_changes_nothing(make: Callable[..., Streams]) -> None:
    first, second = batches(2)
    streams, twin = make("tent"), methods.adapt(small_model(), "tent")
    predict(streams, "a", first)
    twin(first)
    for wrong in (b"", b"nonsense", streams.export("a")[:-7]):
        with pytest.raises(StateError, match="the state") as caught:
            streams.adopt("a", wrong)
        assert str(streams.settings.folder) not in str(caught.value)
        with pytest.raises(StateError):
            streams.adopt("new", wrong)
    assert list(streams.all) == ["a"]
    assert torch.equal(predict(streams, "a", second), twin(second))


def test_a_damaged_file_is_said_and_can_be_reset(make: Callable[..., Streams]) -> None:
    streams = make()
    predict(streams, "a", batches(1)[0])
    streams.close()
    path = streams.shelf.state("a")
    path.write_bytes(path.read_bytes()[:-9])
    again = make()
    with pytest.raises(StateError, match="cannot be read: reset it") as caught:
        predict(again, "a", batches(1)[0])
    assert str(path.parent) not in str(caught.value)
    predict(again, "b", batches(1)[0])
    again.reset("a")
    predict(again, "a", batches(1)[0])


def test_a_full_disk_keeps_the_stream_in_memory(
    make: Callable[..., Streams], monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = make(in_memory=1)
    first = batches(1)[0]

    def full(*arguments: object) -> None:
        raise DataError("no space left")

    predict(streams, "a", first)
    monkeypatch.setattr(streams.shelf, "write", full)
    monkeypatch.setattr(streams.shelf, "note", full)
    predict(streams, "b", first)
    assert streams.failures == 2  # b is not written down, and a not saved
    assert streams.get("a").in_memory
    monkeypatch.undo()
    predict(streams, "c", first)
    assert not streams.get("a").in_memory


def test_names_and_the_number_of_streams_are_limited(make: Callable[..., Streams]) -> None:
    streams = make(max_streams=1)
    for name in ("", ".", "..", "a/b", "A", "a" * 65, "-a", "a b", "a\n", "\u0435"):
        with pytest.raises(InputError, match="expected a stream's name"):
            streams.find(name)
    streams.find("a")
    with pytest.raises(FullError, match="at most 1 streams"):
        streams.find("b")
    with pytest.raises(UnknownError, match="no stream 'b'"):
        streams.reset("b")


def test_a_folder_belongs_to_one_model_method_and_process(
    make: Callable[..., Streams], make_model: Callable[..., nn.Module]
) -> None:
    streams = make("tent")
    with pytest.raises(DataError, match="another tapr"):
        make("tent")
    streams.close()
    with pytest.raises(DataError, match="holds streams of"):
        make("norm")
    other = make_model()
    with torch.no_grad():
        next(other.parameters()).add_(1)
    with pytest.raises(DataError, match="another model"):
        make("tent", other)
    make("tent").close()


def test_deleting_forgets_everything(make: Callable[..., Streams]) -> None:
    streams = make()
    predict(streams, "a", batches(1)[0])
    streams.snapshot("a")
    streams.delete("a")
    assert not streams.shelf.state("a").parent.exists()
    fresh: Stream = streams.find("a")
    assert fresh.moment is streams.source
