"""ROID: self-training with certain and diverse images, kept near the source."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from tapr.adapters import PRIORS, Ensemble, Learner, Passes
from tapr.adapters.certain import KATANA, Certain, CertainOptions
from tapr.adapters.checks import check_options
from tapr.adapters.schedule import Predict
from tapr.augment import Augmentation
from tapr.methods import augmentations
from tapr.types import Loss, Outputs


class ROID(Learner):
    """Certain, diverse images teach themselves. Moves norm scales; 2 forwards, 2 backwards.

    Marsden, Doebler & Yang, WACV 2024. Images are weighted by how unlike the average prediction and
    how certain they are; those less diverse than the mean are left out. The loss is their soft
    likelihood ratio and their agreement with an augmented view, which has its own forward. After a
    step every weight moves to its source value by `pull`. The answer, made before the step, is
    corrected by the batch's own class frequencies (`prior_correction`: "probabilities", "logits" or
    "none").

    Where paper and code differ: `released` multiplies logits, not probabilities, by the
    frequencies, so that the answer depends on the logits' offset; draws one augmentation for the
    whole batch; and divides a short last batch by the configured batch size (`full_batch`: the
    largest so far). In both, the agreement also teaches the original images (with `detach=True` it
    does not). A batch of one, where the code divides 0 by 0, has the weight 1.
    """

    title = "ROID"
    paper = "Marsden et al., WACV 2024"
    presets = {
        "released": {
            **{"prior_correction": "logits", "full_batch": True},
            "augmentation_options": {"batchwide": True},
        }
    }

    def __init__(
        self,
        model: nn.Module,
        *,
        temperature: float = 1 / 3,
        weighting: bool = True,
        agreement: bool = True,
        detach: bool = False,
        full_batch: bool = False,
        prior_correction: str = "probabilities",
        pull: float = 0.01,
        augmentation: str | Augmentation = "katana",
        augmentation_options: Mapping[str, Any] = {},
        optimizer: Any = "adam",
        lr: float = 1e-3,
        scope: Any = "norm",
        predict: Predict = "before",
        **common: Any,
    ) -> None:
        check_options({"temperature": temperature, "pull": pull, "weighting": weighting})
        check_options({"agreement": agreement, "detach": detach, "full_batch": full_batch})
        options = CertainOptions(temperature, weighting, agreement, detach, full_batch)
        super().__init__(
            model,
            optimizer=optimizer,
            lr=lr,
            scope=scope,
            predict=predict,
            keepers=[Ensemble(pull)],
            correction=PRIORS[prior_correction](),
            **common,
        )
        more = KATANA if augmentation == "katana" else {}
        made = augmentations.make(augmentation, given={**more, **augmentation_options})
        self.certain = Certain(made, options)

    def objective(self, outputs: Outputs) -> Loss:
        """The likelihood ratio and the agreement of the images that count."""
        loss: Loss = self.certain(outputs, self.ask, self.generator)
        return loss

    @property
    def passes(self) -> Passes:
        """Passes with a second forward and backward, of the augmented images that count."""
        once, more = super().passes, self.schedule.steps * self.certain.options.agreement
        return Passes(once.forward + more, once.backward + more * (not self.still))
