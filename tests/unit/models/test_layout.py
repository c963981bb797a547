"""Layouts: what they change (speed, rounding) and what they must not."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tapr
from tapr.models import layout
from tapr.runs.spec import Spec


@pytest.fixture(autouse=True)
def _nothing_found_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_found", {})


def kernel(model: nn.Module) -> Tensor:
    return next(p for p in model.parameters() if p.ndim == 4)


def last(model: nn.Module) -> bool:
    kernels = [p for p in model.parameters() if p.ndim == 4]
    return all(p.is_contiguous(memory_format=torch.channels_last) for p in kernels)


def fake_clock(monkeypatch: pytest.MonkeyPatch, turns: list[tuple[float, float]]) -> None:
    """A clock on which a pass takes that long, in turns: contiguous, then channels last."""

    def ticks() -> Iterator[float]:
        now = 0.0
        while True:
            for seconds in chain.from_iterable(turns):
                yield now
                now += seconds
                yield now

    times = ticks()
    monkeypatch.setattr(layout, "perf_counter", lambda: next(times))


def test_the_quicker_layout_is_taken_and_asked_for_once(
    model: nn.Module, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_clock(monkeypatch, [(3, 1)])
    first = tapr.adapt(model, "pest", layout="probe")
    first(images)
    assert first.layout == first.recipe["layout"] == "channels_last"
    assert last(first.model)
    assert not last(model)
    fake_clock(monkeypatch, [(1, 3)])
    second = tapr.adapt(model, "pest", layout="probe")
    second(images)
    assert second.layout == "channels_last"  # found already: same seed, same logits
    larger = tapr.adapt(model, "pest", layout="probe")
    larger(images.repeat(1, 1, 2, 2))
    assert larger.layout == "contiguous"


def test_equal_times_leave_the_plain_layout(
    model: nn.Module, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_clock(monkeypatch, [(1, 1)])
    assert layout.probe(model, images) == "contiguous"


@pytest.mark.parametrize(
    ("turns", "quicker"),
    [
        ([(0.2, 0.1), (0.9, 1.0), (0.2, 0.1)], "channels_last"),  # all is slow for a while
        ([(0.2, 0.1), (0.2, 2.0), (0.2, 0.1)], "channels_last"),  # one turn is disturbed
        ([(9, 0.1), (1, 1.1), (1, 1.1), (1, 1.1), (1, 1.1), (1, 1.1)], "contiguous"),  # warming up
    ],
)
def test_a_busy_moment_does_not_decide(
    turns: list[tuple[float, float]],
    quicker: str,
    model: nn.Module,
    images: Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_clock(monkeypatch, turns)
    assert layout.probe(model, images) == quicker


def test_a_slow_model_is_tried_twice_only(
    model: nn.Module, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_clock(monkeypatch, [(20, 30), (20, 10), (20, 30), (20, 30)])
    assert layout.probe(model, images) == "channels_last"


@pytest.mark.parametrize("method", ["source", "norm", "tent", "pest"])
def test_the_trial_itself_moves_nothing(
    model: nn.Module, images: Tensor, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_clock(monkeypatch, [(1, 3)])
    probed, plain = tapr.adapt(model, method, layout="probe"), tapr.adapt(model, method)
    calls: list[int] = []
    probed.model.register_forward_hook(lambda *_: calls.append(1))
    assert torch.equal(probed(images), plain(images))
    assert len(calls) == {"source": 1, "norm": 1, "tent": 1, "pest": 6}[method]


@pytest.mark.parametrize("method", ["norm", "tent", "pest"])
def test_layouts_agree_to_rounding(method: str, images: Tensor) -> None:
    model = tapr.models.load("cifar10-small")
    batch = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    plain = tapr.adapt(model, method, layout="contiguous")
    other = tapr.adapt(model, method, layout="channels_last")
    assert (last(plain.model), last(other.model)) == (False, True)
    torch.testing.assert_close(plain(batch), other(batch), rtol=1e-4, atol=1e-4)
    for a, b in zip(plain.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["contiguous", "channels_last"])
def test_images_are_brought_into_the_layout(name: str, model: nn.Module, images: Tensor) -> None:
    """Layers follow their input: images of another layout would undo it."""
    adapter = tapr.adapt(model, "pest", layout=name)
    seen: list[Tensor] = []
    first: nn.Module = next(iter(adapter.model.children()))
    first.register_forward_hook(lambda module, inputs, output: seen.append(output))
    for kind in (torch.contiguous_format, torch.channels_last):
        adapter(images.contiguous(memory_format=kind))
    last_ones = [out.is_contiguous(memory_format=torch.channels_last) for out in seen]
    assert set(last_ones) == {name == "channels_last"}


@pytest.mark.parametrize("method", ["tent", "pest"])
def test_a_saved_state_goes_on_in_its_layout(
    model: nn.Module, images: Tensor, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_clock(monkeypatch, [(3, 1)])
    adapter = tapr.adapt(model, method, layout="probe")
    adapter(images)
    adapter.save(tmp_path / "state")
    monkeypatch.setattr(layout, "_found", {})  # another process, whose clock says otherwise
    fake_clock(monkeypatch, [(1, 3)])
    loaded = tapr.load(tmp_path / "state", model)
    by_hand = tapr.adapt(model, method, layout="probe").load(tmp_path / "state")
    assert loaded.layout == by_hand.layout == "channels_last"
    expected = adapter(images)
    assert torch.equal(loaded(images), expected)
    assert torch.equal(by_hand(images), expected)


def test_kept_is_the_default_and_leaves_the_model_as_it_came(model: nn.Module) -> None:
    kernel(model).data = kernel(model).data.contiguous(memory_format=torch.channels_last)
    adapter = tapr.adapt(model, "pest")
    assert kernel(adapter.model).is_contiguous(memory_format=torch.channels_last)
    assert "layout" not in adapter.recipe


def test_convolutions_in_three_dimensions_stay() -> None:
    layers = nn.Unflatten(1, (1, 3)), nn.Conv3d(1, 2, 3), nn.Flatten(), nn.Linear(32, 3)
    adapter = tapr.adapt(nn.Sequential(*layers), "pest", layout="channels_last")
    assert adapter(torch.rand(2, 3, 6, 6)).shape == (2, 3)


def test_wrong_names_and_clocks_in_a_benchmark_are_refused(model: nn.Module) -> None:
    with pytest.raises(tapr.TaprError, match="unknown layout 'channel_last'; did you mean 'chan"):
        tapr.adapt(model, "pest", layout="channel_last")
    methods = {"fast": {"method": "pest", "layout": "probe"}}
    with pytest.raises(ValueError, match="chooses by measuring time"):
        Spec(name="a", data="digits", model="digits-small", methods=methods)
