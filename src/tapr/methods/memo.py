"""MEMO: makes the mean prediction over many views confident, for each image alone."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tapr.adapters import Learner
from tapr.augment import Augmentation, AugMix, Chain, Crop, ResizedCrop, Views
from tapr.errors import InputError
from tapr.models.output import logits_of
from tapr.objectives import log_probabilities
from tapr.registry import Registry
from tapr.types import Loss, Outputs, Prediction

CROPS: Registry[Callable[[], Augmentation]] = Registry(
    "crop", {"padded": Crop, "resized": ResizedCrop}
)


def marginal_entropy(view_logits: Tensor) -> Tensor:
    """Entropy of the mean prediction over the views, [V, B, K] -> [B], in log space.

    >>> round(marginal_entropy(torch.tensor([[[1e4, 0.0]], [[0.0, 1e4]]])).item(), 4)
    0.6931
    """
    log_mean = log_probabilities(view_logits).logsumexp(0) - math.log(len(view_logits))
    log_mean = log_mean.clamp(min=-1e4)
    return -(log_mean.exp() * log_mean).sum(-1)


class MEMO(Learner):
    """Makes an image's mean prediction over 32 views confident. Moves all; 33 forwards, 32 back.

    Zhang, Levine & Finn, NeurIPS 2022. Each image starts from the source model, whatever the batch:
    one step of plain SGD on its own AugMix views, then the prediction of the image itself. In both
    forwards batch norm uses the statistics (prior x stored + own) / (prior + 1), where own are
    those of the views or of the single image.

    `imagenet` has 64 views by resized crops and a smaller learning rate, `adamw` the settings for
    transformers, where the authors' code (not the paper) lets AdamW's memory leak from image to
    image: `leak`. `benchmark` is the version of a widely used collection: the image's own
    statistics count a tenth, the border behind moved pixels is black instead of grey, and SGD has
    Nesterov's momentum, whose first step is 1.9 times as long. `vectorised` runs the images of a
    batch side by side (torch.func), with the same arithmetic up to rounding; it needs plain SGD,
    and on a CPU it does not save time.
    """

    title = "MEMO"
    paper = "Zhang et al., NeurIPS 2022"
    presets = {
        "imagenet": {"views": 64, "lr": 2.5e-4, "crop": "resized"},
        "adamw": {
            **{"views": 64, "lr": 1e-5, "crop": "resized", "optimizer": "adamw"},
            **{"momentum": 0.9, "weight_decay": 0.01, "leak": True},
        },
        "benchmark": {"prior": 9.0, "grey": False, "optimizer": "nesterov", "momentum": 0.9},
    }

    def __init__(
        self,
        model: nn.Module,
        *,
        views: int = 32,
        augmentation: Augmentation | None = None,  # instead of AugMix and the crop
        crop: str = "padded",  # or "resized"
        grey: bool = True,  # whether the border behind moved pixels is grey; else black
        optimizer: Any = "sgd",
        lr: float = 5e-3,
        momentum: float = 0.0,
        leak: bool = False,
        episodic: bool = True,
        statistics: str = "prior",
        vectorised: bool = False,
        **common: Any,
    ) -> None:
        if not isinstance(views, int) or views < 1:
            raise InputError(f"expected 1 view or more, got {views!r}")
        plain = optimizer == "sgd" and not momentum and not common.get("weight_decay")
        plain = plain and not (common.get("amp") or common.get("compile"))
        if vectorised and not (plain and episodic):
            raise InputError(
                "expected plain SGD (episodic; no momentum, weight decay, amp or compile) with"
                f" vectorised=True, got optimizer={optimizer!r}, momentum={momentum}"
            )
        chains = AugMix(severity=1, width=3, depth=3, ops="released", grey=grey)
        super().__init__(
            model,
            views=Views(augmentation or Chain(CROPS[crop](), chains), views, original=False),
            optimizer=optimizer,
            lr=lr,
            momentum=momentum,
            episodic=episodic,
            statistics=statistics,
            **common,
        )
        self.leak, self.vectorised = leak, vectorised
        self._drawn: list[Tensor] = []

    def adapt(self, images: Tensor) -> Prediction:
        """Adapt to each image on its own; all views are drawn together."""
        assert self.views is not None
        views = self._by_image(self.views(images, self.generator))
        if self.vectorised:
            together = self._side_by_side(images, views)
            if together.isfinite().all():  # else the guard checks each image on its own
                return Prediction(together, steps=len(images) * self.schedule.steps)
        said, refused = [], 0
        for image, own in zip(images, views, strict=True):
            self._drawn, self.guard.refused = [own], 0
            said.append(super().adapt(image[None]))
            refused += self.guard.refused
        self.guard.refused = refused
        if self.schedule.episodic:  # nothing of the last image is kept
            with self._leaking():
                self.restart()
        logits = torch.cat([each.logits for each in said])
        return said[-1]._replace(logits=logits, steps=sum(each.steps for each in said))

    @property
    def alone(self) -> bool:
        """Whether images go through the model one by one: yes, unless vectorised."""
        return not self.vectorised

    def objective(self, outputs: Outputs) -> Loss:
        """The entropy of the mean prediction over the views."""
        value = marginal_entropy(outputs.logits)
        return Loss.mean(value, terms={"entropy": value})

    def _by_image(self, views: Tensor) -> Tensor:
        """Reshape [V * B, ...], view by view, to [B, V, ...]."""
        assert self.views is not None
        return views.view(self.views.count, -1, *views.shape[1:]).transpose(0, 1)

    def _draw(self, images: Tensor) -> Tensor:
        return self._drawn.pop() if self._drawn else super()._draw(images)

    def _begin(self, images: Tensor) -> None:
        with self._leaking():
            super()._begin(images)

    @contextmanager
    def _leaking(self) -> Iterator[None]:
        """A context after which the optimiser's memory is kept, if `leak`."""
        memory = deepcopy(self.optimizer.state_dict()["state"]) if self.leak else None
        yield
        if memory:
            self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": memory})

    def _side_by_side(self, images: Tensor, views: Tensor) -> Tensor:
        """Compute all steps and predictions at once, over all images."""
        frozen = {n: p.detach() for n, p in self.model.named_parameters() if not p.requires_grad}
        moving = {n: p.detach() for n, p in self.model.named_parameters() if p.requires_grad}
        lr = self.optimizer.param_groups[0]["lr"]

        def said(weights: Mapping[str, Tensor], given: Tensor) -> Tensor:
            return logits_of(
                functional_call(self.model, {**frozen, **weights}, (given,)), len(given)
            )

        def loss(weights: Mapping[str, Tensor], own: Tensor) -> Tensor:
            return marginal_entropy(said(weights, own)[:, None])[0]

        def one(image: Tensor, own: Tensor) -> Tensor:
            weights = dict(moving)
            for _ in range(self.schedule.steps):
                slopes = grad(loss)(weights, own)
                weights = {name: weights[name] - lr * slopes[name] for name in weights}
            return said(weights, image[None])[0]

        self._counts[0] += len(images) * (views.shape[1] * self.schedule.steps + 1)
        self._counts[1] += len(images) * views.shape[1] * self.schedule.steps
        with self.norms.feeding():
            logits: Tensor = vmap(one)(images, views)
        return logits.detach()
