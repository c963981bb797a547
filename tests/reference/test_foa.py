"""FOA against plain PyTorch and the package `cma`, in float64."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import cma
import pytest
import torch
from torch import Tensor, nn

import tapr
from tapr import rng

SIZES = (7, 64, 1, 2, 30)


def batches(*sizes: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(4)
    light = torch.rand(sum(sizes), 1, 1, 1, generator=generator)
    images = torch.rand(sum(sizes), 3, 9, 9, generator=generator) * light
    return list(torch.split(images.double(), list(sizes)))


SOURCE = batches(40)[0].flip(3)


@pytest.fixture
def vit(transformer: nn.Module) -> Any:
    return transformer.double()


class WrittenOut:
    """As the paper has it, with the package's CMA-ES on our draws."""

    def __init__(self, vit: Any, prompts: int, population: int, alignment: float) -> None:
        self.vit, self.count, self.alignment = vit, prompts, alignment
        size = prompts * 6
        draws = rng.generator(0, "views")
        options = {
            **{"popsize": population, "seed": 1, "verbose": -9, "maxiter": -1},
            "randn": lambda *shape: torch.randn(
                shape, generator=draws, dtype=torch.float64
            ).numpy(),
            "CMA_eigenmethod": lambda c: [
                part.numpy() for part in torch.linalg.eigh(torch.as_tensor(c))
            ],
        }
        self.es: Any = cma.CMAEvolutionStrategy(size * [0], 1, options)
        start = torch.rand(size, generator=rng.generator(0, "prompts"), dtype=torch.float64)
        self.best = (6 / (3 * 3 * 3 + 6)) ** 0.5 * (2 * start - 1)
        self.history: Tensor | None = None
        self.std, self.mean = torch.std_mean(self.tokens(SOURCE, torch.zeros(0, 6)), 0)

    def tokens(self, images: Tensor, prompts: Tensor) -> Tensor:
        vit = self.vit
        x = vit.patch_embed(images).flatten(2).transpose(1, 2)
        x = torch.cat([vit.cls_token.expand(len(x), -1, -1), x], 1) + vit.pos_embed
        x = torch.cat([x[:, :1], prompts.expand(len(x), -1, -1), x[:, 1:]], 1)
        found = []
        for number, block in enumerate(vit.blocks):
            x = block(x)
            last = number == len(vit.blocks) - 1
            found.append((vit.norm if last else vit.blocks[number + 1].norm1)(x[:, 0]))
        return torch.cat(found, 1)

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        shift = None if self.history is None else self.mean[-6:] - self.history
        candidates = [*map(torch.as_tensor, self.es.ask()), self.best]
        losses, means, best, answer = [], [], float("inf"), torch.empty(0)
        for candidate in candidates:
            tokens = self.tokens(images, candidate.view(self.count, 6))
            std, mean = torch.std_mean(tokens, 0) if len(images) > 1 else (self.std, tokens[0])
            p = self.vit.head(tokens[:, -6:]).softmax(1)
            far = ((std - self.std) ** 2).sum() + ((mean - self.mean) ** 2).sum()
            loss = float(-(p * p.log()).sum() + self.alignment * far * len(images) / 64)
            if loss < best:
                best, self.best = loss, candidate
                answer = self.vit.head(tokens[:, -6:] + (0 if shift is None else shift))
            losses.append(loss)
            means.append(mean[-6:])
        self.es.tell([candidate.numpy().copy() for candidate in candidates], losses)
        mean = torch.stack(means).mean(0)
        self.history = mean if self.history is None else 0.9 * self.history + 0.1 * mean
        self.loss = best
        return answer


@pytest.mark.parametrize(
    ("prompts", "population", "preset"), [(3, 27, "paper"), (1, 6, "imagenet-r")]
)
def test_foa(vit: Any, prompts: int, population: int, preset: str) -> None:
    options: dict[str, Any] = {"prompts": prompts, "population": population}
    adapter = tapr.adapt(vit, "foa", preset=preset, source_images=SOURCE, **options)
    plain = WrittenOut(deepcopy(vit), prompts, population, 0.4 if preset == "paper" else 0.2)
    for images in batches(*SIZES) + batches(*SIZES):
        prediction = adapter.predict(images)
        torch.testing.assert_close(prediction.logits, plain(images), rtol=0, atol=1e-9)
        assert prediction.loss is not None
        assert abs(prediction.loss - plain.loss / len(images)) < 1e-9
        assert sum(prediction.terms.values()) == pytest.approx(prediction.loss)
        assert prediction.forward == len(images) * (population + 1)
    assert prediction.backward == 0


def test_it_goes_on_where_a_file_stopped(vit: Any, tmp_path: Path) -> None:
    stream = batches(*SIZES)
    adapter = tapr.adapt(vit, "foa", source_images=SOURCE)
    for images in stream[:2]:
        adapter(images)
    adapter.save(tmp_path / "state.safetensors")
    other = tapr.load(tmp_path / "state.safetensors", vit, source_images=SOURCE)
    for images in stream[2:]:
        assert torch.equal(adapter(images), other(images))


@torch.no_grad()
def test_the_first_batch_is_not_shifted_and_the_second_is(vit: Any) -> None:
    (images,) = batches(64)
    shifted = tapr.adapt(vit, "foa", source_images=images)
    plain = tapr.adapt(vit, "foa", source_images=images, shift=False)
    assert torch.equal(shifted(images), plain(images))
    assert not torch.equal(shifted(images), plain(images))


@torch.no_grad()
def test_a_constant_shift_of_the_last_token_is_taken_back(vit: Any) -> None:
    """The mean of the shifted tokens is the source's, once the running mean has arrived."""
    (images,) = batches(64)
    adapter: Any = tapr.adapt(vit, "foa", source_images=SOURCE, keep=0.0, population=6)
    for _ in range(2):
        adapter(images)
    seen = adapter.seen.clone()
    answer = adapter(images)
    token = answer - vit.head(torch.zeros_like(seen))  # up to the null space of the head
    expected = (adapter.source_mean[-1] - seen) @ vit.head.weight.T
    best = adapter._judged(images, adapter.best)
    torch.testing.assert_close(token, best.token @ vit.head.weight.T + expected)


def test_a_normalisation_before_the_transformer_is_no_hindrance(vit: Any) -> None:
    class Normalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = vit

        def forward(self, images: Tensor) -> Tensor:
            return torch.as_tensor(self.inner((images - 0.5) / 0.5))

    (images,) = batches(7)
    adapter = tapr.adapt(Normalised(), "foa", source_images=SOURCE, population=6)
    assert adapter(images).shape == (7, 5)


class Averaging(nn.Module):
    """A head behind the mean of all tokens."""

    def __init__(self, vit: Any) -> None:
        super().__init__()
        for name, part in vit.named_children():
            setattr(self, name, part)
        self.cls_token, self.pos_embed = vit.cls_token, vit.pos_embed

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patch_embed(images).flatten(2).transpose(1, 2)  # type: ignore[operator]
        tokens = torch.cat([self.cls_token.expand(len(patches), -1, -1), patches], 1)
        tokens = self.norm(self.blocks(tokens + self.pos_embed))  # type: ignore[operator]
        return torch.as_tensor(self.head(tokens.mean(1)))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source_images": None}, "expected source_images for the statistics of its class tokens"),
        ({"source_images": SOURCE[:1]}, "expected 2 source images or more"),
        ({"population": 5}, "expected population to be a whole number of at least 6, got 5"),
        ({"prompts": 0}, "expected prompts to be a whole number of at least 1, got 0"),
        ({"alignment": -1.0}, "expected alignment of at least 0"),
        ({"keep": 1.5}, "expected keep from 0 to 1"),
        ({"spread": 0.0}, "expected spread above 0"),
        ({"shift": 1}, "expected shift to be True or False"),
    ],
)
def test_wrong_options_get_a_sentence(vit: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        tapr.adapt(vit, "foa", **{"source_images": SOURCE, **options})


def test_a_model_that_is_no_such_transformer_gets_a_sentence(model: nn.Module, vit: Any) -> None:
    with pytest.raises(tapr.TaprError, match="expected a vision transformer as timm has them"):
        tapr.adapt(model, "foa", source_images=SOURCE.float())
    with pytest.raises(tapr.TaprError, match="whose head takes the class token"):
        tapr.adapt(Averaging(vit), "foa", source_images=SOURCE)


def test_a_batch_without_a_finite_loss_is_answered_by_the_model(vit: Any) -> None:
    adapter = tapr.adapt(vit, "foa", source_images=SOURCE, population=6)
    first, second = batches(7, 7)
    adapter(first)
    before = adapter.capture()
    adapter.source_mean.fill_(float("nan"))
    prediction = adapter.predict(second)
    assert (prediction.refused, prediction.steps) == (1, 0)
    torch.testing.assert_close(prediction.logits, vit(second).detach())
    after = adapter.capture()
    assert torch.equal(before.tensors["best"], after.tensors["best"])
    assert torch.equal(before.tensors["search.covariance"], after.tensors["search.covariance"])
