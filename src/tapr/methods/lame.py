"""LAME: the answers of neighbours in feature space are pulled together; nothing is trained."""

from typing import Any

from torch import nn

from tapr.adapters import Laplacian, Loop, Needs


class LAME(Loop):
    """Makes the answers of near images of a batch agree. Moves no parameter; 1 forward an image.

    Boudiaf et al., CVPR 2022. Batch norm uses the source's statistics. The answer is the logarithm
    of LAME's probabilities, so that their softmax is what the authors return. `released` is the
    kernel of the authors' code, a Gaussian whose rows are not normalised: its pull grows with the
    batch, and on large mixed batches all images become one class. The default, 5 neighbours, is our
    choice, and safe there. LAME is at its best where neighbours in the stream are of one class. A
    batch of fewer than `neighbours` + 1 images has fewer neighbours.
    """

    title = "LAME"
    only_own = True
    paper = "Boudiaf et al., CVPR 2022"
    needs = Needs(features="whose distances say which images are neighbours")
    presets = {"released": {"kernel": "rbf"}}

    def __init__(
        self,
        model: nn.Module,
        *,
        kernel: str = "knn",  # or "rbf", "linear"
        neighbours: int = 5,
        symmetric: bool = False,  # is the mean of the kernel and its transpose taken?
        weight: float = 1.0,  # of the kernel against what the model says: the paper's lambda
        rounds: int = 100,  # at the most
        **common: Any,
    ) -> None:
        correction = Laplacian(
            neighbours, rounds, kernel=kernel, symmetric=symmetric, weight=weight
        )
        super().__init__(model, correction=correction, **common)
