"""EATA: ETA, and a penalty that keeps weights that are important for source images near them."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tapr.adapters import Learner, Needs
from tapr.adapters.checks import check_options
from tapr.adapters.schedule import Predict
from tapr.errors import InputError, ModelError
from tapr.methods import source_images as given
from tapr.objectives import ReliableNovel, for_classes
from tapr.types import Loss, Outputs

FISHER = {10: 1.0, 100: 1.0, 1000: 2000.0}  # the published weight, by number of classes


class EATA(Learner):
    """ETA with a pull towards important source weights. Moves norm scales; 1 forward, 1 backward.

    Niu et al., ICML 2022. ETA's loss plus `fisher` times the sum of F (w - source w)^2. None takes
    the published `fisher` of the nearest number of classes: 1 for 10 and 100, 2,000 for 1,000. F is
    the squared gradient of the cross-entropy to the model's own labels on `source_images`, averaged
    over their batches: at most `source_count` images, `source_batch` at a time. The gradient is
    that of a batch, not of an image, so that the scale of F depends on the size of a batch.

    `source_images` is a tensor, batches of images, or the name of a data set, from whose
    `source_split` they are taken. The authors took clean validation images, the benchmark of ROID's
    authors training images. ETA lists the other differences between paper and code.
    """

    title = "EATA"
    only_own = True
    paper = "Niu et al., ICML 2022"
    needs = Needs(source_images="for the weights' importance (Fisher); 'eta' does without")
    presets = {"released": {"scope": "batch_norm", "optimizer": "sgd", "lr": 2.5e-4}}
    importance: Tensor  # F of all moving weights, one after another

    def __init__(
        self,
        model: nn.Module,
        *,
        source_images: Any = None,
        source_split: str = "train",
        source_count: int = 2000,
        source_batch: int = 64,
        fisher: float | None = None,
        threshold: float = 0.4,
        margin: float | None = None,
        objective: str = "entropy",
        optimizer: Any = "adam",
        lr: float = 1e-3,
        scope: Any = "norm",
        predict: Predict = "before",
        **common: Any,
    ) -> None:
        check_options({"threshold": threshold, "margin": margin, "fisher": fisher})
        check_options({"source_count": source_count, "source_batch": source_batch})
        if source_images is None:
            raise InputError(f"expected source_images {self.needs.source_images}; got none")
        batches = given.batches(
            source_images, model, count=source_count, size=source_batch, split=source_split
        )
        super().__init__(model, optimizer=optimizer, lr=lr, scope=scope, predict=predict, **common)
        self.entropy, self.fisher = ReliableNovel(threshold, margin, objective), fisher
        self.size = batches[0].shape[1:]
        self.register_buffer("importance", self._importance(batches))

    def objective(self, outputs: Outputs) -> Loss:
        """ETA's loss, and the penalty."""
        if outputs.images.shape[1:] != self.size:
            raise InputError(
                f"expected images of {list(self.size)}, as the source images of the Fisher are, got"
                f" {list(outputs.images.shape[1:])}"
            )
        loss: Loss = self.entropy(outputs)
        strength = for_classes(FISHER, outputs.classes, self.fisher)
        away = torch.cat(
            [(p - self.source.tensors[name].to(p)).flatten() for name, p in self.moving.items()]
        )
        pull = strength * (self.importance * away.square()).sum()
        return loss._replace(total=loss.total + pull)

    def _importance(self, batches: list[Tensor]) -> Tensor:
        """The mean over the batches of the squared gradient, under the adapting statistics."""
        before, weights = self.capture(), list(self.moving.values())
        total = torch.zeros(sum(p.numel() for p in weights)).to(weights[0])
        self.model.eval()
        for images in batches:
            self.norms.begin()
            with torch.enable_grad():
                logits = _explained(self.ask, images)
                loss = functional.cross_entropy(logits, logits.argmax(1))
                gradients = torch.autograd.grad(loss, weights, materialize_grads=True)
            total += torch.cat([gradient.flatten() for gradient in gradients]).square()
        self.put_back(before)
        return total / len(batches)


def _explained(ask: Any, images: Tensor) -> Tensor:
    try:
        logits: Tensor = ask(images)
    except (RuntimeError, ModelError) as error:
        raise InputError(
            f"the model cannot take source images of {list(images.shape[1:])}: {error}"
        ) from error
    return logits
