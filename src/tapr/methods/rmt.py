"""RMT: a robust mean teacher, and contrastive learning with the source's class means."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize
from torch.nn.utils import skip_init

from tapr import rng
from tapr.adapters import Learner, Needs, Taught, Teacher
from tapr.adapters.checks import check_images
from tapr.adapters.cost import Passes
from tapr.adapters.schedule import Predict
from tapr.augment import Augmentation, Views
from tapr.errors import InputError
from tapr.methods import augmentations
from tapr.methods.source_images import labelled
from tapr.models import head as heads
from tapr.models.moments import own
from tapr.models.statistics import Statistics
from tapr.objectives import symmetric_cross_entropy
from tapr.types import Loss, Outputs

WIDTH = 128  # of the projector


class RMT(Learner):
    """Learns from a mean teacher and by contrast. Moves all parameters; 4 forwards, 3 backwards.

    Doebler, Marsden & Yang, CVPR 2023. The loss is the sum of three terms: symmetric cross-entropy
    of the image and of an augmented view to the teacher; a contrastive one, in which an image's
    features, its view's and the nearest class mean of the source belong together; and, with
    `source_images` and `source_labels` (tensors, or the name of a data set, from whose
    `source_split` at most `source_count` are taken), the cross-entropy on as many of them as the
    batch has images. The
    answer is the sum of the student's and the teacher's logits, before the step. Two images with
    the same nearest class mean count as different, as in the authors' code.

    With source images the class means are those of their features, and `warm_up` of them are
    learnt from before the stream begins (symmetric cross-entropy to the teacher, the learning rate
    rising from 0); `replay=0` and `warm_up=0` are the authors' source-free setting, for which
    `class_means` [K, D] may be given instead of images. Without both, the rows of the last linear
    layer stand for the class means: our choice, not the paper's. `released` draws one augmentation
    for the whole batch.
    """

    class_means: Tensor  # [K, D]
    title = "RMT"
    paper = "Doebler et al., CVPR 2023"
    needs = Needs(features="which are compared with the class means of the source")
    presets = {"released": {"augmentation_options": {"batchwide": True}}}

    def __init__(
        self,
        model: nn.Module,
        *,
        source_images: Tensor | str | None = None,
        source_labels: Tensor | None = None,
        source_count: int = 50_000,
        source_split: str = "train",
        class_means: Tensor | None = None,
        warm_up: int = 50_000,
        warm_up_batch: int = 200,
        replay: float = 1.0,  # weight of the cross-entropy on source images
        contrast: float = 1.0,  # weight of the contrastive term
        contrast_temperature: float = 0.1,
        augmentation: str | Augmentation = "katana",
        augmentation_options: Mapping[str, Any] = {},
        follow: float = 0.999,  # the share of its values that the teacher keeps after a step
        optimizer: Any = "adam",
        lr: float = 1e-3,
        predict: Predict = "before",
        statistics: str = "views",
        **common: Any,
    ) -> None:
        if isinstance(source_images, str):
            source_images, source_labels = labelled(
                source_images, count=source_count, split=source_split
            )
        _check_source(source_images, source_labels)
        made = augmentations.make(augmentation, given=augmentation_options)
        super().__init__(
            model,
            views=Views(made, 1),
            teacher=Teacher(model, momentum=follow, statistics=Statistics("batch")),
            correction=Taught(together=True),
            optimizer=optimizer,
            lr=lr,
            predict=predict,
            statistics=statistics,
            **common,
        )
        self.given = None if source_images is None else _source(self.model, source_images)
        self.answers = source_labels
        self.warm_up, self.warm_up_batch = warm_up, warm_up_batch
        self.replay = replay if source_images is not None else 0.0
        self.contrast, self.temperature = contrast, contrast_temperature
        self.sources = rng.generator(common.get("seed", 0), "sources")
        layer = self._layer
        assert layer is not None
        self.projector = _projector(layer, rng.generator(common.get("seed", 0), "projector"))
        self.register_buffer("class_means", self._means(layer, class_means))

    def objective(self, outputs: Outputs) -> Loss:
        """Self-training, contrast, and cross-entropy on source images if there are any."""
        assert outputs.teacher is not None
        assert outputs.features is not None
        student = outputs.logits[:2]
        teacher = outputs.teacher.expand_as(student)
        taught = symmetric_cross_entropy(student, teacher).mean(0)
        terms = {"teacher": taught}
        if self.contrast:
            terms["contrast"] = self.contrast * self._contrast(outputs.features)
        if self.replay:
            images, labels = self._sources(len(taught))
            said = self.ask(images)
            terms["replay"] = self.replay * nn.functional.cross_entropy(
                said, labels, reduction="none"
            )
        return Loss.mean(torch.stack(list(terms.values())).sum(0), terms=terms)

    def _contrast(self, features: Tensor) -> Tensor:
        """The contrastive loss of each image, the mean over its three kinds of features, [B]."""
        images = features.shape[1]
        alike = cosine_similarity(features[0].detach()[:, None], self.class_means[None], dim=2)
        nearest = self.class_means[alike.argmax(1)]
        three = torch.cat([nearest, features[0], features[1]])
        projected = normalize(self.projector(three), dim=1)
        logits = projected @ projected.T / self.temperature
        itself = torch.eye(len(three), dtype=torch.bool, device=logits.device)
        log_p = logits.masked_fill(itself, float("-inf")).log_softmax(1)
        partners = torch.arange(len(three), device=logits.device).view(3, images)
        together = [
            log_p[partners[one], partners[other]]
            for one in range(3)
            for other in range(3)
            if one != other
        ]
        return -torch.stack(together).mean(0)

    def _sources(self, count: int) -> tuple[Tensor, Tensor]:
        """`count` source images and their labels; none is drawn twice, if there are enough."""
        assert self.given is not None
        assert self.answers is not None
        known = len(self.given)
        drawn = torch.randperm(known, generator=self.sources).repeat(-(-count // known))[:count]
        device = self.class_means.device
        return self.given[drawn].to(device), self.answers[drawn].to(device)

    def _complete(self) -> None:
        super()._complete()
        if self.given is not None and self.warm_up:
            self._warm()

    @torch.enable_grad()
    def _warm(self) -> None:
        """Learn from source images before the stream; the result becomes the source model."""
        assert self.teacher is not None
        batches = list(self._warm_up_batches())
        rates = [group["lr"] for group in self.optimizer.param_groups]
        for number, images in enumerate(batches, 1):
            for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * number / len(batches)
            said = self.ask(images)
            loss = symmetric_cross_entropy(said, self.teacher.logits(images, self)).mean()
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.teacher.follow(self.model)
        self.optimizer.zero_grad()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def _warm_up_batches(self) -> Iterator[Tensor]:
        assert self.given is not None
        left = self.warm_up
        while left >= 1:
            order = torch.randperm(len(self.given), generator=self.sources)[:left]
            for part in torch.split(order, self.warm_up_batch):
                yield self.given[part].to(self.class_means.device)
            left -= len(order)

    @torch.no_grad()
    def _means(self, layer: nn.Linear, known: Tensor | None) -> Tensor:
        """The class means: those given, those of the source images, or the rows of the head."""
        if known is not None:
            if known.shape != layer.weight.shape:
                raise InputError(
                    f"expected class_means of shape {list(layer.weight.shape)}, as the last linear"
                    f" layer has, got {list(known.shape)}"
                )
            return known.to(layer.weight)
        if self.given is None:
            return layer.weight.detach().clone()
        assert self.answers is not None
        found = []
        for images in torch.split(self.given, self.warm_up_batch):
            with own(self.norms.layers), heads.features(layer) as seen:
                self.logits(images)
            found.append(heads.only(seen, len(images)))
        members = nn.functional.one_hot(self.answers, layer.out_features).to(layer.weight)
        counts = members.sum(0)
        if (counts == 0).any():
            missing = int((counts == 0).nonzero()[0])
            raise InputError(f"expected source images of every class, got none of class {missing}")
        return members.T.to(found[0]) @ torch.cat(found) / counts[:, None]

    @property
    def passes(self) -> Passes:
        """Passes of the image, of its view, of the teacher, and of as many source images."""
        forward, backward = super().passes
        replayed = self.schedule.steps * bool(self.replay)
        return Passes(forward + replayed, backward + replayed * (not self.still))


def _projector(layer: nn.Linear, generator: torch.Generator) -> nn.Sequential:
    """Two linear layers with torch's usual initialisation, but drawn from our generator."""
    widths = layer.in_features, WIDTH
    linear: list[nn.Linear] = [
        skip_init(nn.Linear, width, WIDTH)  # type: ignore[no-untyped-call]
        for width in widths
    ]
    with torch.no_grad():
        for part in linear:
            bound = part.in_features**-0.5
            for parameter in part.parameters():
                drawn = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_(bound * (2 * drawn - 1))
    return nn.Sequential(linear[0], nn.ReLU(), linear[1]).to(layer.weight)


def _check_source(images: Tensor | None, labels: Tensor | None) -> None:
    if (images is None) != (labels is None):
        raise InputError("expected source_images and source_labels together, got only one of them")
    if images is not None and labels is not None and len(images) != len(labels):
        raise InputError(
            f"expected a label for each source image, got {len(labels)} for {len(images)} images"
        )


def _source(model: nn.Module, images: Tensor) -> Tensor:
    if not len(images):
        raise InputError("expected at least one source image, got none")
    reference = next(model.parameters(), images)
    return check_images(images.to(reference.device), model)
