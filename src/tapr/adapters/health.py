"""How an adapted model compares with the source model, judged without labels.

The question is which of the two is right more often. Where they predict different classes, we ask a
witness that no gradient has changed (`shadow`). For the witness's probabilities w of an image,
d = w[adapted] - w[source]. The mean of d over the last few hundred images, the credit, follows the
difference of the accuracies; its variance says how far chance alone moves it. The support is the
same with the source model as a third voice in w, so that the adapted model needs more evidence to
count as the better one. docs/health.md shows both, and where they are wrong.
"""

import math

import torch
from torch import Tensor, nn

from tapr.adapters.shadow import Said
from tapr.sync import Share
from tapr.types import Health, Verdict

ENOUGH = 32  # images before there is a verdict
DEVIATIONS = 3.0  # harm: the witness believes the source more by so many standard deviations
FEWER = 0.2  # times ln K: the loss of entropy that means collapse, where there is no witness
KNOWN = 0.06  # nats: the statistics are those of the source, up to a change of class
LOOKED_AT = 32  # images of a batch that are checked for being blank
ROUGH = 0.9  # noise: neighbouring pixels differ by at least so much of what they do in white noise
LEVEL = 1 / 255  # one grey level


def show_nothing(images: Tensor, share: Share | None = None) -> float:
    """The share of blank images: of one colour, or of noise, among [B, C, H, W] in [0, 1].

    Processes that `share` the images check their own, and all return the same.

    >>> seeded = torch.Generator().manual_seed(0)
    >>> black, noise = torch.zeros(4, 3, 32, 32), torch.rand(4, 3, 32, 32, generator=seeded)
    >>> show_nothing(black), show_nothing(noise), show_nothing(noise.cumsum(3) / 32)
    (1.0, 1.0, 0.0)
    """
    count, first = (share.images, share.first) if share else (len(images), 0)
    every = max(1, count // LOOKED_AT)
    few = images[-first % every :: every].float()  # a slice is no copy
    blank = _shows_nothing(few).sum() if len(few) else torch.tensor(0, device=images.device)
    return int(share.total(blank) if share else blank) / len(range(0, count, every))


def _shows_nothing(images: Tensor) -> Tensor:
    """Which of the images are blank, [B]."""
    low, high = images.aminmax(dim=3)
    flat = (high.amax(2) - low.amin(2)).amax(1) <= LEVEL
    across = images.diff(dim=3).square_().mean((1, 2, 3))  # of white noise, twice its variance
    noise = across > ROUGH * 2 * images.var((2, 3), correction=0).mean(1)
    return flat | noise


class Comparison(nn.Module):
    """Remembers means of the adapted and the source model's predictions, and gives the verdict."""

    images: Tensor  # how many count in the means
    means: Tensor  # [2, K] predictions of the adapted and of the source model
    entropies: Tensor  # [2]
    agreement: Tensor
    credit: Tensor  # [3] mean of d, of its square, and of d with the source as a third voice

    def __init__(self, window: float) -> None:
        super().__init__()
        self.window = window
        for name in Comparison.__annotations__:
            self.register_buffer(name, None)

    def forget(self) -> None:
        """Forget all means: another model predicts from now on."""
        for name in Comparison.__annotations__:
            setattr(self, name, None)

    @torch.no_grad()
    def forward(self, adapted: Tensor, said: Said, *, apart: bool) -> Health:
        """Add predictions [B, K] of the same images. `apart`: the witness is a third model."""
        log_p = torch.stack([adapted, said.source]).float().log_softmax(2).clamp(min=-1e4)
        p = log_p.exp()  # [2, B, K]
        classes = p.argmax(2)
        witness = said.witness.float()
        voices = torch.stack([witness, (2 * witness + p[1]) / 3])
        believed = voices.gather(2, classes.T.expand(2, -1, -1))  # [2, B, 2]
        d, with_source = believed[..., 0] - believed[..., 1]
        found = {
            "means": p.mean(1),
            "entropies": -(p * log_p).sum(2).mean(1),
            "agreement": (classes[0] == classes[1]).float().mean(),
            "credit": torch.stack([d.mean(), d.square().mean(), with_source.mean()]),
        }
        if any(
            getattr(self, n) is None or getattr(self, n).shape != v.shape for n, v in found.items()
        ):
            self.images = d.new_zeros(())
            for name, value in found.items():
                setattr(self, name, torch.zeros_like(value))
        self.images.add_(len(d)).clamp_(max=max(self.window, len(d)))
        for name, value in found.items():
            getattr(self, name).lerp_(value, len(d) / self.images)
        return self._health(said, apart)

    def _health(self, said: Said, apart: bool) -> Health:
        most = math.log(max(self.means.shape[1], 2))
        spread = -(self.means * self.means.clamp(min=1e-30).log()).sum(1) / most
        entropies = self.entropies / most
        (own, source), (entropy, source_entropy) = spread.tolist(), entropies.tolist()
        health = Health(
            images=int(self.images),
            agreement=float(self.agreement),
            credit=float(self.credit[0]),
            support=float(self.credit[2]),
            entropy=entropy,
            source_entropy=source_entropy,
            information=own - entropy,
            source_information=source - source_entropy,
            spread=own,
            source_spread=source,
            views=said.views,
            shift=said.layers,
        )
        verdict, reason = self._verdict(health, said, apart)
        return health._replace(verdict=verdict, reason=reason)

    def _verdict(self, health: Health, said: Said, apart: bool) -> tuple[Verdict, str]:
        if health.images < ENOUGH:
            return "ok", ""
        fewer = health.spread < health.source_spread - FEWER
        if not apart:
            return ("harm", _sentence(health, _cause(fewer, said))) if fewer else ("ok", "")
        if health.support >= 0:
            return "ok", ""
        square = float(self.credit[1])
        chance = math.sqrt(max(square - health.credit**2, 0.0) / health.images)
        harm = health.credit < -DEVIATIONS * chance
        return "harm" if harm else "watch", _sentence(health, _cause(fewer, said))


def _sentence(health: Health, cause: str) -> str:
    return f"the source model is the more credible on the last {health.images} images: {cause}"


def _cause(fewer: bool, said: Said) -> str:
    if fewer:
        return "the adapted model predicts fewer and fewer classes"
    if said.trusted > 0.5:
        return "they come class by class, which misleads adaptation"
    if said.shift is not None and said.shift.nats < KNOWN:
        return "they look like those it was trained on, and there is little to adapt to"
    return "the adapted model contradicts both the source model and other views"
