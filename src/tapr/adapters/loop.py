"""The loop that methods share: views, model, objective, step, keepers, votes, correction."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tapr.adapters.adapter import Adapter
from tapr.adapters.checks import check_options, explained, is_number
from tapr.adapters.corrections import Correction
from tapr.adapters.cost import Passes
from tapr.adapters.guard import NotFinite
from tapr.adapters.keepers import Keeper
from tapr.adapters.memory import Lesson, Memory
from tapr.adapters.running import Kind, Running
from tapr.adapters.schedule import Budget, Schedule
from tapr.adapters.shadow import Said, said
from tapr.adapters.teacher import Teacher
from tapr.adapters.votes import Votes, Weights
from tapr.augment import Views
from tapr.errors import InputError, ModelError
from tapr.models import head as heads
from tapr.models.layout import matching
from tapr.models.scope import Scope
from tapr.models.state import all_finite
from tapr.models.statistics import Statistics
from tapr.types import Loss, Outputs, Prediction, mean_of


class Loop(Adapter):
    """The loop that methods share; methods differ in its parts. Without steps it only predicts.

    The objective is passed as a part, or is a method `objective(outputs)` of the subclass.
    `optimizing` makes the optimiser from the parameters that move.
    """

    objective: Callable[[Outputs], Loss]
    classes = 0  # the number of the model's classes; known after the first adapting forward

    def __init__(
        self,
        model: nn.Module,
        objective: Callable[[Outputs], Loss] | None = None,
        optimizing: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        scope: Scope | None = None,
        views: Views | None = None,
        statistics: Statistics | None = None,
        schedule: Schedule | None = None,
        teacher: Teacher | None = None,
        memory: Memory | None = None,
        keepers: Sequence[Keeper] = (),
        correction: Correction | None = None,
        max_grad_norm: float | None = None,
        *,
        votes: str | Sequence[str] | Votes = "original",
        weights: Weights = "equal",
        head: str | None = None,
        compile: bool = False,
        amp: bool = False,
        **common: Any,
    ) -> None:
        check_options({"compile": compile, "amp": amp, **common})
        schedule = schedule or Schedule(steps=0)
        schedule.check()
        limit = 1 if max_grad_norm is None else max_grad_norm
        if not is_number(limit) or not limit > 0:
            raise InputError(f"expected a gradient norm limit above 0, got {max_grad_norm!r}")
        if head is not None and not isinstance(head, str):
            raise InputError(f"expected head to name a linear layer of the model, got {head!r}")
        super().__init__(model, scope, **common)
        self.schedule, self.budget = schedule, Budget(schedule.budget)
        self.norms = (statistics or Statistics("source")).policy(self.model)
        self.norms.keep_scales()
        self.running = Running(self.model, compile=compile, amp=amp)
        self.votes, self.views = Votes.of(votes, weights), views
        self.teacher, self.memory, self.correction = teacher, memory, correction
        alone = views is None or getattr(views, "by_image", False)
        self.only_own = self.only_own and alone and memory is None
        self.keepers = nn.ModuleList(keepers)
        self.optimizing, self.max_grad_norm = optimizing, max_grad_norm
        if objective is not None:
            self.objective = objective
        named = head is not None
        wanted = self.needs.features or named or (correction is not None and correction.features)
        self.head = heads.linear(self.model, head) if wanted else None  # its name
        self._timings: dict[str, float] = {}
        self._said: Tensor | None = None  # the voters' logits for the present batch, [V, B, K]
        self._check_parts()
        if self._own_witness:
            self.guard.dismiss_shadow()

    def adapt(self, images: Tensor) -> Prediction:
        """Learn from the images and predict them: all steps of the method, in order."""
        self._begin(images)
        answer = self._answer(images) if self._answers_first else None
        steps, loss = 0, None
        for lesson in self._lessons(images, answer):
            views = None
            for _ in range(self.schedule.steps):
                if self.guard.refused or not self._fits(images):
                    break  # a refused step would fail again; or there is no time left
                said: list[tuple[Outputs, Loss]] = []
                with self.budget.step(), self.guard.step(self, first=loss is None):
                    if views is None or self.schedule.redraw:
                        views = self._draw(lesson.images)
                    self._step(views, lesson, said)
                    steps += self._keep(said[-1][1])
                if answer is None and self.schedule.predict == "before" and said:
                    answer = self._corrected(said[0][0])
                loss = said[-1][1] if said else loss
        if answer is None:
            answer = self._answer(images)
            if steps and answer.softmax(1).isnan().any():
                steps, answer = 0, self._answer_from_the_start(images)
        return self._prediction(answer, loss, steps)

    def _step(self, views: Tensor, lesson: Lesson, said: list[tuple[Outputs, Loss]]) -> None:
        """Compute the loss on the views and step; an optimiser may need the gradient repeatedly."""
        teacher = self.teach(lesson.images)

        def closure() -> Tensor:
            self.optimizer.zero_grad()
            backward = self._counts[1]
            outputs = self._outputs(views, lesson, teacher)
            loss = self.objective(outputs)
            said.append((outputs, loss))
            if loss.keep.any():
                self._backward(loss.total, lesson.images)
            else:
                self._counts[1] = backward  # there is no backward pass
            return loss.total

        with self._timed("learning"):
            if self.still:
                with torch.no_grad():
                    closure()
            else:
                self.optimizer.step(closure)  # type: ignore[arg-type]
                self.optimizer.zero_grad()
        if not all_finite([*self.moving.values(), *self.norms.stored()]):
            raise NotFinite("a parameter or a statistic is not finite after the step")

    def _keep(self, loss: Loss) -> bool:
        """Run the teacher's update and the keepers after a step, if one was taken."""
        taken = bool(loss.keep.any())
        if taken:
            if self.teacher:  # it follows the step itself, before keepers change the weights
                self.teacher.follow(self.model)
            for keeper in self.keepers:
                keeper(self, loss)
        return taken

    def _answer(self, images: Tensor) -> Tensor:
        """The logits [B, K] of the images, by the model as it is now."""
        voters = self.votes.count
        with self._timed("predicting"), self.budget.prediction(), torch.no_grad():
            teacher = self.consult(images) if self.correction is not None else None
            if teacher is not None and not self._asks_student:
                return self._corrected(Outputs(teacher[None], images, teacher=teacher))
            views = self.votes.views(images)
            with self.norms.predicting(voters):
                logits, features = self._forward("predicting", views, voters)
                if self.norms.forgets(self.votes.mixed(logits)):  # the stream has changed
                    self._forget()
                    logits, features = self._forward("predicting", views, voters)
            voted = self._voted(logits, images)[None]
            return self._corrected(Outputs(voted, images, features, self._layer, teacher))

    def _forget(self) -> None:
        """Forget the votes and return to the source's parameters: both were for other images."""
        self.votes.forget()
        if self.schedule.steps:
            for name, parameter in self.moving.items():
                parameter.copy_(self.source.tensors[name].to(parameter))
            self.optimizer.state.clear()

    def _voted(self, logits: Tensor, images: Tensor) -> Tensor:
        """The answer [B, K] of voters [V, B, K]; the model's own if the memory is not finite."""
        voted: Tensor = self.votes(logits, self.norms.shift())
        if all_finite([*self.norms.buffers(), *self.votes.memory()]):
            self._said = logits
            return voted
        why = "the memory of the stream is not finite"
        self.guard.roll_back(self, why, to=self.guard.start)
        return self._run("predicting", images)

    def as_voters(self, logits: Tensor) -> Said | None:
        """The predictions of the voters, if the source model was one of them."""
        shift = self.norms.shift() if self._own_witness else None
        if shift is None or self._said is None or self._said.shape[1:] != logits.shape:
            return None
        first = [shift.view, *(v for v in range(len(self._said)) if v != shift.view)]
        return said(self._said[first], logits, shift)

    def teach(self, images: Tensor) -> Tensor | None:
        """The teacher's logits of the images, [B, K]; None without a teacher."""
        return None if self.teacher is None else self.teacher.logits(images, self)

    def consult(self, images: Tensor) -> Tensor | None:
        """The teacher's logits of images to predict; as `teach`, unless a method overrides it."""
        return self.teach(images)

    def ask(self, images: Tensor) -> Tensor:
        """The model's logits [B, K] of further images, for use in an objective.

        The forward uses the statistics of an adapting forward, and has a gradient where gradients
        are on. A single image has no variance in a layer without pixels; beside a copy of itself it
        has the variance 0, so that we run it twice.
        """
        with self.norms.adapting(1):
            try:
                return self._run("adapting", images)
            except InputError:
                if len(images) != 1:
                    raise
                return self._run("adapting", images.repeat(2, 1, 1, 1))[:1]

    # The functions that the loop above calls, in the order of the calls.

    def _begin(self, images: Tensor) -> None:
        self._timings, self._said = {}, None
        self.budget.begin(self.spread.images if self.spread else len(images))
        if self.spread and self.running.compiles:
            raise InputError("expected compile=False where processes share a batch, got True")
        if self.schedule.episodic:
            self.restart()
            self.guard.mark(self)
        self.norms.begin()
        if not self.schedule.steps and self.norms.moves:
            with self.guard.step(self), torch.no_grad(), self.norms.feeding():
                self._run("feeding", images)
                if not all_finite(self.norms.stored()):
                    raise NotFinite("the statistics of this batch are not finite")

    def _fits(self, images: Tensor) -> bool:
        """Whether there is time for another step, in every process."""
        fits = self.budget.fits()
        if self.budget.seconds is None or self.spread is None:
            return fits
        return self.spread.group.all(fits, images.device)

    @property
    def _answers_first(self) -> bool:
        """Whether the answer is computed before any step, in its own forward."""
        separate = self.memory is not None or not self.votes.alone
        return self.schedule.predict == "before" and separate and self.schedule.steps > 0

    def _lessons(self, images: Tensor, answer: Tensor | None) -> Iterable[Lesson]:
        if self.memory is None:
            return [Lesson(images)]
        lessons: Iterator[Lesson] = self.memory(images, answer)
        return lessons

    def _draw(self, images: Tensor) -> Tensor:
        with self._timed("views"), torch.no_grad():
            views = self._viewed(images) if self.views else images
            return matching(self.model, views, self.layout)  # once for all steps

    def _viewed(self, images: Tensor) -> Tensor:
        """Views of images; with `only_own` in a shared batch, those of this process only."""
        assert self.views is not None
        if self.spread and self.only_own:
            part = (self.spread.images, self.spread.here)
            views: Tensor = self.views(images, self.generator, part)
        else:
            views = self.views(images, self.generator)
        return views

    def _outputs(self, views: Tensor, lesson: Lesson, teacher: Tensor | None) -> Outputs:
        """The model's outputs for all views, from one forward."""
        images = len(lesson.images)
        count = len(views) // images if images else self._learning
        if self.norms.feeds_apart(count):
            with torch.no_grad(), self.norms.feeding():
                self._run("feeding", views[:images])
        with self.norms.adapting(count):
            logits, features = self._forward("adapting", views, count)
        self.classes = logits.shape[-1]
        return Outputs(logits, lesson.images, features, self._layer, teacher, lesson.weights)

    def _forward(self, kind: Kind, views: Tensor, count: int) -> tuple[Tensor, Tensor | None]:
        """Logits [V, B, K], and features [V, B, D] if the method uses them."""
        if self._layer is None:
            return _by_view(self._run(kind, views, count), count), None
        with heads.features(self._layer) as seen:
            logits = self._run(kind, views, count)
        features = heads.only(seen, len(logits))
        features = features.to(views.dtype) if self.running.amp else features
        return _by_view(logits, count), _by_view(features, count)

    def _run(self, kind: Kind, images: Tensor, views: int = 1) -> Tensor:
        together = views if self.norms.by_view or self.only_own else 1
        with self.running(kind, images.device):
            logits = self.logits(images, views=together)
        return logits.to(images.dtype) if self.running.amp else logits

    def _backward(self, total: Tensor, images: Tensor) -> None:
        """Compute the gradient and limit its norm; raise `NotFinite` if a number is not finite."""
        if not (total.requires_grad or self.still):
            raise ModelError(
                "expected the loss to depend on the parameters in scope, and it does not; does the"
                " model's forward run under no_grad, or detach?"
            )
        if not torch.isfinite(total):
            raise NotFinite("the loss is not finite")
        if self.still:
            return
        scale = self.running.loss_scale(total.device)
        with explained(images, self.model):
            (total * scale).backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad for p in self.moving.values() if p.grad is not None]
        if self.spread:
            self.spread.group.mean_(gradients)
        if scale != 1:
            torch._foreach_div_(gradients, scale)
        norm = nn.utils.get_total_norm(gradients)
        if not torch.isfinite(norm):
            raise NotFinite("the gradient is not finite")
        if self.max_grad_norm is not None:
            nn.utils.clip_grads_with_norm_(self.moving.values(), self.max_grad_norm, norm)

    def _corrected(self, outputs: Outputs) -> Tensor:
        """The answer: the model's logits of the original images, corrected."""
        original = outputs._replace(logits=outputs.logits[:1].detach())
        if outputs.features is not None:
            original = original._replace(features=outputs.features[:1].detach())
        if self.correction is None:
            return original.logits[0]
        with torch.no_grad():
            corrected: Tensor = self.correction(original)
        return corrected

    def _answer_from_the_start(self, images: Tensor) -> Tensor:
        """Roll back the batch and predict: its steps were finite, but their prediction is not."""
        self.guard.roll_back(
            self, "the prediction after the steps is not finite", to=self.guard.start
        )
        if self.schedule.episodic:
            self.restart()
        return self._answer(images)

    def _prediction(self, logits: Tensor, loss: Loss | None, steps: int) -> Prediction:
        timings = dict(self._timings)
        if loss is None or not loss.keep.any():
            return Prediction(logits, steps=steps, timings=timings)
        return Prediction(
            logits,
            mean_of(loss.per_image, loss.keep).item(),
            {name: mean_of(term, loss.keep).item() for name, term in loss.terms.items()},
            steps,
            kept=int(loss.keep.sum()),
            timings=timings,
        )

    # Properties that follow from the parts.

    @cached_property
    def moving(self) -> dict[str, nn.Parameter]:
        """The parameters that learn, of the model and of parts, by name."""
        return {name: p for name, p in self.named_parameters() if p.requires_grad}

    @cached_property
    def optimizer(self) -> Optimizer:
        """The optimiser of all parameters that learn."""
        assert self.optimizing is not None
        try:
            made = self.optimizing(self.moving.values())
        except Exception as error:
            raise InputError(f"the optimiser cannot be made: {error!r}") from error
        if not isinstance(made, Optimizer):
            raise InputError(f"expected optimizer to make a torch optimiser, got {made!r}")
        return made

    @property
    def still(self) -> bool:
        """Whether the learning rate is 0: then a step changes nothing and needs no backward."""
        return all(group["lr"] == 0 for group in self.optimizer.param_groups)

    @property
    def together(self) -> int:
        """The most images in one forward, for each image predicted."""
        return max(self._learning, self.votes.count)

    @property
    def copies(self) -> int:
        """How many copies of a batch's views are in memory while they are made."""
        return self.views.copies if self.views and self.schedule.steps else 1

    @property
    def _learning(self) -> int:
        """Images in one adapting forward, for each image predicted."""
        return self.views.together if self.views and self.schedule.steps else 1

    @property
    def passes(self) -> Passes:
        """The cost of the method, at most: images through the model, for each image predicted."""
        steps = self.schedule.steps
        asked = steps * getattr(self.optimizer, "gradients", 1) if steps else 0
        images = asked * self._learning
        fed = asked * self.norms.feeds_apart(self._learning) if steps else self.norms.moves
        answers = self._answers_first or not steps or self.schedule.predict == "after"
        taught = self.teacher is not None and steps + bool(self.correction and answers)
        forward = images + fed + answers * self.votes.count * self._asks_student + taught
        return Passes(int(forward), images if steps and not self.still else 0)

    @property
    def policy(self) -> str:
        """In words, which batch-norm statistics are used to predict."""
        return self.norms.words(self._learning)

    def held(self) -> int:
        """The bytes of the copies and of the optimiser's memory, also before its first step."""
        if not self.schedule.steps:
            return super().held()
        group = self.optimizer.param_groups[0]
        memories = 2 if "betas" in group else int(bool(group.get("momentum")))
        memory = memories * sum(p.nbytes for p in self.moving.values())
        further = self.schedule.steps > 1  # a copy of the last good step
        return (2 + further) * (super().held() // 2 + memory)

    @cached_property
    def _own_witness(self) -> bool:
        """Whether one voter is the source model: a view of share 1, and nothing learns."""
        shift = None if self.schedule.steps else self.norms.shift()
        return shift is not None and self.votes.voters[shift.view] == "original"

    @property
    def _asks_student(self) -> bool:
        """Whether the answer needs the model's own logits."""
        return self.correction is None or self.correction.student

    @property
    def _layer(self) -> nn.Linear | None:
        layer = None if self.head is None else self.model.get_submodule(self.head)
        assert layer is None or isinstance(layer, nn.Linear)
        return layer

    def _complete(self) -> None:
        if self.schedule.steps:
            assert self.optimizer is not None

    def _check_parts(self) -> None:
        if self.schedule.steps and self.optimizing is None:
            raise InputError("expected an optimiser for the steps, got none")
        if self.schedule.steps and not hasattr(self, "objective"):
            raise InputError(
                f"expected {type(self).__name__} to have an objective, as a part or as a method"
                " objective(outputs), and it has none"
            )
        if self.schedule.predict == "before" and self.schedule.steps:
            if self.norms.predicts_apart and not self._answers_first:
                use = self.norms.options.use
                raise InputError(
                    f"expected predict='after' with statistics={use!r}, got 'before': that predicts"
                    " from an adapting forward, which takes the batch's own statistics"
                )
        elif self.memory is not None:
            raise InputError("expected predict='before' with a memory, which takes in the answer")

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - began
            self._timings[what] = self._timings.get(what, 0.0) + spent


def _by_view(rows: Tensor, count: int) -> Tensor:
    """Reshape rows of `count` views, one after another, to [V, B, ...]."""
    return rows.reshape(count, -1, *rows.shape[1:])
