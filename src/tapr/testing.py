"""What every method owes, as checks that run on yours: `tapr.testing.check_method(make)`.

They are the ones that the methods of tapr itself go through. None of them needs a test framework.
"""

import tempfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tapr.adapters import Adapter
from tapr.errors import InputError, TaprError

__all__ = ["CHECKS", "Subject", "check_method", "small_model"]

Make = Callable[..., Adapter]


def small_model(
    norm: Callable[[int], nn.Module] | None = nn.BatchNorm2d, classes: int = 5
) -> nn.Sequential:
    """Two convolutions, with or without normalisation, and a linear head; its weights are fixed."""
    generator = torch.Generator().manual_seed(0)
    middle: list[nn.Module] = [norm(6)] if norm else []
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        *middle,
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, classes),
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator).mul_(0.5)
    return model.eval()


class Subject(NamedTuple):
    """A method under test: how it is made, for which model, with images of which size."""

    make: Make  # make(model, **common) -> adapter
    model: nn.Module
    size: tuple[int, int, int]  # channels, height, width

    def adapter(self, **common: object) -> Adapter:
        """A new adapter for the model."""
        return self.make(self.model, **common)

    def batches(self) -> list[Tensor]:
        """Three batches of images, the same at every call; the last is shorter.

        Neighbouring pixels are alike: from images that show nothing, a guard may let nobody learn.
        """
        generator = torch.Generator().manual_seed(7)
        noise = [torch.rand(count, *self.size, generator=generator) for count in (8, 8, 5)]
        first = next(self.model.parameters(), noise[0])
        return [((images + images.roll(1, 3)) / 2).to(first.device) for images in noise]


def check_method(
    make: Make,
    *,
    model: nn.Module | None = None,
    size: tuple[int, int, int] = (3, 10, 9),
) -> None:
    """Run every check on a method; an AssertionError says what does not hold.

    `make(model, **common)` makes an adapter and passes `seed`, `inplace` and `guard` on, as
    `partial(tapr.adapt, method="module:Class")` does. `model` takes images of `size`; without it,
    a small net with batch norm is used.

    >>> from functools import partial
    >>> import tapr
    >>> check_method(partial(tapr.adapt, method="tent"))
    """
    subject = Subject(make, small_model() if model is None else model.eval(), size)
    for name, check in CHECKS.items():
        try:
            check(subject)
        except AssertionError as error:
            raise AssertionError(f"{name.replace('_', ' ')}: {error}") from error


def the_model_of_the_caller_stays_bit_identical(subject: Subject) -> None:
    """Nor are its gradients, flags or hooks touched."""
    before = deepcopy(subject.model)
    flags = [p.requires_grad for p in subject.model.parameters()]
    adapter = subject.adapter()
    for batch in subject.batches():
        adapter(batch)
    _expect(_same(subject.model, before), "a parameter or buffer of it has changed")
    now = [p.requires_grad for p in subject.model.parameters()]
    _expect(now == flags, "requires_grad of a parameter of it has changed")
    _expect(all(p.grad is None for p in subject.model.parameters()), "it has gradients")
    hooks = [m for m in adapter.model.modules() if m._forward_pre_hooks or m._forward_hooks]
    _expect(not hooks, "hooks are left on the adapter's model")


def frozen_parameters_stay(subject: Subject) -> None:
    """What requires no gradient in the adapter's model does not move."""
    adapter = subject.adapter()
    frozen = {name: p.clone() for name, p in adapter.model.named_parameters() if _frozen(p)}
    for batch in subject.batches():
        adapter(batch)
    now = dict(adapter.model.named_parameters())
    moved = [name for name, before in frozen.items() if not torch.equal(now[name], before)]
    _expect(not moved, f"{moved} moved")


def reset_restores_bit_for_bit(subject: Subject) -> None:
    """The second run gives the logits and losses of the first."""
    adapter = subject.adapter()
    first = [adapter.predict(batch) for batch in subject.batches()]
    before = adapter.capture()
    adapter.reset()
    again = [adapter.predict(batch) for batch in subject.batches()]
    for one, two in zip(first, again, strict=True):
        _expect(torch.equal(one.logits, two.logits), "the logits after it differ")
        _expect(one[1:6] == two[1:6], f"{one[1:6]} became {two[1:6]}")
    _expect(_equal(before.tensors, adapter.capture().tensors), "the state after it differs")


def the_same_seed_gives_the_same_logits(subject: Subject) -> None:
    """And torch's own generator, which others use, is left alone."""
    before = torch.random.get_rng_state()
    one, two = subject.adapter(seed=3), subject.adapter(seed=3)
    for batch in subject.batches():
        _expect(torch.equal(one(batch), two(batch)), "two adapters with one seed differ")
    _expect(torch.equal(torch.random.get_rng_state(), before), "the global generator was used")


def no_grad_changes_nothing(subject: Subject) -> None:
    """Whether the caller has gradients on or off; and the logits need none."""
    one, two = subject.adapter(), subject.adapter()
    with torch.no_grad():
        inside = [one(batch) for batch in subject.batches()]
    outside = [two(batch) for batch in subject.batches()]
    same = all(torch.equal(a, b) for a, b in zip(inside, outside, strict=True))
    _expect(same, "the logits under no_grad differ")
    _expect(not any(logits.requires_grad for logits in outside), "the logits require a gradient")


def inference_mode_is_refused_and_leaves_the_state(subject: Subject) -> None:
    """Gradients are impossible in it."""
    adapter = subject.adapter()
    first = subject.batches()[0]
    with torch.inference_mode():
        _expect(_refused(adapter, first), "a call within it was not refused")
        images = first.clone()
    expected = subject.adapter()(first)
    _expect(torch.equal(adapter(images), expected), "images made within it give different logits")


def watching_changes_no_number(subject: Subject) -> None:
    """Health is told beside the method: predictions and state are those of `guard="off"`."""
    watched, alone = subject.adapter(guard="watch"), subject.adapter(guard="off")
    before = torch.random.get_rng_state()
    for batch in subject.batches():
        one, two = watched.predict(batch), alone.predict(batch)
        _expect(torch.equal(one.logits, two.logits), "the logits differ")
        _expect(one[1:8] == two[1:8], f"{two[1:8]} became {one[1:8]}")
    mine, theirs = (
        {name: t for name, t in each.capture().tensors.items() if not name.startswith("guard.")}
        for each in (watched, alone)
    )
    _expect(_equal(mine, theirs), "the state differs")
    _expect(torch.equal(torch.random.get_rng_state(), before), "the global generator was used")


def small_batches_are_defined(subject: Subject) -> None:
    """Of one image, of two, of seven: the right shape, and finite."""
    for count in (1, 2, 7):
        images = subject.batches()[0][:count]
        logits = subject.adapter()(images)
        _expect(len(logits) == count and logits.ndim == 2, f"got shape {list(logits.shape)}")
        _expect(bool(torch.isfinite(logits).all()), f"the logits of {count} images are not finite")


def an_empty_batch_changes_nothing(subject: Subject) -> None:
    """It gives logits [0, K]."""
    adapter, first = subject.adapter(), subject.batches()[0]
    empty = adapter(first[:0])
    expected = subject.adapter()(first)
    _expect(empty.shape == (0, expected.shape[1]), f"got shape {list(empty.shape)}")
    _expect(torch.equal(adapter(first), expected), "the next batch gives different logits")


def the_images_are_not_written(subject: Subject) -> None:
    """They are the caller's."""
    images = subject.batches()[0]
    before = images.clone()
    subject.adapter()(images)
    _expect(torch.equal(images, before), "they have changed")


def a_saved_state_resumes(subject: Subject) -> None:
    """From a file, bit for bit, in a new adapter and in the one that went on since.

    And `reset` still finds the source.
    """
    adapter, other = subject.adapter(), subject.adapter()
    first, *rest = subject.batches()
    adapter(first)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.safetensors"
        adapter.save(path)
        expected = [adapter(batch) for batch in rest]
        for resumed in (other.load(path), adapter.load(path)):
            for batch, logits in zip(rest, expected, strict=True):
                _expect(
                    torch.equal(resumed(batch), logits), "the loaded one gives different logits"
                )
    other.reset()
    _expect(torch.equal(other(first), subject.adapter()(first)), "reset after load differs")


def a_state_dict_resumes(subject: Subject) -> None:
    """As for any module of torch."""
    adapter, other = subject.adapter(), subject.adapter()
    first, *rest = subject.batches()
    adapter(first)
    other.load_state_dict(adapter.state_dict())
    for batch in rest:
        _expect(torch.equal(adapter(batch), other(batch)), "the loaded one gives different logits")
    other.reset()
    _expect(torch.equal(other(first), subject.adapter()(first)), "reset after load differs")


def a_deep_copy_goes_its_own_way(subject: Subject) -> None:
    """The copy resumes from the same state, and neither moves the other."""
    adapter = subject.adapter()
    first, *rest = subject.batches()
    adapter(first)
    copy = deepcopy(adapter)
    ours = [adapter(batch) for batch in rest]
    theirs = [copy(batch) for batch in rest]
    same = all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    _expect(same, "the copy gives different logits")
    copy.reset()
    _expect(torch.equal(copy(first), subject.adapter()(first)), "reset of the copy differs")


class _Failing(nn.Module):
    """A model that fails at one forward, as a device that runs out of memory does."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.left = model, -1

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:  # what else the model has, such as a second head
            if name == "model":
                raise
            return getattr(self.model, name)

    def forward(self, images: Tensor) -> Tensor:
        self.left -= 1
        if self.left == 0:
            raise MemoryError
        logits: Tensor = self.model(images)
        return logits


def an_error_leaves_the_state(subject: Subject) -> None:
    """An exception in the middle of a batch takes back what the batch has done."""
    model = _Failing(subject.model)
    adapter, fresh = subject.make(model), subject.make(model)
    first, second, _ = subject.batches()
    adapter(first), fresh(first)
    for forward in (1, 2):
        inside = adapter.model
        assert isinstance(inside, _Failing)
        inside.left = forward
        try:
            adapter(second)
        except MemoryError:
            pass
        else:  # it needs fewer forwards
            fresh(second)
        inside.left = -1
    _expect(torch.equal(adapter(second), fresh(second)), "the next batch gives different logits")


def bad_images_are_refused_and_leave_the_state(subject: Subject) -> None:
    """Of another rank, range or kind."""
    adapter, fresh = subject.adapter(), subject.adapter()
    first, second, _ = subject.batches()
    adapter(first), fresh(first)
    for bad in (first[0], first * 255, first - 1, first / 0, first.to(torch.uint8)):
        _expect(_refused(adapter, bad), f"images {bad.dtype} {list(bad.shape)} were not refused")
    _expect(torch.equal(adapter(second), fresh(second)), "the next batch gives different logits")


def train_and_eval_calls_change_nothing(subject: Subject) -> None:
    """The adapter decides which layer is in which mode."""
    adapter, first = subject.adapter(), subject.batches()[0]
    adapter.train()
    adapter.model.train()
    _expect(torch.equal(adapter(first), subject.adapter()(first)), "the logits differ")


def inplace_adapts_the_model_itself(subject: Subject) -> None:
    """And predicts as a copy would."""
    expected = [subject.adapter()(batch) for batch in subject.batches()[:1]]
    model = deepcopy(subject.model)
    adapter = subject.make(model, inplace=True)
    _expect(adapter.model is model, "the model was copied")
    _expect(torch.equal(adapter(subject.batches()[0]), expected[0]), "the logits differ")


def passes_are_what_happens(subject: Subject) -> None:
    """`adapter.passes` says how many images go forward and backward per image, at the most."""
    adapter, images = subject.adapter(), subject.batches()[0]
    prediction = adapter.predict(images)
    most = adapter.passes
    for what, happened, said in (
        ("forward", prediction.forward, most.forward),
        ("backward", prediction.backward, most.backward),
    ):
        _expect(
            happened <= said * len(images),
            f"{happened} images went {what}, passes allow {said * len(images)}",
        )


def threads_take_turns(subject: Subject) -> None:
    """Calls from several threads give the state of as many calls in a row."""
    adapter, alone = subject.adapter(), subject.adapter()
    images = subject.batches()[0]
    threads = [Thread(target=adapter, args=(images,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
        alone(images)
    _expect(_equal(adapter.capture().tensors, alone.capture().tensors), "the state differs")


CHECKS: dict[str, Callable[[Subject], None]] = {
    check.__name__: check
    for check in (
        the_model_of_the_caller_stays_bit_identical,
        frozen_parameters_stay,
        reset_restores_bit_for_bit,
        the_same_seed_gives_the_same_logits,
        no_grad_changes_nothing,
        inference_mode_is_refused_and_leaves_the_state,
        watching_changes_no_number,
        small_batches_are_defined,
        an_empty_batch_changes_nothing,
        the_images_are_not_written,
        a_saved_state_resumes,
        a_state_dict_resumes,
        a_deep_copy_goes_its_own_way,
        an_error_leaves_the_state,
        bad_images_are_refused_and_leave_the_state,
        train_and_eval_calls_change_nothing,
        inplace_adapts_the_model_itself,
        passes_are_what_happens,
        threads_take_turns,
    )
}


def _expect(held: bool, otherwise: str) -> None:
    if not held:
        raise AssertionError(otherwise)


def _refused(adapter: Adapter, images: Tensor) -> bool:
    try:
        adapter(images)
    except InputError:
        return True
    except TaprError as error:
        raise AssertionError(f"expected an InputError, got {error!r}") from error
    return False


def _frozen(parameter: nn.Parameter) -> bool:
    return not parameter.requires_grad


def _same(one: nn.Module, two: nn.Module) -> bool:
    return _equal(one.state_dict(), two.state_dict())


def _equal(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
