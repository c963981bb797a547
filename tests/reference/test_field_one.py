"""The field's methods against a few lines of plain PyTorch, independent of our parts, in float64.

Five batches, the last of them short, on a net with batch norm and on one with group norm, under
every preset; and the closed-form values that the papers' formulas give.
"""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import tapr
from tapr import objectives
from tapr.augment import Augmentation

CLASSES = 5
Plain = Callable[[Any, list[Tensor]], Iterator[Tensor]]


class Net(nn.Module):
    """A stem and four stages with normalisation, named as in a ResNet, and a head."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, padding=1), norm(4)
        for stage in range(1, 5):
            layer = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), norm(4), nn.ReLU())
            self.add_module(f"layer{stage}", layer)
        self.fc = nn.Linear(16, CLASSES)
        generator = torch.Generator().manual_seed(2)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(generator=generator).mul_(0.6)
            self.fc.bias.zero_()

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.bn1(self.conv1(images)).relu()
        for stage in range(1, 5):
            hidden = hidden + self.get_submodule(f"layer{stage}")(hidden)
        features = functional.adaptive_avg_pool2d(hidden, 2)
        return torch.as_tensor(self.fc((features - features.mean((2, 3), keepdim=True)).flatten(1)))


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm2d,
    "group": partial(nn.GroupNorm, 2),
}


def make_batches() -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    coarse = [torch.rand(size, 3, 2, 2, generator=generator) for size in (12, 12, 12, 12, 5)]
    return [functional.interpolate(images.double(), (8, 8)) for images in coarse]


@pytest.fixture(params=NORMS)
def net(request: pytest.FixtureRequest) -> Net:
    return Net(NORMS[request.param]).double().eval()


def scales(model: Any, stages: int = 4) -> list[nn.Parameter]:
    """Scale and shift of the stem's normalisation and of that in the first stages."""
    layers = [model.bn1, *(model.get_submodule(f"layer{n}")[1] for n in range(1, stages + 1))]
    return [parameter for layer in layers for parameter in layer.parameters()]


def compare(net: Net, method: str, plain: Plain, *, moves: bool = True, **options: Any) -> Any:
    adapter: Any = tapr.adapt(net, method, **options)
    copied = deepcopy(net).train()
    for images, theirs in zip(make_batches(), plain(copied, make_batches()), strict=True):
        torch.testing.assert_close(adapter(images), theirs.detach(), rtol=0.0, atol=1e-9)
    moved = 0.0
    for (name, ours), other in zip(
        adapter.model.named_parameters(), copied.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, other, rtol=0.0, atol=1e-9)
        moved = max(moved, (ours - net.get_parameter(name)).abs().max().item())
    assert moved > 1e-5 or not moves, "nothing moved, so the comparison says nothing"
    return adapter


def entropy(logits: Tensor) -> Tensor:
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)


def dirichlet(logits: Tensor, mass: int = CLASSES) -> Tensor:
    length = logits.norm(dim=1, keepdim=True)
    evidence = (logits / length * length.detach()).exp()
    total = evidence.sum(1, keepdim=True) + mass
    p = torch.cat([evidence / total, mass / total], 1) + 1e-7
    return -(p * p.log()).sum(1)


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()


# Tent, with COME.


@pytest.mark.parametrize(("objective", "mass"), [("come", CLASSES), ("come_1000", 1000)])
def test_tent_with_come(net: Net, objective: str, mass: int) -> None:
    def plain(model: Any, batches: list[Tensor]) -> Iterator[Tensor]:
        optimizer = torch.optim.Adam(scales(model), lr=1e-3)
        for images in batches:
            logits = model(images)
            step(optimizer, dirichlet(logits, mass).mean())
            yield logits

    compare(net, "tent", plain, objective=objective)


# ETA, EATA, RDumb.


def plain_eta(
    model: Any,
    batches: list[Tensor],
    *,
    optimizing: Callable[[Any], torch.optim.Optimizer],
    limit: float = 0.4 * math.log(CLASSES),
    margin: float = 0.4,
    judge: Callable[[Tensor], Tensor] = entropy,
    anchored: Callable[[Any], Tensor] = lambda model: torch.zeros(()),
    every: int = 1000,
) -> Iterator[Tensor]:
    source, average = deepcopy(model.state_dict()), None
    optimizer = optimizing(scales(model))
    for number, images in enumerate(batches):
        if number and number % every == 0:
            model.load_state_dict(source)
            optimizer, average = optimizing(scales(model)), None
        logits = model(images)
        value, p = judge(logits), logits.detach().softmax(1)
        chosen = [i for i in range(len(images)) if value[i] < limit]
        if average is not None:
            chosen = [
                i
                for i in chosen
                if abs(float(average @ p[i] / (average.norm() * p[i].norm()))) < margin
            ]
        if chosen:
            mean = p[chosen].mean(0)
            average = mean if average is None else 0.9 * average + 0.1 * mean
            weight = 1 / torch.exp(value[chosen].detach() - limit)
            step(optimizer, (weight * value[chosen]).mean() + anchored(model))
        yield logits


ADAM = partial(torch.optim.Adam, lr=1e-3)
SLOW = partial(torch.optim.SGD, lr=2.5e-4, momentum=0.9)
LOOSE: dict[str, Any] = {
    "threshold": 0.8,
    "margin": 0.9,
}  # so that some images pass and some do not
LIMIT = 0.8 * math.log(CLASSES)


@pytest.mark.parametrize("preset", ["paper", "released"])
def test_eta(net: Net, preset: str) -> None:
    if preset == "released" and isinstance(net.bn1, nn.GroupNorm):
        with pytest.raises(tapr.TaprError, match="expected trainable parameters in scope"):
            tapr.adapt(net, "eta", preset=preset)
        return
    optimizing = ADAM if preset == "paper" else SLOW
    plain = partial(plain_eta, optimizing=optimizing, limit=LIMIT, margin=0.9)
    adapter = compare(net, "eta", plain, preset=preset, **LOOSE)
    compare(
        net,
        "eta",
        partial(plain_eta, optimizing=optimizing, limit=LIMIT),
        threshold=0.8,
        preset=preset,
    )
    kept = [tapr.adapt(net, "eta", **LOOSE).predict(images).kept for images in make_batches()]
    assert any(0 < count < 12 for count in kept), kept
    assert adapter.objective.average is not None


def test_eta_with_come(net: Net) -> None:
    limit = 0.9 * math.log(CLASSES)
    plain = partial(plain_eta, optimizing=ADAM, limit=limit, margin=0.9, judge=dirichlet)
    compare(net, "eta", plain, threshold=0.9, margin=0.9, objective="come")


def fisher(model: Any, images: Tensor, size: int) -> list[Tensor]:
    """The mean over batches of the squared gradient of the cross-entropy to the own labels."""
    found = [torch.zeros_like(p) for p in scales(model)]
    parts = torch.split(images, size)
    for part in parts:
        logits = model(part)
        model.zero_grad()
        torch.autograd.backward(functional.cross_entropy(logits, logits.argmax(1)))
        for total, parameter in zip(found, scales(model), strict=True):
            assert parameter.grad is not None
            total += parameter.grad**2 / len(parts)
    model.zero_grad()
    return found


@pytest.mark.parametrize("preset", ["paper", "released"])
def test_eata(net: Net, preset: str) -> None:
    if preset == "released" and isinstance(net.bn1, nn.GroupNorm):
        pytest.skip("the released code adapts batch norm alone")
    images = torch.rand(10, 3, 8, 8, generator=torch.Generator().manual_seed(9)).double()
    optimizing = ADAM if preset == "paper" else SLOW
    source = [p.detach().clone() for p in scales(net)]
    importance = fisher(deepcopy(net).train(), images[:9], 4)

    def anchored(model: Any, strength: float) -> Tensor:
        triples = zip(importance, scales(model), source, strict=True)
        return strength * torch.stack([(f * (p - s) ** 2).sum() for f, p, s in triples]).sum()

    for strength in (None, 3e4):
        pull = partial(anchored, strength=1.0 if strength is None else strength)
        plain = partial(plain_eta, optimizing=optimizing, limit=LIMIT, margin=0.9, anchored=pull)
        given: dict[str, Any] = {
            "source_images": images,
            "source_count": 9,
            "source_batch": 4,
            "fisher": strength,
        }
        adapter = compare(net, "eata", plain, preset=preset, **LOOSE, **given)
    flat = torch.cat([f.flatten() for f in importance])
    torch.testing.assert_close(adapter.importance, flat, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("preset", ["paper", "released"])
def test_rdumb(net: Net, preset: str) -> None:
    limit = {"paper": 0.4, "released": (math.log(1000) / 2 - 1) / math.log(1000)}[preset]
    optimizing = ADAM if preset == "paper" else SLOW
    assert tapr.presets("rdumb")[preset]["threshold"] == pytest.approx(limit)
    plain = partial(plain_eta, optimizing=optimizing, limit=LIMIT, margin=0.9, every=2)
    compare(net, "rdumb", plain, preset=preset, every=2, **LOOSE)


# SAR.


def plain_sar(
    model: Any,
    batches: list[Tensor],
    *,
    lr: float,
    recovery: float,
    forget: bool,
    limit: float = LIMIT,
    judge: Callable[[Tensor], Tensor] = entropy,
    recovered: list[int] | None = None,
) -> Iterator[Tensor]:
    source, average = deepcopy(model.state_dict()), None
    weights = scales(model, 3)
    velocity = [torch.zeros_like(p) for p in weights]
    for number, images in enumerate(batches):
        logits = model(images)
        reliable = judge(logits).detach() < limit
        yield logits
        if not reliable.any():
            continue
        gradient = torch.autograd.grad(judge(logits)[reliable].mean(), weights)
        norm = torch.stack([g.norm() for g in gradient]).norm()
        climb = [0.05 * g / (norm + 1e-12) for g in gradient]
        with torch.no_grad():
            for p, e in zip(weights, climb, strict=True):
                p.add_(e)
        again = judge(model(images))
        chosen = reliable & (again.detach() < limit)
        loss = again[chosen].mean()
        gradient = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for p, e, g, v in zip(weights, climb, gradient, velocity, strict=True):
                v.mul_(0.9).add_(g)
                p.sub_(e + lr * v)
        average = loss.item() if average is None else 0.9 * average + 0.1 * loss.item()
        if average < recovery:
            if recovered is not None:
                recovered.append(number)
            model.load_state_dict(source)
            velocity = [torch.zeros_like(p) for p in weights]
            average = None if forget else average


SAR_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"lr": 1e-3, "recovery": 0.029 * math.log(CLASSES), "forget": True},
    "released": {"lr": 2.5e-4, "recovery": 0.2, "forget": False},
    "benchmark": {"lr": 1e-3, "recovery": 0.2, "forget": True},
}


@pytest.mark.parametrize("preset", SAR_PRESETS)
def test_sar(net: Net, preset: str) -> None:
    settings = SAR_PRESETS[preset]
    compare(net, "sar", partial(plain_sar, **settings), preset=preset, threshold=0.8)
    # A recovery after some of the batches, too.
    recovered: list[int] = []
    low = {**settings, "recovery": 0.975, "recovered": recovered, "lr": 0.05}
    options = {"preset": preset, "threshold": 0.8, "lr": 0.05}
    compare(net, "sar", partial(plain_sar, **low), recovery=0.975, moves=False, **options)
    assert recovered


def test_sar_with_come(net: Net) -> None:
    limit = 0.9 * math.log(CLASSES)
    plain = partial(plain_sar, **SAR_PRESETS["paper"], limit=limit, judge=dirichlet)
    compare(net, "sar", plain, threshold=0.9, objective="come")


def test_sar_with_a_radius_of_0_is_tent_on_reliable_images(net: Net) -> None:
    def plain(model: Any, batches: list[Tensor]) -> Iterator[Tensor]:
        optimizer = torch.optim.SGD(scales(model, 3), lr=1e-3, momentum=0.9)
        for images in batches:
            logits = model(images)
            value = entropy(logits)
            if (value < LIMIT).any():
                step(optimizer, value[value < LIMIT].mean())
            yield logits

    compare(net, "sar", plain, radius=0.0, threshold=0.8)
    compare(net, "sar", plain, optimizer="sgd", threshold=0.8)


# ROID and CMF.


class Fixed(Augmentation):
    """Views that are the same whoever makes them."""

    def sample(self, shape: Any, generator: torch.Generator) -> Tensor:
        return torch.linspace(-0.2, 0.2, shape[0], dtype=torch.float64)

    def transform(self, images: Tensor, params: Tensor) -> Tensor:
        return (images.flip(3) + params.view(-1, 1, 1, 1)).clamp(0, 1)


def slr(logits: Tensor) -> Tensor:
    q = logits.softmax(1).clamp(max=0.99)
    return -(q * torch.log(q / (1 - q) + 1e-5)).sum(1)


def sce(one: Tensor, two: Tensor) -> Tensor:
    forth = -(one.softmax(1) * two.log_softmax(1)).sum(1)
    back = -(two.softmax(1) * one.log_softmax(1)).sum(1)
    return 0.5 * forth + 0.5 * back


def scaled(values: Tensor) -> Tensor:
    return (values - values.min()) / (values.max() - values.min())


def ensemble(model: Any, source: list[Tensor], state: dict[str, Any]) -> None:
    for p, s in zip(scales(model), source, strict=True):
        p.copy_(0.99 * p + 0.01 * s)


def kalman(model: Any, source: list[Tensor], state: dict[str, Any]) -> None:
    hidden = state.setdefault("hidden", [s.clone() for s in source])
    hidden = [0.99 * h + 0.01 * s for h, s in zip(hidden, source, strict=True)]
    q = 0.005 * sum(s.numel() for s in source) / 38400
    variance = 0.99**2 * state.get("variance", 0.0) + q
    beta = max((1 - q) / (variance + 1 - q), 0.89)
    beta = 1.0 if beta >= 0.9999 else beta
    state["variance"] = beta * variance
    weights = scales(model)
    state["hidden"] = [beta * h + (1 - beta) * p for h, p in zip(hidden, weights, strict=True)]
    for p, h in zip(weights, state["hidden"], strict=True):
        p.copy_(0.99 * p + 0.01 * h)


def plain_roid(
    model: Any,
    batches: list[Tensor],
    *,
    keeper: Callable[[Any, list[Tensor], dict[str, Any]], None],
    on_logits: bool,
    divisor: int | None,
    detach: bool = False,
) -> Iterator[Tensor]:
    source = [p.detach().clone() for p in scales(model)]
    optimizer = ADAM(scales(model))
    state: dict[str, Any] = {}
    average = torch.full((CLASSES,), 1 / CLASSES, dtype=torch.float64)
    for images in batches:
        logits = model(images)
        p = logits.detach().softmax(1)
        diverse = scaled(1 - functional.cosine_similarity(average[None], p))
        keep = diverse >= diverse.mean()
        weights = torch.exp(diverse * scaled((p * p.log()).sum(1)) * 3)[keep]
        average = 0.9 * average + 0.1 * p.mean(0)
        size = divisor or len(images)
        said = model(Fixed()(images[keep], torch.Generator()))
        clean = logits[keep].detach() if detach else logits[keep]
        loss = (weights * slr(logits)[keep]).sum() / size
        step(optimizer, loss + (weights * sce(said, clean)).sum() / size)
        with torch.no_grad():
            keeper(model, source, state)
            prior = p.mean(0)
            smooth = max(1 / len(images), 1 / CLASSES) / prior.max()
            prior = (prior + smooth) / (1 + smooth * CLASSES)
        yield logits * prior if on_logits else (p * prior).log()


@pytest.mark.parametrize("preset", ["paper", "released"])
@pytest.mark.parametrize(("method", "keeper"), [("roid", ensemble), ("cmf", kalman)])
def test_roid_and_cmf(net: Net, method: str, keeper: Any, preset: str) -> None:
    released = preset == "released"
    plain = partial(plain_roid, keeper=keeper, on_logits=released, divisor=12 if released else None)
    options: dict[str, Any] = {"preset": preset, "augmentation": Fixed()}
    compare(net, method, plain, **options)
    compare(net, method, partial(plain, detach=True), detach=True, **options)


# DeYO.


class Flipped(Augmentation):
    """A way to destroy that draws nothing."""

    def sample(self, shape: Any, generator: torch.Generator) -> None:
        """Nothing."""

    def transform(self, images: Tensor, params: None) -> Tensor:
        return (1 - images.flip(0)) ** 4


def plain_deyo(
    model: Any,
    batches: list[Tensor],
    *,
    optimizing: Callable[[Any], torch.optim.Optimizer],
    drop: float,
    weighting: bool = True,
) -> Iterator[Tensor]:
    optimizer = optimizing(scales(model, 3))
    for images in batches:
        logits = model(images)
        value, p = entropy(logits), logits.detach().softmax(1)
        first = [i for i in range(len(images)) if value[i] < 0.8 * math.log(CLASSES)]
        yield logits
        if not first:
            continue
        with torch.no_grad():
            broken = model((1 - images[first].flip(0)) ** 4).softmax(1)
        lost = {i: (p[i] - broken[k])[p[i].argmax()] for k, i in enumerate(first)}
        chosen = [i for i in first if lost[i] > drop]
        if not chosen:
            continue
        plpd = torch.stack([lost[i] for i in chosen])
        weight = torch.exp(0.4 * math.log(CLASSES) - value[chosen].detach()) + torch.exp(plpd)
        step(optimizer, ((weight if weighting else 1) * value[chosen]).mean())


@pytest.mark.parametrize("preset", ["paper", "released", "wild", "benchmark"])
def test_deyo(net: Net, preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapr.methods.deyo.DESTROYERS", {"patch": Flipped})
    drop = 0.3 if preset in ("paper", "released") else 0.2
    optimizing = SLOW if preset == "released" else ADAM
    plain = partial(plain_deyo, optimizing=optimizing)
    compare(net, "deyo", partial(plain, drop=drop), preset=preset, threshold=0.8)
    everything: dict[str, Any] = {"drop": -2.0, "weighting": False}  # Tent on reliable images
    compare(net, "deyo", partial(plain, **everything), preset=preset, threshold=0.8, **everything)


# RPL and SHOT.


@pytest.mark.parametrize("preset", ["paper", "released", "ccc"])
def test_rpl(net: Net, preset: str) -> None:
    def plain(model: Any, batches: list[Tensor]) -> Iterator[Tensor]:
        made: Any = {
            "paper": lambda: ADAM(scales(model)),
            "released": lambda: torch.optim.SGD(model.parameters(), lr=7.5e-4),
            "ccc": lambda: torch.optim.SGD(scales(model), lr=5e-4, momentum=0.9),
        }
        optimizer = made[preset]()
        for images in batches:
            logits = model(images)
            labels = logits.argmax(1)
            p = logits.softmax(1)[torch.arange(len(images)), labels]
            step(optimizer, ((1 - p**0.8) / 0.8).mean())
            yield logits

    compare(net, "rpl", plain, preset=preset)


@pytest.mark.parametrize("confidence", [0.9, 0.5, 1.0])  # few, many, no labels
@pytest.mark.parametrize("preset", ["paper", "im", "tea", "lame"])
def test_shot(net: Net, preset: str, confidence: float) -> None:
    weight = {"paper": 0.3, "im": 0.0, "tea": 0.1, "lame": 0.0}[preset]

    def plain(model: Any, batches: list[Tensor]) -> Iterator[Tensor]:
        backbone = [p for name, p in model.named_parameters() if not name.startswith("fc")]
        optimizer: torch.optim.Optimizer = ADAM(backbone)
        if preset == "lame":
            optimizer = torch.optim.SGD(scales(model), lr=1e-3)
        for images in batches:
            logits = model(images)
            p = logits.softmax(1)
            mean = p.mean(0)
            loss = entropy(logits).mean() + (mean * torch.log(mean + 1e-5)).sum()
            sure = p.amax(1) > confidence
            if sure.any():
                labels = logits[sure].argmax(1)
                loss = loss + weight * functional.cross_entropy(logits[sure], labels)
            step(optimizer, loss)
            if preset == "lame":
                with torch.no_grad():
                    for layer in model.modules():
                        if isinstance(layer, nn.BatchNorm2d):
                            layer.running_mean, layer.running_var = (
                                torch.zeros_like(layer.weight),
                                torch.ones_like(layer.weight),
                            )
                    logits = model.eval()(images)
                    model.train()
            yield logits

    compare(net, "shot", plain, preset=preset, confidence=confidence)


# Closed-form values.


def test_losses_have_the_values_of_their_formulas() -> None:
    uniform = torch.zeros(1, 10, dtype=torch.float64)
    assert objectives.soft_likelihood_ratio(uniform).item() == pytest.approx(2.19713, abs=1e-5)
    even = torch.zeros(1, 2, dtype=torch.float64)
    assert objectives.generalised_cross_entropy(even).item() == pytest.approx(0.53206, abs=1e-5)
    logits = torch.randn(4, 7, dtype=torch.float64)
    same = objectives.symmetric_cross_entropy(logits, logits)
    torch.testing.assert_close(same, entropy(logits))
    doubt = objectives.come(torch.zeros(1, 10, dtype=torch.float64))  # ten of 1/20, and a half
    assert doubt.item() == pytest.approx(0.5 * math.log(20) + 0.5 * math.log(2), abs=1e-5)


@pytest.mark.parametrize(
    ("classes", "expected"), [(10, 0.92103), (100, 1.84207), (1000, 2.76310), (2, 0.27726)]
)
def test_the_threshold_scales_with_the_classes(classes: int, expected: float) -> None:
    """An image at the threshold would have weight 1, a sure one K ** 0.4."""
    sharpness = torch.linspace(0, 12, 40, dtype=torch.float64)[:, None]
    logits = sharpness * torch.eye(classes, dtype=torch.float64)[0]
    loss = objectives.ReliableNovel(margin=2.0)(
        tapr.Outputs(logits[None], torch.zeros(40, 3, 1, 1))
    )
    value = entropy(logits)
    assert loss.keep.tolist() == (value < expected).tolist()
    assert 0 < loss.keep.sum() < 40
    weight = loss.per_image / value
    torch.testing.assert_close(weight, torch.exp(expected - value), rtol=1e-4, atol=0)
    assert math.exp(expected) == pytest.approx(classes**0.4, rel=1e-4)


@pytest.mark.parametrize(
    ("weights", "first", "second", "last"),
    [
        (17_952, 0.99766, 0.99539, 0.96115),
        (53_120, 0.99308, None, 0.92830),
        (38_400, 0.995, None, 0.93999),
    ],
    ids=["WRN-28-10", "ResNet-50", "ViT-B"],
)
def test_cmf_trusts_its_hidden_weights_as_published(
    weights: int, first: float, second: float | None, last: float
) -> None:
    keeper: Any = tapr.adapters.Filter()
    trust = [keeper._trust(weights) for _ in range(2000)]
    assert trust[0] == pytest.approx(first, abs=1e-5)
    assert second is None or trust[1] == pytest.approx(second, abs=1e-5)
    assert trust[-1] == pytest.approx(last, abs=1e-5)


def test_roid_without_a_gradient_shrinks_the_distance_to_the_source() -> None:
    net = Net(nn.BatchNorm2d).double().eval()
    adapter: Any = tapr.adapt(net, "roid")
    assert adapter.source is not None
    with torch.no_grad():
        for parameter in adapter.moving.values():
            parameter += 1.0
    for _ in range(7):
        adapter.keepers[0](adapter, None)
    for name, parameter in adapter.moving.items():
        distance = parameter - adapter.source.tensors[name]
        torch.testing.assert_close(distance, torch.full_like(distance, 0.99**7))


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_a_uniform_prior_changes_no_answer(kind: str) -> None:
    """Every class is predicted as often: gamma is 1, and all are multiplied by the same."""
    logits = torch.eye(10, dtype=torch.float64).repeat(20, 1) * 3 + 1
    correction: Any = tapr.adapters.PRIORS[kind]()
    corrected = correction(tapr.Outputs(logits[None], torch.zeros(200, 3, 1, 1)))
    if kind == "logits":
        torch.testing.assert_close(corrected, logits * 0.1)  # (0.1 + 1) / (1 + 1 * 10)
    else:
        torch.testing.assert_close(corrected.softmax(1), logits.softmax(1))


def test_eta_that_filters_nothing_is_weighted_tent() -> None:
    net = Net(nn.BatchNorm2d).double().eval()

    def plain(model: Any, batches: list[Tensor]) -> Iterator[Tensor]:
        optimizer = ADAM(scales(model))
        for images in batches:
            logits = model(images)
            value = entropy(logits)
            weight = torch.exp(2 * math.log(CLASSES) - value.detach())
            step(optimizer, (weight * value).mean())
            yield logits

    compare(net, "eta", plain, threshold=2.0, margin=1.5)


# TTT.


class Turning(Net):
    """The same net, with a second head that shares all but the last two stages."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__(norm)
        self.turn = nn.Linear(16, 4)
        with torch.no_grad():
            for parameter in self.turn.parameters():
                parameter.normal_(generator=torch.Generator().manual_seed(8)).mul_(0.6)

    def rotation(self, images: Tensor) -> Tensor:
        hidden = self.bn1(self.conv1(images)).relu()
        for stage in (1, 2):
            hidden = hidden + self.get_submodule(f"layer{stage}")(hidden)
        return torch.as_tensor(self.turn(functional.adaptive_avg_pool2d(hidden, 2).flatten(1)))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("preset", ["paper", "slow"])
def test_ttt(norm: str, preset: str) -> None:
    net = Turning(NORMS[norm]).double().eval()
    drawn: Any = tapr.adapt(net, "ttt", copies=6)  # only for its draws

    def plain(model: Any, batches: list[Tensor]) -> Iterator[Tensor]:
        source = deepcopy(model.state_dict())
        for images in batches:
            if preset == "slow":
                model.load_state_dict(source)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
            for _ in range(10 if preset == "slow" else 1):
                views = drawn.views(images, drawn.generator)
                logits = model.train().rotation(views)
                step(optimizer, functional.cross_entropy(logits, drawn.views.labels))
            yield model.eval()(images)

    compare(net, "ttt", plain, preset=preset, copies=6)


def test_ttt_turns_as_published() -> None:
    from tapr.methods.ttt import turned

    images = torch.rand(4, 3, 6, 6)
    upright, quarter, half, last = turned(images, torch.arange(4))
    assert torch.equal(upright, images[0])
    assert torch.equal(quarter, images[1].flip(2).transpose(1, 2))
    assert torch.equal(half, images[2].flip(2).flip(1))
    assert torch.equal(last, images[3].transpose(1, 2).flip(2))
