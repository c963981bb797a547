"""A teacher: a second copy of the model that follows the first slowly, or stays as it was."""

from typing import Any

import torch
from torch import Tensor, nn

from tapr.adapters.needs import Needs, check_model, copied, own_memory
from tapr.errors import InputError
from tapr.models.statistics import Statistics


class Teacher(nn.Module):
    """A copy of the model whose values move towards the student's after every step.

    `momentum` is the share of its values that the teacher keeps: 1 freezes it, as an anchor. The
    parameters follow the student, and if asked for, the buffers too. `statistics` says which
    batch-norm statistics its forwards use.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        momentum: float = 0.999,
        buffers: bool = False,
        statistics: Statistics | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(momentum, int | float) or not 0 <= momentum <= 1:
            raise InputError(f"expected a teacher's momentum from 0 to 1, got {momentum!r}")
        check_model(model, Needs())
        self.model = copied(model).requires_grad_(False).eval()
        own_memory(self.model)
        self.momentum, self.buffers_too = momentum, buffers
        self.norms = (statistics or Statistics("source")).policy(self.model)

    @torch.no_grad()
    def logits(self, images: Tensor, adapter: Any, *, feeding: bool = False) -> Tensor:
        """The teacher's logits of the images, [B, K]; if `feeding`, its statistics are updated."""
        self.model.eval()
        self.norms.begin()
        with self.norms.feeding() if feeding else self.norms.predicting():
            logits: Tensor = adapter.logits(images, self.model)
        return logits

    @torch.no_grad()
    def follow(self, student: nn.Module) -> None:
        """Move towards the student."""
        if self.momentum == 1:
            return
        own, theirs = dict(self.model.named_parameters()), dict(student.named_parameters())
        for name, parameter in own.items():
            parameter.lerp_(theirs[name], 1 - self.momentum)
        if not self.buffers_too:
            return
        values = dict(student.named_buffers())
        for name, buffer in self.model.named_buffers():
            if buffer.is_floating_point():
                buffer.lerp_(values[name], 1 - self.momentum)
            else:
                buffer.copy_(values[name])
