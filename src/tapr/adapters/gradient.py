"""Views -> model -> objective -> step -> logits: the loop of every gradient method, once."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tapr.adapters.base import Adapter
from tapr.adapters.cost import Passes
from tapr.adapters.running import Kind, Running
from tapr.adapters.schedule import Budget, Schedule
from tapr.augment import Views
from tapr.errors import InputError, ModelError
from tapr.models.layout import matching
from tapr.models.norm import BatchNorms, Statistics
from tapr.models.scope import Scope, everything
from tapr.models.state import all_finite, restore, snapshot
from tapr.objectives import Objective
from tapr.types import Loss, Prediction


class GradientAdapter(Adapter):
    """Moves the parameters in scope down the gradient of an objective that needs no labels.

    `optimizing` makes the optimiser from the parameters: `partial(torch.optim.Adam, lr=1e-3)`.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizing: Callable[[Iterable[nn.Parameter]], Optimizer],
        *,
        views: Views | None = None,
        scope: Scope | None = None,
        statistics: Statistics | None = None,
        schedule: Schedule | None = None,
        max_grad_norm: float | None = None,
        compile: bool = False,
        amp: bool = False,
        **options: Any,
    ) -> None:
        schedule = schedule or Schedule()
        schedule.check()
        limit = 1 if max_grad_norm is None else max_grad_norm
        if not isinstance(limit, int | float) or not limit > 0:
            raise InputError(f"expected a gradient norm limit above 0, got {max_grad_norm!r}")
        statistics = statistics or Statistics("batch")
        if statistics.use == "blend" and schedule.predict == "before":
            raise InputError(
                "expected predict='after' with statistics='blend', got 'before': that predicts from"
                " an adapting forward, which takes the batch's own statistics"
            )
        super().__init__(model, scope=scope or everything(model), **options)
        self.schedule, self.budget = schedule, Budget(schedule.budget)
        self.running = Running(self.model, compile=compile, amp=amp)
        self.objective = objective
        self.views = views
        self.norms = BatchNorms(self.model, statistics)
        self.max_grad_norm = max_grad_norm
        self.moving = {name: p for name, p in self.named_parameters() if p.requires_grad}
        self.optimizer = optimizing(self.moving.values())
        self.together = 1 + (views.count if views else 0)
        images = schedule.steps * self.together
        fed = schedule.steps * self.norms.feeds_apart(self.together)
        forward = images + fed + (schedule.predict == "after")
        self.passes = Passes(forward, 0 if self.still else images)

    @property
    def still(self) -> bool:
        """Is the gradient off? With learning rate 0 a step moves nothing and needs no backward."""
        return all(group["lr"] == 0 for group in self.optimizer.param_groups)

    def adapt(self, images: Tensor) -> Prediction:
        """Take the schedule's steps on the images' views, then predict the images."""
        self.budget.begin(len(images))
        if self.schedule.episodic:
            self.put(self._beginning())
            self.mark()
        taken, refused = 0, 0
        views, loss, logits = None, None, None
        for step in range(self.schedule.steps):
            if not self.budget.fits():
                break
            with self.budget.step():
                if step:
                    self.mark()
                if views is None or self.schedule.redraw:
                    views = self._draw(images)
                view_logits, loss, trouble = self._step(views, len(images))
            if logits is None and self.schedule.predict == "before":
                logits = view_logits[0].detach()
            if trouble:
                self.refuse(trouble)
                refused += 1
                break  # the same batch would only do it again
            taken += int(loss.keep.any())
        if logits is None:
            logits = self._fresh(images)
            if taken and logits.softmax(1).isnan().any():
                self._back_to_the_start()
                taken, refused = 0, refused + 1
                logits = self._fresh(images)
        return _summarise(logits, loss, taken, refused)

    def live(self) -> dict[str, Tensor]:
        """Parameters, buffers, and the optimiser's memory."""
        memory = {
            f"optimizer.{name}.{key}": value
            for name, parameter in self.moving.items()
            for key, value in self.optimizer.state.get(parameter, {}).items()
            if isinstance(value, Tensor)
        }
        return {**self.moving, **dict(self.named_buffers()), **memory}

    def held(self) -> int:
        """Bytes of the copies, and of the optimiser's memory before its first step, too."""
        group = self.optimizer.param_groups[0]
        memories = 2 if "betas" in group else int(bool(group.get("momentum")))
        memory = memories * sum(p.nbytes for p in self.moving.values())
        further = self.schedule.steps > 1  # a copy of the last good step
        return (2 + further) * (super().held() // 2 + memory)

    def put(self, saved: Mapping[str, Tensor]) -> None:
        """Put back parameters and buffers, and make the optimiser's memory what it was."""
        restore(super().live(), saved)
        self.optimizer.state.clear()
        for entry, value in saved.items():
            if entry.startswith("optimizer."):
                name, _, key = entry.removeprefix("optimizer.").rpartition(".")
                parameter = self.moving[name]
                self.optimizer.state[parameter][key] = self._memory(parameter, key, value)

    def _memory(self, parameter: nn.Parameter, key: str, value: Tensor) -> Tensor:
        """The optimiser's memory of a parameter, where it wants it."""
        if key == "step":  # Adam's count; unless fused, it counts on the CPU
            fused = self.optimizer.param_groups[0].get("fused")
            return value.to(parameter.device if fused else "cpu", copy=True)
        return torch.empty_like(parameter, requires_grad=False).copy_(value)

    def _apply(self, *arguments: Any, **options: Any) -> Self:
        """`to`, `double`, `cuda` ...: the optimiser's memory goes where the parameters go."""
        super()._apply(*arguments, **options)  # type: ignore[no-untyped-call]
        self.put(snapshot(self.live()))
        return self

    def _beginning(self) -> dict[str, Tensor]:
        """The state from which the batch at hand sets out."""
        if not self.schedule.episodic:
            return self._start
        assert self._source is not None
        return {**self._source, "refusals": self.refusals.clone()}  # these are counted on

    def _back_to_the_start(self) -> None:
        """Every step left finite parameters, but together they ruined the prediction."""
        self._good = self._beginning()
        self.refuse("the prediction after the steps is not finite")

    def _fresh(self, images: Tensor) -> Tensor:
        """Logits of the images themselves, by the model as it is now."""
        with self.budget.prediction(), torch.no_grad(), self.norms.predicting():
            return self._run("predicting", images)

    def _draw(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            views = self.views(images, self.generator) if self.views else images
        return matching(self.model, views, self.layout)  # once for all steps

    def _forward(self, views: Tensor, images: int) -> Tensor:
        """Logits of all views from one forward, [V, B, K]."""
        count = len(views) // images
        if self.norms.feeds_apart(count):
            with torch.no_grad(), self.norms.feeding():
                self._run("feeding", views[:images])
        with self.norms.adapting(count):
            return self._run("adapting", views).view(count, images, -1)

    def _run(self, kind: Kind, images: Tensor) -> Tensor:
        with self.running(kind, images.device):
            logits = self.logits(images)
        return logits.to(images.dtype) if self.running.amp else logits

    def _step(self, views: Tensor, images: int) -> tuple[Tensor, Loss, str | None]:
        """Judge the views and step, or say why not."""
        with torch.set_grad_enabled(not self.still):
            view_logits = self._forward(views, images)
            loss: Loss = self.objective(view_logits)
            return view_logits, loss, self._follow(loss)

    def _follow(self, loss: Loss) -> str | None:
        """Step down the mean loss of the images kept, or say why not."""
        if not loss.keep.any():
            return None
        total = _mean(loss.per_image, loss.keep)
        if not (total.requires_grad or self.still):
            raise ModelError(
                "expected the loss to depend on the parameters in scope, and it does not; does the"
                " model's forward run under no_grad, or detach?"
            )
        if not torch.isfinite(total):
            return "the loss is not finite"
        trouble = None if self.still else self._descend(total)
        if not trouble and not all_finite([*self.moving.values(), *self.norms.buffers()]):
            return "a parameter or a statistic is not finite after it"
        return trouble

    def _descend(self, total: Tensor) -> str | None:
        """Step down the gradient of a finite loss, or say why not."""
        self.optimizer.zero_grad()
        scale = self.running.loss_scale(total.device)
        (total * scale).backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad for p in self.moving.values() if p.grad is not None]
        if scale != 1:
            torch._foreach_div_(gradients, scale)
        norm = nn.utils.get_total_norm(gradients)
        if not torch.isfinite(norm):
            self.optimizer.zero_grad()
            return "the gradient is not finite"
        if self.max_grad_norm is not None:
            nn.utils.clip_grads_with_norm_(self.moving.values(), self.max_grad_norm, norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return None


def _mean(values: Tensor, keep: Tensor) -> Tensor:
    return torch.where(keep, values, 0).sum() / keep.sum()


def _summarise(logits: Tensor, loss: Loss | None, taken: int, refused: int) -> Prediction:
    kept = int(loss.keep.sum()) if loss else 0
    if loss is None or not kept:
        return Prediction(logits, None, {}, taken, 0, refused)
    terms = {name: _mean(term, loss.keep).item() for name, term in loss.terms.items()}
    return Prediction(logits, _mean(loss.per_image, loss.keep).item(), terms, taken, kept, refused)
