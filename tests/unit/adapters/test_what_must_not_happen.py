"""What an attack once found, each test named after what must not happen again."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.attack.kinds import METHODS
from torch import Tensor, nn

import tapr
from tapr.errors import InputError, ModelError, StateError
from tapr.models import state
from tapr.testing import small_model


class Late(nn.Module):
    """A model that makes its table of positions in its first forward, and grows it when needed."""

    table: Tensor

    def __init__(self, *, persistent: bool = True, fail: bool = False) -> None:
        super().__init__()
        self.model, self.persistent, self.fail = small_model(), persistent, fail

    def forward(self, images: Tensor) -> Tensor:
        rows = images.shape[2]
        if "table" not in self._buffers:
            self.register_buffer("table", torch.arange(float(rows)), persistent=self.persistent)
        elif len(self.table) < rows:
            self.table = torch.arange(float(rows))
        self.table += 1
        if self.fail:
            raise RuntimeError("after the table was made")
        shift: Tensor = self.table[:rows, None] / 1000
        logits: Tensor = self.model(images + shift)
        return logits


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Buffers that appear in the first forward


def test_reset_does_not_stumble_over_a_late_buffer(method: str, images: Tensor) -> None:
    adapter = tapr.adapt(Late(), method)
    first = adapter(images)
    adapter.reset()
    assert "table" not in adapter.model._buffers
    assert torch.equal(adapter(images), first)


@pytest.mark.parametrize("persistent", [True, False])
def test_a_late_buffer_does_not_make_a_state_that_never_loads(
    method: str, persistent: bool, images: Tensor, tmp_path: Path
) -> None:
    adapter = tapr.adapt(Late(persistent=persistent), method)
    adapter(images)
    adapter.save(tmp_path / "state")
    other = tapr.load(tmp_path / "state", Late(persistent=persistent))
    assert torch.equal(other(images), adapter(images))


def test_a_grown_buffer_does_not_make_a_state_that_never_loads(
    method: str, images: Tensor, tmp_path: Path
) -> None:
    def used() -> Late:
        model = Late().eval()
        with torch.no_grad():
            model(images[:, :, :6])  # the caller has used it for smaller images
        return model

    adapter = tapr.adapt(used(), method)
    adapter(images)
    adapter.save(tmp_path / "state")
    other = tapr.load(tmp_path / "state", used())
    assert torch.equal(other(images), adapter(images))
    other.reset()
    assert torch.equal(other.source.tensors["model.table"], used().table)


@pytest.mark.parametrize("persistent", [True, False])
def test_a_state_dict_does_not_forget_a_late_buffer(persistent: bool, images: Tensor) -> None:
    adapter, other = (tapr.adapt(Late(persistent=persistent), "tent") for _ in range(2))
    adapter(images)
    other.load_state_dict(adapter.state_dict())
    assert torch.equal(other(images), adapter(images))


def test_a_late_buffer_does_not_hide_why_the_model_failed(method: str, images: Tensor) -> None:
    adapter = tapr.adapt(Late(fail=True), method)
    with pytest.raises(ModelError, match="after the table was made"):
        adapter(images)
    assert "table" not in adapter.model._buffers


@pytest.mark.parametrize("learns", ["tent", "pest"])
def test_the_second_batch_of_an_episodic_stream_does_not_fail(learns: str, images: Tensor) -> None:
    adapter = tapr.adapt(Late(), learns, episodic=True, lr=0.01)
    first = adapter(images)
    again = adapter(images)
    assert torch.equal(first, again) or learns == "pest"  # which draws other views


def test_reset_does_not_take_away_a_buffer_that_two_layers_share(images: Tensor) -> None:
    model: Any = small_model()
    model[0].register_buffer("again", model[1].running_mean)
    adapter = tapr.adapt(model)
    first = adapter(images)
    adapter.reset()
    assert torch.equal(adapter(images), first)


# Models


class Writing(nn.Module):
    """A model that normalises its input in place: plainly, or behind the version counter's back."""

    def __init__(self, hidden: bool, after: int) -> None:
        super().__init__()
        self.model, self.hidden, self.after, self.calls = small_model(), hidden, after, 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > self.after:
            (images.data if self.hidden else images).sub_(0.5).div_(0.25)
        else:
            images = (images - 0.5) / 0.25
        logits: Tensor = self.model(images)
        return logits


@pytest.mark.parametrize("after", [0, 1], ids=["from the start", "later"])
@pytest.mark.parametrize("hidden", [False, True], ids=["plainly", "hidden"])
def test_a_model_that_writes_into_its_input_does_not_give_other_logits(
    method: str, hidden: bool, after: int, images: Tensor
) -> None:
    writing, pure = (tapr.adapt(Writing(hidden, n), method) for n in (after, 10**9))
    before = images.clone()
    for _ in range(3):
        assert torch.equal(writing(images), pure(images))
    assert torch.equal(images, before)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_compiled_model_is_not_adapted_without_effect(method: str) -> None:
    with pytest.raises(ModelError, match="pass the model it was made from, and compile=True"):
        tapr.adapt(torch.compile(small_model()), method)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["cifar10-small", None, {}, lambda images: images, nn.Linear])
def test_what_is_no_model_is_not_an_attribute_error(method: str, model: Any) -> None:
    with pytest.raises(ModelError, match=r"expected a torch\.nn\.Module, got"):
        tapr.adapt(model, method)


def test_an_adapter_made_in_inference_mode_does_not_fail_later(method: str) -> None:
    with torch.inference_mode(), pytest.raises(InputError, match="made outside"):
        tapr.adapt(small_model(), method)


def test_a_model_made_in_inference_mode_is_not_refused(method: str, images: Tensor) -> None:
    with torch.inference_mode():
        model = small_model()
    assert torch.equal(tapr.adapt(model, method)(images), tapr.adapt(small_model(), method)(images))


def test_running_out_of_memory_is_not_called_the_models_fault(images: Tensor) -> None:
    class Full(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            raise torch.OutOfMemoryError("none left")

    with pytest.raises(torch.OutOfMemoryError):
        tapr.adapt(Full(), "source")(images)


# States


@pytest.fixture
def saved(images: Tensor, tmp_path: Path) -> Path:
    adapter = tapr.adapt(small_model(), "tent")
    adapter(images)
    adapter.save(tmp_path / "state")
    return tmp_path / "state"


def forge(file: Path, **recipe: Any) -> None:
    tensors, metadata = state.read(file)
    assert isinstance(metadata["recipe"], dict)
    state.write(file, tensors, {**metadata, "recipe": {**metadata["recipe"], **recipe}})


def test_a_file_does_not_adapt_the_callers_own_model(saved: Path) -> None:
    forge(saved, inplace=True)
    with pytest.raises(StateError, match="asks for inplace, which only the caller may choose"):
        tapr.load(saved, small_model())


def test_a_file_does_not_keep_the_caller_busy(saved: Path) -> None:
    forge(saved, steps=10**9)
    with pytest.raises(StateError, match="more than most_steps=100"):
        tapr.load(saved, small_model())
    forge(saved, steps=200)
    assert tapr.load(saved, small_model(), most_steps=200).recipe["steps"] == 200


def test_a_file_does_not_name_code(saved: Path) -> None:
    forge(saved, method="os:system")
    with pytest.raises(StateError, match="which is your own; pass it again"):
        tapr.load(saved, small_model())


def test_a_bad_tensor_does_not_leave_half_a_state(saved: Path, images: Tensor) -> None:
    """The last tensor of the file is bad: those before it must not have moved."""
    tensors, metadata = state.read(saved)
    last = max(name for name in tensors if name.startswith("optimizer."))
    tensors[last] = torch.full_like(tensors[last], torch.nan)
    state.write(saved, tensors, metadata)
    adapter, fresh = (tapr.adapt(small_model(), "tent") for _ in range(2))
    adapter(images / 2), fresh(images / 2)
    with pytest.raises(StateError, match="expected finite values"):
        adapter.load(saved)
    assert torch.equal(adapter(images), fresh(images))


def test_a_mask_of_infinities_is_not_taken_for_damage(images: Tensor, tmp_path: Path) -> None:
    model = small_model()
    model.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))
    adapter = tapr.adapt(model)
    adapter(images)
    adapter.save(tmp_path / "state")
    assert torch.equal(tapr.load(tmp_path / "state", model)(images), adapter(images))


def test_metadata_of_another_kind_is_not_an_attribute_error(saved: Path) -> None:
    content = saved.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"]["tapr"] = "[]"
    text = json.dumps(header).encode()
    saved.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])
    with pytest.raises(StateError, match="expected names with values, got list"):
        tapr.load(saved, small_model())


# Options


def test_momentum_0_does_not_keep_adam_from_being_made(images: Tensor) -> None:
    assert tapr.adapt(small_model(), "tent", momentum=0)(images).isfinite().all()


def test_an_augmentation_does_not_change_the_number_of_images(images: Tensor) -> None:
    class Halving(tapr.augment.Augmentation):
        def sample(self, shape: Any, generator: torch.Generator) -> None:
            """Nothing is drawn."""

        def transform(self, images: Tensor, params: None) -> Tensor:
            return images[::2]

    adapter = tapr.adapt(small_model(), "pest", augmentation=Halving())
    with pytest.raises(InputError, match=r"return images \[16, 3, 10, 9\], got \[8, 3, 10, 9\]"):
        adapter(images)


def test_an_augmentation_whose_attributes_have_no_truth_is_not_a_raw_exception(
    images: Tensor,
) -> None:
    class Odd:
        by_image = copies = torch.zeros(2)  # its truth is a RuntimeError

        def sample(self, shape: Any, generator: torch.Generator) -> None: ...

        def transform(self, images: Tensor, params: None) -> Tensor:
            return images

    adapter = tapr.adapt(small_model(), "pest", augmentation=Odd(), steps=1)
    assert adapter(images).isfinite().all()
    assert adapter.cost(images.shape).memory > 0


@pytest.mark.parametrize("name", ["t3a", "lame", "tent", "rotta"])
def test_mixed_precision_does_not_keep_features_from_being_compared(
    name: str, images: Tensor
) -> None:
    logits = tapr.adapt(small_model(), name, amp=True)(images)
    assert logits.dtype == images.dtype
    assert logits.isfinite().all()


@pytest.mark.parametrize("method", ["rotta", "note"])
def test_images_of_another_size_do_not_break_a_memory(method: str, images: Tensor) -> None:
    adapter, fresh = (tapr.adapt(small_model(), method) for _ in range(2))
    adapter(images), fresh(images)
    with pytest.raises(InputError, match=r"expected images of \[3, 10, 9\], as those in"):
        adapter(images[:, :, :8])
    assert torch.equal(adapter(images), fresh(images))
