"""T3A: replaces the classifier's rows by prototypes of the most certain test features."""

from typing import Any

from torch import nn

from tapr.adapters import Loop, Needs, Prototypes


class T3A(Loop):
    """Classifies by the surest features seen of each class. Moves prototypes; 1 forward an image.

    Iwasawa & Matsuo, NeurIPS 2021. The rows of the last linear layer are the first supports; a row
    counts for the class that the layer itself predicts for it, as in the authors' code. The answer
    is the inner product of the features with each class's prototype, without a bias: good for
    ranking classes, badly calibrated as probabilities. The paper chooses the number of `supports`
    of a class among 1, 5, 20, 50, 100 and all (None; memory then grows with the stream). The
    released code's "all", -1, drops the least certain support of every class at each batch; -1
    does the same here.
    """

    title = "T3A"
    only_own = True
    paper = "Iwasawa & Matsuo, NeurIPS 2021"
    needs = Needs(features="from which the prototypes are made")

    def __init__(self, model: nn.Module, *, supports: int | None = 20, **common: Any) -> None:
        super().__init__(model, correction=Prototypes(supports), **common)
