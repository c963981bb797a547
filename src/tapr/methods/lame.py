"""LAME: makes the answers of neighbours in feature space agree; nothing is trained."""

from typing import Any

from torch import nn

from tapr.adapters import Laplacian, Loop, Needs


class LAME(Loop):
    """Makes the answers of near images of a batch agree. Moves no parameter; 1 forward an image.

    Boudiaf et al., CVPR 2022. Batch norm uses the source's statistics. The answer is the logarithm
    of LAME's probabilities, so that its softmax is what the authors return. `released` is the
    kernel of the authors' code, a Gaussian whose rows are not normalised: its effect grows with the
    batch, and on large mixed batches all images become one class. The default, 5 neighbours, is our
    choice, and safe there. LAME is best where neighbours in the stream are of one class. In a batch
    of fewer than `neighbours` + 1 images there are fewer neighbours.
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
        symmetric: bool = False,  # whether the kernel is averaged with its transpose
        weight: float = 1.0,  # of the kernel against the model's prediction: the paper's lambda
        rounds: int = 100,  # at most
        **common: Any,
    ) -> None:
        correction = Laplacian(
            neighbours, rounds, kernel=kernel, symmetric=symmetric, weight=weight
        )
        super().__init__(model, correction=correction, **common)
