"""CMF: ROID, kept near the source by a Kalman filter."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from tapr.adapters import PRIORS, Filter, Learner, Passes
from tapr.adapters.certain import KATANA, Certain, CertainOptions
from tapr.adapters.checks import check_options
from tapr.adapters.schedule import Predict
from tapr.augment import Augmentation
from tapr.methods import augmentations
from tapr.types import Loss, Outputs


class CMF(Learner):
    """ROID's loss with filtered weights. Moves norm scales; 2 forwards, 2 backwards.

    Lee & Chang, ICLR 2024. The loss, the weights of images and the correction of the answer are
    ROID's; a Kalman filter replaces its ensemble of weights. Hidden weights move towards the source
    by `pull`, and then towards the adapted ones by a gain that depends on the uncertainty of the
    steps so far; the adapted weights then move towards the hidden ones by `pull`. `noise` is the
    uncertainty that a step adds; None takes the published 0.005 for 38,400 weights, in proportion.

    Paper and code differ as for ROID. The benchmark of ROID's authors does not clear the
    uncertainty at a reset, and its variants "op" and "lp" are the same. Ours is "lp", and a reset
    clears the uncertainty.
    """

    title = "CMF"
    paper = "Lee & Chang, ICLR 2024"
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
        noise: float | None = None,
        augmentation: str | Augmentation = "katana",
        augmentation_options: Mapping[str, Any] = {},
        optimizer: Any = "adam",
        lr: float = 1e-3,
        scope: Any = "norm",
        predict: Predict = "before",
        **common: Any,
    ) -> None:
        check_options({"temperature": temperature, "pull": pull, "noise": noise})
        check_options({"weighting": weighting, "agreement": agreement})
        check_options({"detach": detach, "full_batch": full_batch})
        options = CertainOptions(temperature, weighting, agreement, detach, full_batch)
        super().__init__(
            model,
            optimizer=optimizer,
            lr=lr,
            scope=scope,
            predict=predict,
            keepers=[Filter(1 - pull, noise)],
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
