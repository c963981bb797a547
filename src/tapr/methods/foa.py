"""FOA: prompts for a vision transformer, found with forwards only, and a shift of its token."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tapr import rng
from tapr.adapters import Adapter, Evolution, Needs, NotFinite, Passes
from tapr.adapters.checks import check_options
from tapr.errors import InputError, ModelError
from tapr.methods import source_images as given
from tapr.models import head as heads
from tapr.models import transformer
from tapr.objectives import entropy
from tapr.types import Prediction


class Judged(NamedTuple):
    """The outputs and the loss of one candidate of the prompts on a batch."""

    logits: Tensor  # [B, K]
    token: Tensor  # [B, D], the class token that the head takes
    entropy: Tensor  # summed over the batch
    distance: Tensor  # from the source's statistics, weighted

    @property
    def loss(self) -> Tensor:
        """The loss that the search minimises."""
        return self.entropy + self.distance


class FOA(Adapter):
    """Searches prompts for sure predictions and source-like class tokens. 28 forwards an image.

    Niu et al., ICML 2024. `prompts` tokens are put after the class token of a vision transformer
    with timm's parts. For each batch CMA-ES proposes `population` candidates; the best one so far
    is evaluated too. The loss of a candidate is the entropy, summed over the batch, plus
    `alignment` times the squared distance of the class tokens' means and standard deviations, after
    every block, from those of `source_images`, times B / 64. The answer is that of the best
    candidate. Its last class token is shifted by the source's mean minus a running mean (`keep`) of
    the tokens in the batches so far, over all their candidates; the first batch is not shifted.

    `source_images` is a tensor, batches of images, or the name of a data set, from whose
    `source_split` at most `source_count` are taken; the authors' code took clean validation images.

    Two things are our choice: for a batch of one image, which has no standard deviation, only the
    means are compared; and `reset` returns to the first prompts, where the authors' code draws new
    ones. The preset `imagenet-r` has the authors' weight of the distance for ImageNet-R, 0.2. We
    wrote CMA-ES ourselves (`Evolution` says why), and a test compares it with the package `cma`.
    Its state has the square of the prompts' numbers (2,304 for ViT-B: 85 MB).
    """

    title = "FOA"
    paper = "Niu et al., ICML 2024"
    needs = Needs(
        source_images="for the statistics of its class tokens",
        transformer="which gets the prompts as further tokens",
    )
    presets = {"imagenet-r": {"alignment": 0.2}}
    best: Tensor  # [P * D], the best prompts of the last batch
    source_mean: Tensor  # [L, D]
    source_deviation: Tensor  # [L, D]
    seen: Tensor  # [D], the running mean of the last class token; None before the first batch

    def __init__(
        self,
        model: nn.Module,
        *,
        source_images: Any = None,
        source_split: str = "train",
        source_count: int = 2000,
        source_batch: int = 64,
        prompts: int = 3,
        population: int = 27,
        spread: float = 1.0,  # the spread of the search at its start
        alignment: float = 0.4,
        shift: bool = True,
        keep: float = 0.9,
        **common: Any,
    ) -> None:
        check_options({"source_count": source_count, "source_batch": source_batch, "shift": shift})
        check_options({"prompts": prompts, "population": population})
        check_options({"spread": spread, "alignment": alignment, "keep": keep})
        super().__init__(model, **common)
        if source_images is None:
            raise InputError(f"expected source_images {self.needs.source_images}; got none")
        batches = given.batches(
            source_images, self.model, count=source_count, size=source_batch, split=source_split
        )
        patch = self.transformer.patch_embed.proj.weight[0].numel()
        self.prompts, self.width = prompts, self.transformer.cls_token.shape[-1]
        self.alignment, self.shift, self.keep = alignment, shift, keep
        self.search = Evolution(prompts * self.width, population, spread)
        generator = rng.generator(common.get("seed", 0), "prompts")
        drawn = torch.rand(prompts * self.width, generator=generator, dtype=torch.float64)
        self.register_buffer("best", (6 / (patch + self.width)) ** 0.5 * (2 * drawn - 1))
        deviation, mean = self._statistics(batches)
        self.register_buffer("source_deviation", deviation)
        self.register_buffer("source_mean", mean)
        self.register_buffer("seen", None)

    @property
    def transformer(self) -> Any:
        """The transformer in the model."""
        return transformer.find(self.model)

    @property
    def passes(self) -> Passes:
        """Passes of every candidate, and of the best prompts so far."""
        return Passes(forward=self.search.population + 1, backward=0)

    @torch.no_grad()
    def adapt(self, images: Tensor) -> Prediction:
        """One round of the search, and the answer of its best candidate."""
        with self.guard.step(self):
            return self._round(images)
        return Prediction(self.logits(images))  # refused

    def _round(self, images: Tensor) -> Prediction:
        candidates = torch.cat([self.search.ask(self.generator), self.best[None]])
        judged = [self._judged(images, candidate) for candidate in candidates]
        loss = torch.stack([each.loss for each in judged]).to(candidates)
        winner = int(loss.nan_to_num(nan=torch.inf).argmin())
        if not loss[winner].isfinite():
            raise NotFinite("no candidate has a finite loss")
        logits, token, uncertain, distance = judged[winner]
        if self.shift and self.seen is not None:
            logits = self.transformer.head(token + (self.source_mean[-1] - self.seen))
            if not logits.isfinite().all():
                raise NotFinite("the shifted answer is not finite")
        self.search.tell(candidates, loss)
        self.best.copy_(candidates[winner])
        mean = torch.stack([each.token.mean(0) for each in judged]).mean(0)
        self.seen = mean if self.seen is None else self.keep * self.seen + (1 - self.keep) * mean
        terms = {"entropy": uncertain.item(), "distance": distance.item()}
        shares = {name: value / len(images) for name, value in terms.items()}
        return Prediction(logits, sum(shares.values()), shares, steps=1, kept=len(images))

    def _judged(self, images: Tensor, candidate: Tensor) -> Judged:
        logits, tokens = self._forward(images, candidate.view(self.prompts, self.width))
        distance = (tokens.mean(0) - self.source_mean).square().sum()
        if len(images) > 1:
            distance = distance + (tokens.std(0) - self.source_deviation).square().sum()
        uncertain = entropy(logits).sum()
        return Judged(
            logits, tokens[:, -1], uncertain, self.alignment * distance * len(images) / 64
        )

    def _forward(self, images: Tensor, prompts: Tensor | None) -> tuple[Tensor, Tensor]:
        """Logits [B, K], and the class tokens after every block, [B, L, D]."""
        vit = self.transformer
        with transformer.prompted(vit, prompts), transformer.class_tokens(vit) as seen:
            logits = self.logits(images)
        return logits, transformer.normalised(vit, seen)

    @torch.no_grad()
    def _statistics(self, batches: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Standard deviation and mean of the source's class tokens, without prompts: [L, D]."""
        found = []
        for images in batches:
            with heads.features(self.transformer.head) as taken:
                found.append(self._forward(images, None)[1])
            last = found[-1][:, -1]
            if taken[0].shape != last.shape or not torch.allclose(taken[0], last, atol=1e-4):
                raise ModelError(
                    "expected a transformer whose head takes the class token behind the last norm,"
                    " got one whose head takes something else, such as a mean over all tokens"
                )
        tokens = torch.cat(found)
        if len(tokens) < 2:
            raise InputError("expected 2 source images or more, for a deviation, got 1")
        deviation, mean = torch.std_mean(tokens, 0)
        if not (deviation.isfinite().all() and mean.isfinite().all()):
            raise ModelError(
                "expected finite class tokens of the source images, got NaN or infinity"
            )
        return deviation, mean
