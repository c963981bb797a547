"""T3A: the classifier's rows are replaced by prototypes of the surest test features."""

from typing import Any

from torch import nn

from tapr.adapters import Loop, Needs, Prototypes


class T3A(Loop):
    """Classifies by the surest features seen of each class. Moves prototypes; 1 forward an image.

    Iwasawa & Matsuo, NeurIPS 2021. The rows of the last linear layer are the first supports; a row
    counts for the class that the layer itself gives it, as in the authors' code. The answer is the
    inner product of the features with each class's prototype, without a bias: good for the ranking
    of classes, badly calibrated as probabilities. The paper chooses the number of `supports` of a
    class among 1, 5, 20, 50, 100 and all (None; memory then grows with the stream). The released
    code's "all", -1, drops the least sure support of every class at each batch: it is kept here
    under that number.
    """

    title = "T3A"
    only_own = True
    paper = "Iwasawa & Matsuo, NeurIPS 2021"
    needs = Needs(features="from which the prototypes are made")

    def __init__(self, model: nn.Module, *, supports: int | None = 20, **common: Any) -> None:
        super().__init__(model, correction=Prototypes(supports), **common)
