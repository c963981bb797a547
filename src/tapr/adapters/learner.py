"""The loop with the options, as names and numbers, of every method that learns."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Self

import torch
from torch import nn
from torch.optim import Optimizer

from tapr.adapters import syncing
from tapr.adapters.checks import check_options
from tapr.adapters.loop import Loop
from tapr.adapters.schedule import Predict, Schedule
from tapr.errors import ModelError
from tapr.models.scope import SCOPES, Scope
from tapr.models.statistics import Feed, Statistics
from tapr.registry import Registry
from tapr.types import Loss, Outputs

Optimizing = Callable[[Iterable[nn.Parameter]], Optimizer]


class Learner(Loop):
    """Moves the parameters in scope down the gradient of an objective that needs no labels.

    `optimizer` is a name, or makes the optimiser from the parameters (`partial(SAM, rho=0.05)`) and
    then has its own learning rate; `scope` is a name, or a predicate of (name, parameter). Other
    parts (`views`, `teacher`, `memory`, `keepers`, `correction`) are passed on to `Loop`.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Callable[[Outputs], Loss] | None = None,
        *,
        optimizer: str | Optimizing = "sgd",
        lr: float = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        scope: str | Scope = "all",
        steps: int = 1,
        episodic: bool = False,
        predict: Predict = "after",
        redraw: bool = False,
        max_grad_norm: float | None = None,
        statistics: str = "batch",
        statistics_momentum: float = 0.1,
        prior: float = 16.0,
        share: float | Sequence[float] = 0.5,
        window: float = 500.0,
        feed: Feed = "views",
        budget: float | None = None,
        **common: Any,
    ) -> None:
        check_options(
            {
                **{"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "steps": steps},
                **{"episodic": episodic, "redraw": redraw},
            }
        )
        if not isinstance(model, nn.Module):
            raise ModelError(f"expected a torch.nn.Module, got {type(model).__name__}")
        model = syncing.unwrapped(model)  # parameters are chosen by their names in this model
        super().__init__(
            model,
            objective,
            optimizing=_optimizing(optimizer, lr, momentum, weight_decay),
            scope=scope if callable(scope) else SCOPES[scope](model),
            statistics=Statistics(statistics, feed, statistics_momentum, prior, share, window),
            schedule=Schedule(steps, episodic, predict, redraw, budget),
            max_grad_norm=max_grad_norm,
            **common,
        )

    def _apply(self, *arguments: Any, **options: Any) -> Self:
        super()._apply(*arguments, **options)
        made = vars(self).get("optimizer")
        if isinstance(made, torch.optim.SGD):
            for group in made.param_groups:
                group["fused"] = _may_fuse(group["params"])
        return self


def _optimizing(
    optimizer: str | Optimizing, lr: float, momentum: float, weight_decay: float
) -> Optimizing:
    if callable(optimizer):
        return optimizer
    common: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay}
    betas = float(momentum), 0.999
    optimizers: Registry[Optimizing] = Registry(
        "optimizer",
        {
            "sgd": partial(_sgd, momentum=momentum, **common),
            "nesterov": partial(_sgd, momentum=momentum, nesterov=True, **common),
            "adam": partial(torch.optim.Adam, betas=betas, fused=True, **common),
            "adamw": partial(torch.optim.AdamW, betas=betas, fused=True, **common),
        },
    )
    return optimizers[optimizer]


def _sgd(parameters: Iterable[nn.Parameter], **options: Any) -> Optimizer:
    listed = list(parameters)
    return torch.optim.SGD(listed, fused=_may_fuse(listed), **options)


def _may_fuse(parameters: Iterable[nn.Parameter]) -> bool:
    """Whether fused SGD is safe; on a CPU torch 2.13's is wrong for 16-bit values."""
    return not any(p.device.type == "cpu" and p.dtype.itemsize < 4 for p in parameters)
