"""The state of an adapter, called what moves: found by one rule, captured, put back, checked.

What moves is every tensor below the adapter except the model's frozen parameters: the parameters in
scope, all buffers (also those that appear in a forward, or take their shape from it), the
parameters of teachers and other parts, the memory of optimisers, and the state of generators.
`reset`, `save`, `load`, the rollback and `deepcopy` use this rule, for every method.
"""

from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tapr.errors import ModelError, StateError
from tapr.models import state

_HELD = (Optimizer, torch.Generator)


class Moment(NamedTuple):
    """The values of all that moves, at one time."""

    tensors: dict[str, Tensor]
    numbers: dict[str, float]  # of optimisers: learning rates, counts
    empty: frozenset[str] = frozenset()  # buffers that are declared and None


class Held(NamedTuple):
    """The optimisers and generators that modules hold, by their place."""

    optimisers: dict[str, Optimizer]
    generators: dict[str, torch.Generator]

    def owner(self, name: str) -> str | None:
        """The place of the optimiser in whose memory a tensor or number of this name is."""
        return next((place for place in self.optimisers if name.startswith(f"{place}.")), None)


def live(root: nn.Module, frozen: Container[str]) -> dict[str, Tensor]:
    """All tensors that move, by name: the tensors themselves, but copies of generators' states."""
    held = _held(root)
    return _live(root, frozen, held, _memories(root, held))


def _live(
    root: nn.Module, frozen: Container[str], held: Held, memories: Mapping[str, Any]
) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {n: p for n, p in root.named_parameters() if n not in frozen}
    found |= _filled(root)
    found |= {name: v for name, v in memories.items() if isinstance(v, Tensor)}
    return found | {place: g.get_state() for place, g in held.generators.items()}


def capture(root: nn.Module, frozen: Container[str], storage: Moment | None = None) -> Moment:
    """A copy of all that moves; it reuses the memory of an earlier copy where that fits."""
    held = _held(root)
    memories = _memories(root, held)
    numbers = {name: v for name, v in memories.items() if _is_number(v)}
    for place, optimiser in held.optimisers.items():
        for number, group in enumerate(optimiser.param_groups):
            numbers |= {f"{place}.{number}.{k}": v for k, v in group.items() if _is_number(v)}
    empty = frozenset(name for name, module, key in _buffers(root) if module._buffers[key] is None)
    now = _live(root, frozen, held, memories)
    tensors = state.snapshot(now, storage.tensors if storage else None)
    return Moment(tensors, numbers, empty)


@torch.no_grad()
def put_back(
    root: nn.Module, frozen: Container[str], moment: Moment, *, generators: bool = True
) -> None:
    """Return to an earlier moment, bit for bit; tensors that have appeared since are removed."""
    held = _held(root)
    parameters = {name: p for name, p in root.named_parameters() if name not in frozen}
    for name, parameter in parameters.items():
        parameter.copy_(moment.tensors[name])
    for name, module, key in list(_buffers(root)):
        if name in moment.empty:
            module._buffers[key] = None
        elif name not in moment.tensors:
            delattr(module, key)
    for name in moment.empty - {name for name, _, _ in _buffers(root)}:
        _set_buffer(root, name, None)
    for name, value in moment.tensors.items():
        if name not in parameters and name not in held.generators and held.owner(name) is None:
            _set_buffer(root, name, value)
    _put_back_optimisers(root, held, moment)
    if generators:
        for place, generator in held.generators.items():
            generator.set_state(moment.tensors[place].cpu())


def own(root: nn.Module, moment: Moment) -> dict[str, Tensor]:
    """The parameters and buffers of a moment, without generators and optimisers."""
    held = _held(root)
    other = {name for name in moment.tensors if name in held.generators or held.owner(name)}
    return {name: tensor for name, tensor in moment.tensors.items() if name not in other}


def changed(source: Moment, now: Moment) -> list[str]:
    """The buffers that a forward removed, emptied, resized or converted."""
    kinds = {name: (tensor.shape, tensor.dtype) for name, tensor in now.tensors.items()}
    before = {name: (tensor.shape, tensor.dtype) for name, tensor in source.tensors.items()}
    return [name for name, kind in before.items() if kinds.get(name) != kind]


def check(
    what: Path | str, saved: Moment, root: nn.Module, source: Moment, variable: Container[str] = ()
) -> None:
    """Refuse a state that does not fit, before any part of it is used; the error names the tensor.

    `variable` buffers changed their shape or dtype in a forward: they may have any, or be missing.
    """

    def refuse(sentence: str) -> None:
        raise StateError(f"{what} does not fit: {sentence}")

    held = _held(root)
    buffers = {name for name, _, _ in _buffers(root)}
    free = {name for name in buffers if name in variable}
    for name in source.tensors:
        if name not in saved.tensors and held.owner(name) is None and name not in free:
            refuse(f"expected a tensor {name!r}, found none")
    for name in saved.empty:
        if name in saved.tensors or (name not in buffers and not _may_appear(root, name)):
            refuse(f"expected no buffer {name!r}")
    for name, tensor in saved.tensors.items():
        if name in held.generators:
            _check_generator(what, name, tensor)
            continue
        expected = None if name in free else source.tensors.get(name)
        if expected is None and name not in free:
            expected = _expected(root, held, name)
            if expected is None and not _may_appear(root, name):
                refuse(f"{name!r} is not adapted here; was it saved by another method or scope?")
        if expected is not None and expected.dtype != tensor.dtype:
            refuse(f"expected {name!r} of {expected.dtype}, got {tensor.dtype}")
        if expected is not None and expected.numel() and expected.shape != tensor.shape:
            refuse(f"expected {name!r} of shape {list(expected.shape)}, got {list(tensor.shape)}")
        if (tensor.is_floating_point() or tensor.is_complex()) and not _as_finite(tensor, expected):
            refuse(f"expected finite values in {name!r}, got NaN or infinity")
    for name, number in saved.numbers.items():
        remembered = held.owner(name) is not None and _expected(root, held, name) is not None
        if name not in source.numbers and not remembered:
            refuse(f"expected no number {name!r} = {number!r}")


def _held(root: nn.Module) -> Held:
    held = Held({}, {})
    for prefix, module in root.named_modules():
        if type(module).__module__.startswith("torch.nn.modules."):  # torch's layers hold none
            continue
        for name, value in vars(module).items():
            if isinstance(value, _HELD):
                place = f"{prefix}.{name}" if prefix else name
                if isinstance(value, Optimizer):
                    held.optimisers[place] = value
                else:
                    held.generators[place] = value
    return held


def _memories(root: nn.Module, held: Held) -> dict[str, Any]:
    """The memory of optimisers, by names of the form place.parameter.key."""
    named: dict[Tensor, str] = {parameter: name for name, parameter in root.named_parameters()}
    found: dict[str, Any] = {}
    for place, optimiser in held.optimisers.items():
        for parameter, memory in optimiser.state.items():
            if parameter not in named:
                raise ModelError(
                    f"expected {place} to move parameters below the adapter, got one from elsewhere"
                )
            found |= {f"{place}.{named[parameter]}.{key}": v for key, v in memory.items()}
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _put_back_optimisers(root: nn.Module, held: Held, moment: Moment) -> None:
    parameters = dict(root.named_parameters())
    for optimiser in held.optimisers.values():
        optimiser.state.clear()
    entries: dict[str, Any] = {**moment.tensors, **moment.numbers}
    for name, value in entries.items():
        place = held.owner(name)
        if place is None:
            continue
        owner, _, key = name.removeprefix(f"{place}.").rpartition(".")
        optimiser = held.optimisers[place]
        if owner in parameters:
            memory = _memory(optimiser, parameters[owner], key, value)
            optimiser.state[parameters[owner]][key] = memory
        else:
            optimiser.param_groups[int(owner)][key] = value


def _memory(optimiser: Any, parameter: nn.Parameter, key: str, value: Any) -> Any:
    """A value of an optimiser's memory, on the device and of the dtype that it expects."""
    if not isinstance(value, Tensor):
        return value
    if value.shape != parameter.shape or key == "step":
        # Adam's count; unless fused, it counts on the CPU.
        on_device = optimiser.param_groups[0].get("fused") or key != "step"
        return value.to(parameter.device if on_device else "cpu", copy=True)
    return torch.empty_like(parameter, requires_grad=False).copy_(value)


def _buffers(root: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """All buffers, also those that are None: name, module that holds it, and key there."""
    for prefix, module in root.named_modules():
        for key in module._buffers:
            yield (f"{prefix}.{key}" if prefix else key), module, key


def _filled(root: nn.Module) -> dict[str, Tensor]:
    """The buffers that are not None; a buffer that two modules share has both names."""
    found = {name: module._buffers[key] for name, module, key in _buffers(root)}
    return {name: buffer for name, buffer in found.items() if buffer is not None}


def in_state_dict(root: nn.Module) -> set[str]:
    """The names in torch's own `state_dict`: parameters and persistent buffers."""
    lasting = {name for name, m, key in _buffers(root) if key not in m._non_persistent_buffers_set}
    return lasting | {name for name, _ in root.named_parameters()}


def _set_buffer(
    root: nn.Module, name: str, value: Tensor | None, *, persistent: bool = True
) -> None:
    prefix, _, key = name.rpartition(".")
    module = root.get_submodule(prefix)
    place = module._buffers.get(key)
    if place is not None and value is not None and place.shape == value.shape:
        place.copy_(value)
        return
    copy = None if value is None else value.detach().clone()
    if key in module._buffers:
        module._buffers[key] = copy
    else:
        module.register_buffer(key, copy, persistent=persistent)


@torch.no_grad()
def make_room(root: nn.Module, given: Mapping[str, Any], *, persistent: bool = True) -> None:
    """Give buffers the shapes of the given ones, and create those that do not exist yet."""
    known = {name for name, _, _ in _buffers(root)}
    for name, value in given.items():
        if isinstance(value, Tensor) and (name in known or _may_appear(root, name)):
            _set_buffer(root, name, value, persistent=persistent)


def _may_appear(root: nn.Module, name: str) -> bool:
    """Whether a forward may create this buffer: a free name in an existing module."""
    prefix, _, key = name.rpartition(".")
    try:
        module = root.get_submodule(prefix)
    except AttributeError:
        return False
    declared = key in module._buffers and module._buffers[key] is None
    return declared or (bool(key) and not hasattr(module, key))


def _expected(root: nn.Module, held: Held, name: str) -> Tensor | None:
    """The known shape of a tensor that the source did not have: memory, or a newer buffer."""
    place = held.owner(name)
    if place is None:
        return _filled(root).get(name)
    owner, _, key = name.removeprefix(f"{place}.").rpartition(".")
    parameter = dict(root.named_parameters()).get(owner)
    optimiser = held.optimisers[place]
    if parameter is None or not any(
        parameter is p for g in optimiser.param_groups for p in g["params"]
    ):
        return None
    known = optimiser.state.get(parameter, {}).get(key)
    if isinstance(known, Tensor):
        return known
    return torch.zeros(()) if key == "step" else parameter.detach()


def _check_generator(what: Path | str, name: str, saved: Tensor) -> None:
    try:
        torch.Generator().set_state(saved)
    except (RuntimeError, TypeError) as error:
        raise StateError(f"{what} does not fit: {name!r} is no state of a generator") from error


def _as_finite(tensor: Tensor, expected: Tensor | None) -> bool:
    """Whether it is finite, or at least where the old one is, as in a mask of infinities."""
    exact, before = (
        t.float() if t is not None and t.dtype.itemsize == 1 else t for t in (tensor, expected)
    )  # of float8, torch can say little
    assert exact is not None
    if before is None:
        return not bool(exact.isnan().any())
    return bool(exact.isfinite().all()) or not bool(before.isfinite().all())
