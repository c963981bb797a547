"""Traps of the field's methods, defined here; and what is refused, by a sentence."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapr
from tapr import testing
from tapr.methods.ttt import Rotated
from tapr.models import build

SOURCE_IMAGES = torch.linspace(0, 1, 4 * 270).view(4, 3, 10, 9)
METHODS: dict[str, dict[str, Any]] = {
    "eta": {},
    "eata": {"source_images": SOURCE_IMAGES},
    "rdumb": {},
    "sar": {},
    "deyo": {},
    "rpl": {},
    "shot": {},
    "roid": {},
    "cmf": {},
}
each = pytest.mark.parametrize("method", METHODS)
filtering = pytest.mark.parametrize("method", ["eta", "eata", "rdumb", "sar", "deyo"])


def adapt(model: nn.Module, method: str, **more: Any) -> Any:
    return tapr.adapt(model, method, **{**METHODS[method], **more})


def values(adapter: Any) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in adapter.model.parameters()]


def same(one: list[Tensor], two: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@filtering
def test_nobody_kept_is_no_step(model: nn.Module, images: Tensor, method: str) -> None:
    adapter = adapt(model, method, threshold=0.0)
    prediction = adapter.predict(images)
    assert (prediction.steps, prediction.kept, prediction.loss) == (0, 0, None)
    assert (prediction.forward, prediction.backward) == (len(images), 0)
    assert same(values(adapter), list(model.parameters()))


@filtering
def test_nobody_kept_lets_no_momentum_drift(model: nn.Module, images: Tensor, method: str) -> None:
    optimizer = {} if method == "sar" else {"optimizer": "sgd"}
    loose: dict[str, Any] = {"threshold": 5.0, **optimizer}
    loose |= {"drop": -2.0} if method == "deyo" else {}
    adapter = adapt(model, method, lr=0.1, **loose)
    assert adapter.predict(images).steps == 1
    filters = {"eata": "entropy", "eta": "objective", "rdumb": "objective"}
    part = getattr(adapter, filters[method]) if method in filters else adapter
    part.threshold = 0.0
    before = values(adapter)
    assert not same(before, list(model.parameters()))
    assert adapter.predict(images).steps == 0
    assert same(values(adapter), before)


@each
@pytest.mark.parametrize("count", [1, 2, 200])
def test_every_size_of_a_batch_is_defined(model: nn.Module, method: str, count: int) -> None:
    generator = torch.Generator().manual_seed(0)
    adapter = adapt(model, method)
    for _ in range(3):
        logits = adapter(torch.rand(count, 3, 10, 9, generator=generator))
        assert logits.shape == (count, 5)
        assert logits.isfinite().all()
    assert adapter.refused == 0


@each
def test_images_that_are_all_the_same_are_defined(
    model: nn.Module, images: Tensor, method: str
) -> None:
    adapter = adapt(model, method)
    for _ in range(2):
        assert adapter(images[:1].expand(6, -1, -1, -1)).isfinite().all()
    assert adapter.refused == 0


@pytest.mark.parametrize("method", ["roid", "cmf"])
def test_one_image_counts_once(model: nn.Module, images: Tensor, method: str) -> None:
    """Where the released code divides 0 by 0."""
    adapter = adapt(model, method)
    prediction = adapter.predict(images[:1])
    assert (prediction.kept, prediction.steps, prediction.refused) == (1, 1, 0)
    assert not same(values(adapter), list(model.parameters()))


@each
def test_two_classes_are_enough(method: str, images: Tensor) -> None:
    adapter = adapt(testing.small_model(classes=2), method)
    for part in images.split(3):  # type: ignore[no-untyped-call]
        assert adapter(part).isfinite().all()


@pytest.mark.parametrize(
    ("method", "buffers"),
    [
        ("eta", ["objective.average"]),
        ("eata", ["entropy.average"]),
        ("rdumb", ["objective.average", "since"]),
        ("roid", ["certain.average", "certain.largest"]),
        ("cmf", ["certain.average", "keepers.0.hidden", "keepers.0.variance"]),
    ],
)
def test_reset_forgets_what_was_remembered(
    model: nn.Module, images: Tensor, method: str, buffers: list[str]
) -> None:
    loose = {"threshold": 2.0} if method in ("eta", "eata", "rdumb") else {}
    adapter = adapt(model, method, **loose)
    adapter(images)
    moved = dict(adapter.named_buffers())
    assert all(moved[name].abs().sum() > 0 for name in buffers)
    adapter.reset()
    left = dict(adapter.named_buffers())
    assert all(name not in left or not left[name].any() for name in buffers)


def test_rdumb_returns_before_the_batch_that_is_due(model: nn.Module, images: Tensor) -> None:
    """Batches without a step count, too."""
    adapter = adapt(model, "rdumb", every=2, threshold=2.0, margin=2.0, lr=0.1)
    first = adapter(images)
    second = adapter(images)
    assert torch.equal(adapter(images), first)
    assert torch.equal(adapter(images), second)
    assert not torch.equal(first, second)


def test_sar_recovers_once_and_forgets_or_again_and_again(model: nn.Module, images: Tensor) -> None:
    for forget in (True, False):
        adapter = adapt(model, "sar", threshold=2.0, recovery=10.0, forget=forget)
        adapter(images)
        assert same(values(adapter), list(model.parameters()))
        assert adapter.keepers[0].average.isfinite() != forget


def test_the_recovery_of_sar_scales_with_the_classes() -> None:
    for classes in (2, 10):
        adapter: Any = tapr.adapt(testing.small_model(classes=classes), "sar", threshold=2.0)
        adapter(torch.rand(8, 3, 10, 9))
        assert adapter.classes == classes


def test_deyo_looks_again_at_reliable_images_alone(model: nn.Module, images: Tensor) -> None:
    value = _entropy(adapt(model, "deyo", threshold=0.0)(images))
    share = float(value.median() / math.log(5))
    adapter, reliable = adapt(model, "deyo", threshold=share), int((value < value.median()).sum())
    assert 0 < reliable < len(images)
    assert adapter.predict(images).forward == len(images) + reliable


def _entropy(logits: Tensor) -> Tensor:
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "expected source_images for the weights' importance.*'eta' does without"),
        (torch.zeros(0, 3, 10, 9), "at least one source image, got none"),
        ([], "at least one source image, got none"),
        (7, "as a tensor, batches of images, or the name of a data set, got int"),
        (["x"], r"batches of source images \[B, C, H, W\], got str"),
        ([torch.zeros(3, 10, 9)], r"batches of source images \[B, C, H, W\], got \[3, 10, 9\]"),
        (torch.zeros(4, 10, 9), r"expected images of shape \[B, C, H, W\]"),
        (torch.full((4, 3, 10, 9), 255.0), "divide by 255"),
        (torch.zeros(4, 1, 10, 9), "expected images with 3 channels.* got 1"),
        (torch.zeros(4, 3, 2, 2), "cannot take source images of"),
        ("cifer10", "did you mean 'cifar10'"),
    ],
)
def test_source_images_that_cannot_be_right(model: nn.Module, given: Any, message: str) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        tapr.adapt(model, "eata", source_images=given)


def test_images_of_another_size_than_the_source_s_are_refused(
    model: nn.Module, images: Tensor
) -> None:
    adapter = adapt(model, "eata")
    before = values(adapter)
    with pytest.raises(tapr.TaprError, match=r"expected images of \[3, 10, 9\], as the source"):
        adapter(torch.rand(4, 3, 12, 12))
    assert same(values(adapter), before)
    assert adapter(images).isfinite().all()


@pytest.mark.usefixtures("few_renderings")
def test_source_images_come_as_a_tensor_as_batches_or_by_name(images: Tensor) -> None:
    model = testing.small_model()
    pairs = [(part, torch.zeros(len(part))) for part in images.split(4)]  # type: ignore[no-untyped-call]
    forms: list[Any] = [images, list(images.split(4)), pairs]  # type: ignore[no-untyped-call]
    made: list[Any] = [
        tapr.adapt(model, "eata", source_images=form, source_batch=4) for form in forms
    ]
    for adapter in made[1:]:
        assert torch.equal(adapter.importance, made[0].importance)
    fewer: Any = tapr.adapt(model, "eata", source_images=pairs, source_batch=4, source_count=4)
    assert not torch.equal(fewer.importance, made[0].importance)
    digits: Any = tapr.adapt(
        tapr.models.load("digits-small"), "eata", source_images="digits", source_count=40
    )
    assert digits.importance.isfinite().all()
    assert digits.importance.sum() > 0


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("eta", {"threshold": -0.1}, "expected threshold of at least 0 and below inf, got -0.1"),
        ("eta", {"margin": "wide"}, "expected margin of at least 0 and below inf, got 'wide'"),
        ("eta", {"objective": "entropi"}, "unknown objective 'entropi'; did you mean 'entropy'"),
        ("eta", {"treshold": 0.4}, "unknown option 'treshold' .* did you mean 'threshold'"),
        ("sar", {"radius": -1}, "expected radius of at least 0"),
        ("sar", {"recovery": float("nan")}, "expected recovery of at least 0"),
        ("sar", {"forget": 1}, "expected forget to be True or False, got 1"),
        ("roid", {"temperature": 0}, "expected temperature above 0, got 0"),
        ("roid", {"pull": 1.1}, "expected pull from 0 to 1, got 1.1"),
        ("roid", {"prior_correction": "logit"}, "did you mean 'logits'"),
        ("cmf", {"noise": 1.0}, "expected noise of at least 0 and below 1, got 1.0"),
        ("deyo", {"drop": 2.0}, "expected drop of at least -2 and below 1, got 2.0"),
        ("deyo", {"destroy": "pach"}, "unknown way to destroy 'pach'; did you mean 'patch'"),
        ("rpl", {"exponent": 0}, "expected exponent above 0, got 0"),
        ("shot", {"confidence": 1.5}, "expected confidence from 0 to 1, got 1.5"),
        ("rdumb", {"every": 0}, "expected every to be a whole number of at least 1, got 0"),
        ("rdumb", {"preset": "relesed"}, "unknown preset 'relesed'; did you mean 'released'"),
        ("ttt", {}, "expected a model with a rotation head, trained with the model"),
    ],
)
def test_wrong_options_get_a_sentence(
    model: nn.Module, method: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        tapr.adapt(model, method, **options)


class Turning(nn.Module):
    """A net with a second head, for rotations."""

    def __init__(self) -> None:
        super().__init__()
        self.body = testing.small_model()
        self.turn = nn.Linear(32, 4)
        with torch.no_grad():
            self.turn.weight.copy_(torch.linspace(-0.3, 0.3, 128).view(32, 4).T)
            self.turn.bias.zero_()

    def forward(self, images: Tensor) -> Tensor:
        return torch.as_tensor(self.body(images))

    def rotation(self, images: Tensor) -> Tensor:
        return torch.as_tensor(self.turn(self.body[:-1](images)))


@pytest.mark.parametrize("preset", ["paper", "slow"])
def test_ttt_keeps_every_promise(preset: str) -> None:
    make = partial(tapr.adapt, method="ttt", preset=preset, copies=3)
    testing.check_method(make, model=Turning(), size=(3, 8, 8))


def test_ttt_moves_the_extractor_and_the_rotation_head() -> None:
    model = Turning().eval()
    adapter = tapr.adapt(model, "ttt", copies=4)
    prediction = adapter.predict(torch.rand(3, 3, 8, 8))
    assert adapter.passes == (5, 4)
    assert (prediction.forward, prediction.backward) == (15, 12)
    source = dict(model.named_parameters())
    moved = {n for n, p in adapter.model.named_parameters() if not torch.equal(p, source[n])}
    assert {"body.3.weight", "turn.weight"} <= moved
    assert not {"body.7.weight", "body.7.bias"} & moved


def test_ttt_leaves_out_images_that_it_knows_to_be_upright() -> None:
    model = Turning().eval()
    with torch.no_grad():
        model.turn.bias[0] = 50.0
    adapter = tapr.adapt(model, "ttt", copies=4, upright=0.9)
    prediction = adapter.predict(torch.rand(3, 3, 8, 8))
    assert (prediction.steps, prediction.kept, prediction.backward) == (0, 0, 0)
    assert prediction.forward == 3 * adapter.passes.forward == 3 * 6


@pytest.mark.parametrize("method", ["norm", "tent", "eata", "sar", "shot", "roid"])
def test_a_rotation_head_is_nothing_to_the_other_methods(method: str) -> None:
    plain, twin = build("small-narrow", 5).eval(), build("small-narrow-rotation", 5).eval()
    twin.load_state_dict(plain.state_dict(), strict=False)
    needs: dict[str, Any] = {"source_images": torch.rand(8, 3, 32, 32)} if method == "eata" else {}
    one, other = (tapr.adapt(model, method, **needs) for model in (plain, twin))
    for images in torch.rand(2, 6, 3, 32, 32):
        torch.testing.assert_close(other(images), one(images), atol=1e-4, rtol=1e-4)


def test_ttt_wants_square_images() -> None:
    adapter = tapr.adapt(Turning().eval(), "ttt", copies=4)
    with pytest.raises(tapr.TaprError, match=r"expected square images.* got 10 x 9"):
        adapter(torch.rand(2, 3, 10, 9))


def test_ttt_draws_crops_flips_and_turns() -> None:
    ramp = torch.arange(64.0).view(1, 1, 8, 8) / 63
    rotated = Rotated(200)
    views = rotated(ramp, torch.Generator().manual_seed(0))
    assert views.shape == (200, 1, 8, 8)
    assert set(rotated.labels.tolist()) == {0, 1, 2, 3}
    upright = views[rotated.labels == 0]
    assert (upright == ramp).flatten(1).all(1).any()  # the crop in the middle, not flipped
    assert (upright == ramp.flip(3)).flatten(1).all(1).any()
    assert len({tuple(view) for view in views.flatten(1).tolist()}) > 40


@each
@pytest.mark.parametrize("threshold", [0.0, 0.75, 2.0])
def test_what_goes_forward_and_backward_is_counted(
    model: nn.Module, images: Tensor, method: str, threshold: float
) -> None:
    """By hooks; images that a method leaves out go back with the others, or do not go at all."""
    filtered = method in ("eta", "eata", "rdumb", "sar", "deyo")
    adapter = adapt(model, method, **({"threshold": threshold} if filtered else {}))
    forward: list[int] = []
    backward: list[int] = []

    def count(layer: nn.Module, given: Any, logits: Tensor) -> None:
        forward.append(len(logits))
        if logits.requires_grad:
            logits.register_hook(  # type: ignore[no-untyped-call]
                lambda gradient: backward.append(len(gradient))
            )

    adapter.model.register_forward_hook(count)
    prediction = adapter.predict(images)
    assert (sum(forward), sum(backward)) == (prediction.forward, prediction.backward)
    assert sum(forward) <= adapter.passes.forward * len(images)
    assert sum(backward) <= adapter.passes.backward * len(images)
    assert bool(backward) == bool(prediction.kept)


@pytest.mark.parametrize("method", ["deyo", "roid", "cmf"])
def test_one_image_left_of_a_batch_is_defined_where_batch_norm_has_no_pixels(method: str) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).eval()
    with torch.no_grad():
        net.get_parameter("3.weight").mul_(3)
    images = torch.rand(2, 3, 2, 2, generator=torch.Generator().manual_seed(4))
    options = {"threshold": 0.9, "drop": -2.0} if method == "deyo" else {}
    assert adapt(net, method, **options)(images).isfinite().all()
    adapter = adapt(net, method)
    with torch.no_grad():
        assert adapter.ask(images[:1]).isfinite().all()
    with pytest.raises(tapr.TaprError, match="one value per channel"):
        adapter(images[:1])
