"""Hostile models under every method: adapted rightly, or refused by a sentence; nothing changes.

Rightly means: the caller's model is untouched, `reset` gives the first logits again bit for bit,
and a saved state goes on elsewhere as it would have gone on here. A model that gives NaN for an
image gives NaN for it under an adapter too, and that harms no later batch.
"""

import re
import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.attack.kinds import METHODS
from torch import Tensor, nn

import tapr
from tapr.testing import small_model

AREA = "hostile models x methods"
ALL = JUDGED = ("source", "norm", "tent", "pest")  # of which is known what each refuses
FIRST, SECOND = torch.rand(2, 6, 3, 10, 9, generator=torch.Generator().manual_seed(3))
pytestmark = pytest.mark.filterwarnings("ignore")


class Around(nn.Module):
    """A model whose images and output are changed on the way."""

    def __init__(
        self,
        after: Callable[[Tensor], Any] = lambda logits: logits,
        before: Callable[[Tensor], Tensor] = lambda images: images,
        model: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.model, self.after, self.before = model or small_model(), after, before

    def forward(self, images: Tensor) -> Any:
        return self.after(self.model(self.before(images)))


class Calls(Around):
    """A model that behaves otherwise from its third forward on."""

    def __init__(self, then: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.then, self.calls = then, 0

    def forward(self, images: Tensor) -> Any:
        self.calls += 1
        logits = super().forward(images)
        return self.then(logits) if self.calls > 2 else logits


class Buffers(Around):
    """A model with a buffer, and something it does to it in every forward."""

    def __init__(self, buffer: Tensor | None, act: Callable[[Any], None] = lambda own: None):
        super().__init__()
        self.act = act
        self.register_buffer("extra", buffer)

    def forward(self, images: Tensor) -> Any:
        self.act(self)
        return super().forward(images)


def appear(own: Any) -> None:
    if "late" not in own._buffers:
        own.register_buffer("late", torch.arange(5.0))


def appear_deep(own: Any) -> None:
    if "late" not in own.model[0]._buffers:
        own.model[0].register_buffer("late", torch.ones(2, dtype=torch.int64))


def grow(own: Any) -> None:
    own.extra = torch.cat([own.extra, own.extra[-1:] + 1])


def shrink(own: Any) -> None:
    own.extra = own.extra[: max(1, len(own.extra) - 1)]


def fill(own: Any) -> None:
    own.extra = torch.ones(3) if own.extra is None else own.extra + 1


def empty(own: Any) -> None:
    own.extra = None


def remove(own: Any) -> None:
    if "extra" in own._buffers:
        del own.extra


def count(own: Any) -> None:
    own.extra += 1


def retype(own: Any) -> None:
    own.extra = own.extra.double()


def write(images: Tensor) -> Tensor:
    return images.sub_(0.5).div_(0.25)


def fail(error: BaseException) -> Callable[[Tensor], Any]:
    def raising(logits: Tensor) -> Any:
        raise error

    return raising


class NanForDark(Around):
    """A model that knows nothing of dark images."""

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits.where(bright(images)[:, None], float("nan"))


def bright(images: Tensor) -> Tensor:
    return images.flatten(1).mean(1).gt(FIRST.flatten(1).mean(1).median())


def a_layer(change: Callable[[Any], Any]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        model = small_model()
        change(model)
        return model

    return make


def shared() -> nn.Module:
    layer = nn.Conv2d(3, 3, 3, padding=1)
    return nn.Sequential(layer, nn.BatchNorm2d(3), layer, nn.Flatten(), nn.Linear(270, 4)).eval()


def tied() -> nn.Module:
    model: Any = nn.Sequential(nn.Flatten(), nn.Linear(270, 270), nn.BatchNorm1d(270))
    model.append(nn.Linear(270, 270))
    model[3].weight = model[1].weight
    return nn.Sequential(*model, nn.Linear(270, 3)).eval()


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(5))


def heads(classes: int) -> Callable[[], nn.Module]:
    return lambda: small_model(classes=classes)


def hooked(model: Any) -> None:
    model[0].register_forward_pre_hook(lambda layer, inputs: (inputs[0] * 0.5,))
    model[3].register_forward_hook(lambda layer, inputs, output: output + 1)
    model[0].register_full_backward_hook(lambda layer, into, out: None)


def parametrised(model: Any) -> None:
    nn.utils.parametrizations.weight_norm(model[0])


def spectral(model: Any) -> None:
    nn.utils.parametrizations.spectral_norm(model[3])


def old_spectral(model: Any) -> None:
    nn.utils.spectral_norm(model[3])


def old_weight_norm(model: Any) -> None:
    nn.utils.weight_norm(model[0])


def pruned(model: Any) -> None:
    from torch.nn.utils import prune

    prune.random_unstructured(model[0], "weight", 0.5)  # type: ignore[no-untyped-call]


def integer_weight(model: Any) -> None:
    model[0].weight = nn.Parameter(model[0].weight.to(torch.int8), requires_grad=False)


def extra_parameter(parameter: nn.Parameter) -> Callable[[Any], None]:
    return lambda model: model.register_parameter("unused", parameter)


def complex_weights() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, dtype=torch.complex64), nn.Flatten(), nn.Linear(224, 5)
    ).eval()


def real_of_complex() -> nn.Module:
    class Complex(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(270, 5, dtype=torch.complex64) * (0.1 + 0.2j))

        def forward(self, images: Tensor) -> Tensor:
            product: Tensor = images.flatten(1).to(torch.complex64) @ self.weight
            return product.real

    return Complex()


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        raise RuntimeError("no way back")


class NanBackward(Backward):
    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return gradient * float("nan")


class Evil(nn.Module):
    """Its attributes lie."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small_model()

    def forward(self, images: Tensor) -> Any:
        return SimpleNamespace(logits=property(lambda own: 1 / 0))


def frozen_in_part(model: Any) -> None:
    model[0].requires_grad_(False)


def no_momentum(model: Any) -> None:
    model[1].momentum = None


def untracked(model: Any) -> None:
    model[1] = nn.BatchNorm2d(6, track_running_stats=False)


def half_tracked(model: Any) -> None:
    model[1].running_var = None


def negative_variance(model: Any) -> None:
    model[1].running_var.fill_(-1.0)


def nan_weights(model: Any) -> None:
    with torch.no_grad():
        model[0].weight[0] = float("nan")


def infinite_statistics(model: Any) -> None:
    model[1].running_mean.fill_(float("inf"))


def huge_weights(model: Any) -> None:
    with torch.no_grad():
        model[7].weight.mul_(1e30)


def inference_parameters() -> nn.Module:
    with torch.inference_mode():
        return small_model()


MODELS: dict[str, Callable[[], Any]] = {
    # outputs
    "itself": small_model,
    "two classes": heads(2),
    "one class": heads(1),
    "1,000 classes": heads(1000),
    "returns None": lambda: Around(lambda logits: None),
    "returns a text": lambda: Around(lambda logits: "cat"),
    "returns an empty tuple": lambda: Around(lambda logits: ()),
    "a mapping without logits": lambda: Around(lambda logits: {"scores": logits}),
    "a mapping with logits": lambda: Around(lambda logits: {"logits": logits}),
    "logits None": lambda: Around(lambda logits: {"logits": None}),
    "three axes": lambda: Around(lambda logits: logits[:, :, None]),
    "one axis": lambda: Around(lambda logits: logits.flatten()),
    "too few rows": lambda: Around(lambda logits: logits[1:]),
    "twice the rows": lambda: Around(lambda logits: torch.cat([logits, logits])),
    "integer logits": lambda: Around(lambda logits: (logits * 9).long()),
    "boolean logits": lambda: Around(lambda logits: logits > 0),
    "complex logits": lambda: Around(lambda logits: logits.to(torch.complex64)),
    "half logits": lambda: Around(lambda logits: logits.half()),
    "double logits": lambda: Around(lambda logits: logits.double()),
    "float8 logits": lambda: Around(lambda logits: logits.to(torch.float8_e5m2)),
    "sparse logits": lambda: Around(lambda logits: logits.to_sparse()),
    "nested logits": lambda: Around(lambda logits: torch.nested.nested_tensor(list(logits))),
    "meta logits": lambda: Around(lambda logits: logits.to("meta")),
    "detached logits": lambda: Around(lambda logits: logits.detach()),
    "probabilities": lambda: Around(lambda logits: logits.softmax(1)),
    "constant logits": lambda: Around(lambda logits: logits * 0),
    "logits that ignore the image": lambda: Around(before=torch.zeros_like),
    "expanded logits": lambda: Around(lambda logits: logits[:1].expand(len(logits), -1)),
    "NaN for some images": NanForDark,
    "NaN for all images": lambda: Around(lambda logits: logits * float("nan")),
    "infinite logits": lambda: Around(lambda logits: logits / 0),
    "minus infinity in a column": lambda: Around(
        lambda logits: logits.index_fill(1, torch.tensor([0]), -torch.inf)
    ),
    "huge logits": lambda: Around(lambda logits: logits * 1e30),
    "lying attributes": Evil,
    # behaviour
    "raises": lambda: Around(fail(ValueError("of its own"))),
    "raises without a word": lambda: Around(fail(KeyError())),
    "raises an assertion": lambda: Around(fail(AssertionError())),
    "raises StopIteration": lambda: Around(fail(StopIteration())),
    "raises later": lambda: Calls(fail(RuntimeError("later"))),
    "fewer classes later": lambda: Calls(lambda logits: logits[:, :3]),
    "fewer rows later": lambda: Calls(lambda logits: logits[:1]),
    "NaN later": lambda: Calls(lambda logits: logits * float("nan")),
    "writes into its input": lambda: Around(before=write),
    "writes into its output": lambda: Around(lambda logits: logits.mul_(2)),
    "resizes its input": lambda: Around(before=lambda images: images.resize_(len(images), 3, 9, 9)),
    "no gradient": lambda: Around(lambda logits: logits, lambda i: i, NoGrad(small_model())),
    "fails in the backward": lambda: Around(Backward.apply),
    "NaN in the backward": lambda: Around(NanBackward.apply),
    "switches to training": lambda: Buffers(None, lambda own: own.train()),
    "changes a parameter": lambda: Buffers(None, lambda own: own.model[0].weight.data.mul_(1.01)),
    # parameters
    "no parameters": lambda: Around(
        lambda flat: flat[:, :5], model=nn.Flatten(), before=lambda images: images * 2
    ),
    "all frozen": lambda: small_model().requires_grad_(False),
    "frozen in part": a_layer(frozen_in_part),
    "a shared layer": shared,
    "tied weights": tied,
    "lazy": lazy,
    "half": lambda: small_model().half(),
    "double": lambda: small_model().double(),
    "float8": lambda: small_model().to(torch.float8_e5m2),
    "on meta": lambda: small_model().to("meta"),
    "complex weights": complex_weights,
    "complex weights, real logits": real_of_complex,
    "integer weights": a_layer(integer_weight),
    "an unused parameter": a_layer(extra_parameter(nn.Parameter(torch.ones(3)))),
    "an unused complex parameter": a_layer(extra_parameter(nn.Parameter(torch.ones(3) * 1j))),
    "an unused NaN parameter": a_layer(extra_parameter(nn.Parameter(torch.ones(3) * torch.nan))),
    "an unused empty parameter": a_layer(extra_parameter(nn.Parameter(torch.ones(0)))),
    "an unused meta parameter": a_layer(
        extra_parameter(nn.Parameter(torch.ones(2, device="meta")))
    ),
    "an expanded parameter": a_layer(extra_parameter(nn.Parameter(torch.ones(1).expand(4)))),
    "a sparse parameter": a_layer(extra_parameter(nn.Parameter(torch.eye(3).to_sparse()))),
    "a float8 parameter": a_layer(
        extra_parameter(nn.Parameter(torch.ones(3).to(torch.float8_e5m2)))
    ),
    "made in inference mode": inference_parameters,
    "NaN weights": a_layer(nan_weights),
    "huge weights": a_layer(huge_weights),
    # layers
    "hooks": a_layer(hooked),
    "weight norm": a_layer(parametrised),
    "spectral norm": a_layer(spectral),
    "weight norm of old": a_layer(old_weight_norm),
    "spectral norm of old": a_layer(old_spectral),
    "pruned": a_layer(pruned),
    "data parallel": lambda: nn.DataParallel(small_model()),
    "no batch norm": lambda: nn.Sequential(nn.Flatten(), nn.Linear(270, 4)),
    "untracked batch norm": a_layer(untracked),
    "half a batch norm": a_layer(half_tracked),
    "batch norm without momentum": a_layer(no_momentum),
    "negative variance": a_layer(negative_variance),
    "infinite statistics": a_layer(infinite_statistics),
    "dropout": lambda: nn.Sequential(nn.Dropout(0.5), *small_model().children()),
    "compiled": lambda: torch.compile(small_model()),
    "scripted": lambda: torch.jit.script(small_model()),
    "traced": lambda: torch.jit.trace(small_model(), FIRST),  # type: ignore[no-untyped-call]
    "an adapter": lambda: tapr.adapt(small_model(), "norm"),
    "a class": lambda: nn.Linear,
    "a name": lambda: "cifar10-small",
    "a state": lambda: small_model().state_dict(),
    # buffers
    "a buffer None": lambda: Buffers(None),
    "an expanded buffer": lambda: Buffers(torch.ones(1).expand(4), count),
    "a sparse buffer": lambda: Buffers(torch.eye(3).to_sparse()),
    "a quantized buffer": lambda: Buffers(torch.quantize_per_tensor(FIRST[0], 0.1, 0, torch.qint8)),
    "a complex buffer": lambda: Buffers(torch.ones(3) * 1j, count),
    "a float8 buffer": lambda: Buffers(torch.ones(3).to(torch.float8_e4m3fn)),
    "a boolean buffer": lambda: Buffers(torch.ones(3, dtype=torch.bool)),
    "an empty buffer": lambda: Buffers(torch.ones(0), count),
    "a NaN buffer": lambda: Buffers(torch.ones(3) * torch.nan),
    "a mask of minus infinity": lambda: Buffers(torch.full((3, 3), -torch.inf).triu(1)),
    "a meta buffer": lambda: Buffers(torch.ones(3, device="meta")),
    "a nested buffer": lambda: Buffers(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])),
    "a buffer that counts": lambda: Buffers(torch.zeros(()), count),
    "a buffer that grows": lambda: Buffers(torch.arange(3), grow),
    "a buffer that shrinks": lambda: Buffers(torch.arange(9), shrink),
    "a buffer that changes its type": lambda: Buffers(torch.ones(2), retype),
    "a buffer filled in the forward": lambda: Buffers(None, fill),
    "a buffer emptied in the forward": lambda: Buffers(torch.ones(2), empty),
    "a buffer removed in the forward": lambda: Buffers(torch.ones(2), remove),
    "a buffer that appears": lambda: Buffers(torch.ones(2), appear),
    "a buffer that appears below": lambda: Buffers(None, appear_deep),
    "a buffer that is a parameter's memory": a_layer(
        lambda model: model.register_buffer("view", model[0].weight.data)
    ),
    "a buffer that is a view": a_layer(
        lambda model: model.register_buffer("view", model[1].running_mean[:2])
    ),
    "the same buffer twice": a_layer(
        lambda model: model[0].register_buffer("again", model[1].running_mean)
    ),
}


class NoGrad(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    @torch.no_grad()
    def forward(self, images: Tensor) -> Any:
        return self.model(images)


# Forwards of these count, or are counted, outside of tensors: a second run is not the first.
FORGETFUL = {"raises later", "fewer classes later", "fewer rows later", "NaN later"}
# Give NaN by themselves.
NOT_FINITE = {
    *("NaN for some images", "NaN for all images", "infinite logits", "NaN later", "NaN weights"),
    *("negative variance", "infinite statistics", "minus infinity in a column"),
}


LEARN = ("tent", "pest")
# Model -> who refuses it, and in which words; all others are adapted.
REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "one class": (ALL, "K >= 2 classes"),
    "returns None": (ALL, "got NoneType"),
    "returns a text": (ALL, "got str"),
    "returns an empty tuple": (ALL, "got tuple"),
    "a mapping without logits": (ALL, "got dict"),
    "logits None": (ALL, "got dict"),
    "three axes": (ALL, r"expected logits of shape"),
    "one axis": (ALL, r"expected logits of shape"),
    "too few rows": (ALL, r"expected logits of shape"),
    "twice the rows": (ALL, r"expected logits of shape"),
    "integer logits": (ALL, "logits as a plain tensor of floats, got one of torch.int64"),
    "boolean logits": (ALL, "got one of torch.bool"),
    "complex logits": (ALL, "got one of torch.complex64"),
    "float8 logits": (ALL, "got one of torch.float8_e5m2"),
    "sparse logits": (ALL, "got one of layout torch.sparse_coo"),
    "nested logits": (ALL, "got one nested"),
    "meta logits": (ALL, "got one on the device 'meta'"),
    "detached logits": (LEARN, "no_grad, or detach"),
    "lying attributes": (ALL, "got SimpleNamespace"),
    "raises": (ALL, "the model failed on .*ValueError: of its own"),
    "raises without a word": (ALL, "the model failed on .*KeyError"),
    "raises an assertion": (ALL, "the model failed on .*AssertionError"),
    "raises StopIteration": (ALL, "the model failed on .*StopIteration"),
    "raises later": (("pest",), "the model failed on .*RuntimeError: later"),
    "fewer rows later": (("pest",), "expected logits of shape"),
    "no gradient": (LEARN, "no_grad, or detach"),
    "fails in the backward": (LEARN, "the model failed on .*no way back"),
    "changes a parameter": (("source", "norm", "tent"), "another source model"),
    "no parameters": (("norm", *LEARN), "BatchNorm layers|trainable parameters in scope"),
    "all frozen": (LEARN, "are frozen"),
    "lazy": (ALL, "is made by its first forward pass"),
    "float8": (ALL, "the model failed on|float16 to float64"),
    "on meta": (ALL, "is on the device 'meta'"),
    "complex weights": (ALL, "the model failed on|BatchNorm|in scope"),
    "complex weights, real logits": (("norm", *LEARN), "BatchNorm|in scope"),
    "integer weights": (ALL, "the model failed on"),
    "an unused complex parameter": (("pest",), "'unused' is of torch.complex64; freeze it"),
    "an unused meta parameter": (ALL, "'unused' is on the device 'meta'"),
    "a sparse parameter": (ALL, "'unused' is of layout torch.sparse_coo"),
    "a float8 parameter": (("pest",), "'unused' is of torch.float8_e5m2; freeze it"),
    "weight norm of old": (ALL, "cannot be copied .* inplace=True"),
    "pruned": (ALL, "cannot be copied .* inplace=True"),
    "no batch norm": (("norm", "tent"), "BatchNorm|in scope"),
    "half a batch norm": (("source", "pest"), "the model failed on .*running_var"),
    "compiled": (ALL, "torch.compile compiled"),
    "scripted": (ALL, "torch.jit scripted or traced"),
    "traced": (ALL, "torch.jit scripted or traced"),
    "an adapter": (LEARN, "are frozen"),
    "a class": (ALL, "expected a torch.nn.Module, got type"),
    "a name": (ALL, "expected a torch.nn.Module, got str; tapr.models.load"),
    "a state": (ALL, "expected a torch.nn.Module, got OrderedDict"),
    "a sparse buffer": (ALL, "'extra' is of layout torch.sparse_coo"),
    "a quantized buffer": (ALL, "'extra' is quantized"),
    "a meta buffer": (ALL, "'extra' is on the device 'meta'"),
    "a nested buffer": (ALL, "'extra' is nested"),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MODELS)
def test_a_hostile_model_is_adapted_rightly_or_refused_by_a_sentence(
    name: str, method: str, tmp_path: Path, tally: Any
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MODELS[name]()
    said = tally.attempt(
        AREA, f"{method}, {name}", lambda: attacked(name, model, method, tmp_path, tally)
    )
    if method not in JUDGED:
        return
    by, words = REFUSED.get(name, ((), ""))
    if method in by:
        assert said is not None
        assert re.search(words, said, re.DOTALL), said
    else:
        assert said is None


@pytest.mark.parametrize("method", METHODS)
def test_nan_for_one_image_is_not_the_fault_of_the_others(method: str) -> None:
    adapter = tapr.adapt(NanForDark(), method)
    for images in (FIRST, SECOND, FIRST):
        finite = adapter(images).isfinite().all(1)
        assert finite[bright(images)].all()
        assert method not in JUDGED or torch.equal(finite, bright(images))
    assert all(tensor.isfinite().all() for tensor in adapter.live().values())


@pytest.mark.parametrize("change", [pruned, old_weight_norm])
def test_what_cannot_be_copied_adapts_in_place_as_promised(change: Callable[[Any], None]) -> None:
    model = small_model()
    change(model)
    adapter = tapr.adapt(model, inplace=True)
    first = adapter(FIRST)
    adapter.reset()
    assert torch.equal(adapter(FIRST), first)


def attacked(name: str, model: Any, method: str, folder: Path, tally: Any) -> str | None:
    """What is wrong with the adapter of a model, if anything is."""
    kind = next((p.dtype for p in model.parameters()), torch.float32) if is_module(model) else None
    kind = kind if kind in (torch.float16, torch.float64) else torch.float32
    first, second = FIRST.to(kind), SECOND.to(kind)
    given = first.clone()
    before = values(model)
    steps: dict[str, Any] = {"steps": 2} if method == "pest" else {}
    adapter = tapr.adapt(model, method, **steps)
    assert adapter.source
    start = adapter.capture()
    try:
        one = adapter(given)
    except Exception:
        tally.unchanged(AREA, f"{method}, {name}, at first", adapter, start)
        raise
    if not torch.equal(given, first):
        return "the caller's images were written"
    middle = adapter.capture()
    try:
        adapter(second)
    except Exception:
        if not tally.unchanged(AREA, f"{method}, {name}, then", adapter, middle):
            return None
        raise
    if not same(before, values(model)):
        return "the caller's model changed"
    return wrong(name, model, method, adapter, one, first, second, folder)


def wrong(
    name: str,
    model: nn.Module,
    method: str,
    adapter: tapr.Adapter,
    one: Tensor,
    first: Tensor,
    second: Tensor,
    folder: Path,
) -> str | None:
    if not one.isfinite().all() and name not in NOT_FINITE:
        return "logits that are not finite"
    if name in FORGETFUL:
        return None
    adapter.save(folder / "state")
    other = tapr.load(folder / "state", model)
    if not bits(other(second), adapter(second)):
        return "the saved state goes on otherwise"
    adapter.reset()
    if not bits(adapter(first), one):
        return "other logits after reset"
    if method == "source" and name not in TRAINED:
        alone = deepcopy(model).eval()
        with torch.no_grad():
            plain = tapr.models.output.logits_of(alone(first.clone()), len(first))
        if not bits(plain, one):
            return "other logits than the model's own"
    return None


# The model itself fails where its copy in an adapter does not.
TRAINED = {"an expanded buffer"}


def is_module(model: object) -> bool:
    return isinstance(model, nn.Module)


def bits(one: Tensor, two: Tensor) -> bool:
    return torch.equal(one.nan_to_num(7), two.nan_to_num(7)) and one.dtype == two.dtype


def values(model: Any) -> dict[str, Tensor]:
    if not is_module(model):
        return {}
    found = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    lazy_ones = (nn.UninitializedParameter, nn.UninitializedBuffer)
    kept = {n: t for n, t in found.items() if not isinstance(t, lazy_ones) and not t.is_meta}
    return {n: t.detach().clone() for n, t in kept.items() if not t.is_nested}


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(
        bits(a.to_dense().float(), two[name].to_dense().float())
        for name, a in one.items()
        if not a.is_quantized and not a.is_complex()
    )
