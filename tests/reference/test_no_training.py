"""LAME and T3A, which train nothing, against plain PyTorch, in float64."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from tests.reference.common import close
from torch import Tensor, nn

import tapr
from tapr.adapters import Laplacian, Prototypes
from tapr.types import Outputs

SIZES = (7, 64, 1, 2)


@pytest.fixture
def net(make_model: Callable[..., nn.Sequential]) -> Any:
    return make_model().double()


def batches(*sizes: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(4)
    return [torch.rand(size, 3, 9, 8, generator=generator).double() for size in sizes]


def plain_kernel(features: Tensor, kind: str, k: int) -> Tensor:
    size = len(features)
    distance = torch.zeros(size, size, dtype=torch.float64)
    for i in range(size):
        for j in range(size):
            distance[i, j] = (features[i] - features[j]).square().sum().sqrt()
    if kind == "linear":
        return features @ features.T
    if kind == "rbf":
        sigma = sum(row.sort().values[min(k, size) - 1] for row in distance) / size
        if sigma == 0:  # a single image
            return torch.ones_like(distance)
        return torch.exp(-(distance**2) / (2 * sigma**2))
    kernel = torch.zeros_like(distance)
    for i in range(size):
        others = [j for j in distance[i].argsort().tolist() if j != i]
        kernel[i, others[:k]] = 1
    return kernel


def written_out_lame(logits: Tensor, features: Tensor, kind: str, symmetric: bool) -> Tensor:
    features = features / features.norm(dim=1, keepdim=True)
    kernel = plain_kernel(features, kind, 5)
    if symmetric:
        kernel = 0.5 * (kernel + kernel.T)
    unary = -torch.log(logits.softmax(1) + 1e-10)
    y, last = torch.softmax(-unary, 1), float("inf")
    for i in range(100):
        pairwise = kernel @ y
        y = torch.softmax(-unary + pairwise, 1)
        energy = float((unary * y - pairwise * y + y * torch.log(y.clip(1e-20))).sum())
        if i >= 2 and abs(energy - last) <= 1e-8 * abs(last):
            break
        last = energy
    return y


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("kernel", ["knn", "rbf", "linear"])
@torch.no_grad()
def test_lame(net: Any, kernel: str, symmetric: bool) -> None:
    adapter = tapr.adapt(net, "lame", kernel=kernel, symmetric=symmetric)
    for images in batches(*SIZES):
        features = net[:-1](images)
        expected = written_out_lame(net(images), features, kernel, symmetric)
        close(adapter(images).softmax(1), expected)


def test_lame_released_is_the_gaussian_kernel(net: Any) -> None:
    (images,) = batches(7)
    released = tapr.adapt(net, "lame", preset="released")
    assert torch.equal(released(images), tapr.adapt(net, "lame", kernel="rbf")(images))


@torch.no_grad()
def test_lame_without_a_kernel_is_the_model(net: Any) -> None:
    (images,) = batches(7)
    for batch, weight in ((images, 0.0), (images[:1], 1.0)):  # one image has no neighbours
        ours = tapr.adapt(net, "lame", weight=weight)(batch).softmax(1)
        torch.testing.assert_close(ours, net(batch).softmax(1), rtol=0, atol=1e-8)  # p + 1e-10


def energy(answer: Tensor, unary: Tensor, kernel: Tensor) -> float:
    pull = kernel @ answer
    return float((answer * (answer.log() + unary - pull / 2)).sum())


@torch.no_grad()
def test_lame_lowers_its_energy_in_every_round() -> None:
    """Of a symmetric, positive semi-definite kernel; the bound of the paper."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 5, generator=generator, dtype=torch.float64)
    features = torch.randn(20, 8, generator=generator, dtype=torch.float64)
    unit = features / features.norm(dim=1, keepdim=True)
    unary, kernel = -(logits.softmax(1) + 1e-10).log(), unit @ unit.T
    energies = []
    for rounds in range(8):
        outputs = Outputs(logits[None], torch.empty(20, 3, 8, 8), features[None])
        answer = Laplacian(rounds=rounds, kernel="linear")(outputs).exp()
        energies.append(energy(answer, unary, kernel))
    assert all(a >= b - 1e-12 for a, b in pairwise(energies))
    assert energies[0] > energies[-1] + 1e-3


def test_lame_with_the_gaussian_kernel_makes_one_class_of_a_large_mixed_batch() -> None:
    """Its rows are not normalised; neighbours leave most classes there."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(300) % 10
    centres = torch.randn(10, 16, generator=generator)
    features = centres[labels] + 2 * torch.randn(300, 16, generator=generator)
    logits = features @ centres.T / 8
    logits[:, 0] += 0.2  # a slight lean is enough
    outputs = Outputs(logits[None], torch.empty(300, 3, 1, 1), features[None])
    by_rbf, by_neighbours = (
        Laplacian(kernel=kernel)(outputs).argmax(1) for kernel in ("rbf", "knn")
    )
    assert by_rbf.unique().numel() == 1
    assert by_neighbours.unique().numel() >= 5


def written_out_t3a(
    head: nn.Linear, stream: list[tuple[Tensor, Tensor]], most: int | None
) -> list[Tensor]:
    """Lists of (feature, class, entropy), sorted and cut for each class."""

    def judged(feature: Tensor, logits: Tensor) -> tuple[Tensor, int, float]:
        p = logits.softmax(0)
        return feature, int(p.argmax()), float(-(p * p.log()).sum())

    supports = [judged(row, head(row)) for row in head.weight]
    answers = []
    for features, logits in stream:
        supports += [judged(f, z) for f, z in zip(features, logits, strict=True)]
        kept = []
        for label in range(len(head.weight)):
            own = sorted((s for s in supports if s[1] == label), key=lambda s: s[2])
            kept += own[:most] if most is not None else own
        supports = kept
        vectors = torch.zeros_like(head.weight)
        for feature, label, _ in supports:
            vectors[label] += feature / feature.norm()
        vectors = vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1e-12)
        answers.append(features @ vectors.T)
    return answers


@pytest.mark.parametrize("most", [1, 3, 20, None, -1])
@torch.no_grad()
def test_t3a(net: Any, most: int | None) -> None:
    adapter = tapr.adapt(net, "t3a", supports=most)
    stream = batches(*SIZES)
    expected = written_out_t3a(net[-1], [(net[:-1](x), net(x)) for x in stream], most)
    for images, answer in zip(stream, expected, strict=True):
        close(adapter(images), answer)


@torch.no_grad()
def test_t3a_keeps_every_support_where_all_are_asked_for(net: Any) -> None:
    adapter: Any = tapr.adapt(net, "t3a", supports=None)
    for images in batches(7, 64):
        adapter(images)
    assert len(adapter.correction.supports) == 5 + 7 + 64


def test_t3a_with_sure_rows_and_one_support_stays_with_the_rows() -> None:
    """The first batch changes nothing unless a feature is surer than a row."""
    head = nn.Linear(4, 3, bias=False)
    head.weight.data = 20 * torch.eye(4)[:3]
    features = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)) * 0.1
    part = Prototypes(most=1)
    logits = head(features).detach()
    scores = part(Outputs(logits[None], torch.empty(6, 3, 1, 1), features[None], head))
    torch.testing.assert_close(scores, features @ torch.eye(4)[:3].T)


def test_a_model_without_a_linear_layer_gets_a_sentence() -> None:
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for method in ("lame", "t3a"):
        with pytest.raises(tapr.TaprError, match="expected a model with a linear layer"):
            tapr.adapt(model, method)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("lame", {"neighbours": 0}, "expected 1 neighbour or more, got 0"),
        ("lame", {"kernel": "rbff"}, "unknown kernel 'rbff'; did you mean 'rbf'"),
        ("t3a", {"supports": 0}, "expected 1 support of a class or more, or None for all, got 0"),
    ],
)
def test_wrong_options_get_a_sentence(
    net: Any, method: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        tapr.adapt(net, method, **options)
