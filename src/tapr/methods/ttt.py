"""TTT: before it predicts a test image, the model learns to recognise the image's rotation."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tapr.adapters import Learner, Needs, Passes
from tapr.adapters.checks import check_options
from tapr.adapters.running import Kind
from tapr.adapters.schedule import Predict
from tapr.errors import InputError
from tapr.types import Loss, Outputs


class TTT(Learner):
    """Learns rotations of test images, then predicts. Moves all; 33 forwards, 32 backwards.

    Sun et al., ICML 2020. The model was trained with a second head for rotations, on features that
    both heads share: besides `model(images)` it has `model.rotation(images)`, logits [B, 4]. For
    each image, `copies` random crops, perhaps flipped, each rotated by a random quarter turn, drive
    a step of plain SGD; then the image itself is predicted. Images that the head knows to be
    upright with a probability above `upright` drive no step (1: all of them do).

    The defaults are the online form: one step, which is kept. `slow` is the other form: ten steps
    with new crops each, from the source model for every batch. The paper's batches have one image;
    for larger ones we take the mean, as TTAB does.
    """

    title = "TTT"
    paper = "Sun et al., ICML 2020"
    needs = Needs(
        rotation_head="trained with the model to tell rotations by 0, 90, 180 and 270 degrees"
    )
    presets = {"slow": {"steps": 10, "episodic": True}}

    def __init__(
        self,
        model: nn.Module,
        *,
        copies: int = 32,
        upright: float = 1.0,
        lr: float = 1e-3,
        momentum: float = 0.0,
        statistics: str = "running",
        redraw: bool = True,
        predict: Predict = "after",
        **common: Any,
    ) -> None:
        check_options({"copies": copies, "upright": upright})
        super().__init__(
            model,
            views=Rotated(copies),
            lr=lr,
            momentum=momentum,
            statistics=statistics,
            redraw=redraw,
            predict=predict,
            **common,
        )
        self.upright = upright

    def objective(self, outputs: Outputs) -> Loss:
        """The cross-entropy of the rotation head, over the copies of each image."""
        assert isinstance(self.views, Rotated)
        said = outputs.logits  # [copies, B, 4], of the rotation head
        labels = self.views.labels.to(said.device).view(said.shape[:2])
        value = functional.cross_entropy(said.flatten(0, 1), labels.flatten(), reduction="none")
        value = value.view(said.shape[:2]).mean(0)
        keep = torch.ones_like(value, dtype=torch.bool)
        if self.upright < 1:
            with torch.no_grad():
                upright = self.ask(outputs.images).softmax(1)[:, 0]
            keep = upright <= self.upright
        return Loss.mean(value, keep, {"rotation": value})

    @property
    def passes(self) -> Passes:
        """Passes, with one more forward of every image per step, for `upright`."""
        once = super().passes
        return Passes(once.forward + self.schedule.steps * (self.upright < 1), once.backward)

    def _run(self, kind: Kind, images: Tensor, views: int = 1) -> Tensor:
        """Run the model; an adapting forward runs its rotation head."""
        if kind != "adapting":
            return super()._run(kind, images, views)
        with self.running(kind, images.device):
            logits = self.logits(images, RotationHead(self.model))
        return logits.to(images.dtype) if self.running.amp else logits


class RotationHead(nn.Module):
    """A model that returns the logits of its rotation head."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """The logits of the four rotations, [B, 4]."""
        logits: Tensor = self.model.rotation(images)  # type: ignore[operator]
        return logits


class Rotated(nn.Module):
    """Random crops of each image, perhaps flipped, each turned by a random quarter turn.

    The crops are as large as the image, padded by an eighth of its side with black. `labels` are
    the turns of the last call, one for each of its images.
    """

    def __init__(self, copies: int) -> None:
        super().__init__()
        self.together = copies  # images in a forward, for each image
        self.labels = torch.zeros(0, dtype=torch.long)

    def forward(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Turn [B, C, H, W] into [copies * B, C, H, W]."""
        height, width = images.shape[2:]
        if height != width:
            raise InputError(
                f"expected square images, which can be turned, got {height} x {width} pixels"
            )
        repeated = images.repeat(self.together, 1, 1, 1)
        count, border = len(repeated), height // 8
        places = torch.randint(2 * border + 1, (2, count), generator=generator)
        flipped = torch.rand(count, generator=generator) < 0.5
        self.labels = torch.randint(4, (count,), generator=generator)
        padded = functional.pad(repeated, (border,) * 4)
        inside = torch.arange(height)
        rows, columns = ((place[:, None] + inside).to(images.device) for place in places)
        crops = padded.gather(
            2, rows[:, None, :, None].expand(-1, images.shape[1], -1, padded.shape[3])
        )
        crops = crops.gather(3, columns[:, None, None].expand(-1, images.shape[1], height, -1))
        crops = torch.where(flipped.to(images.device)[:, None, None, None], crops.flip(3), crops)
        return turned(crops, self.labels)


def turned(images: Tensor, quarters: Tensor) -> Tensor:
    """Each image turned by its number of quarter turns, [B]."""
    result = images.clone()
    for turns in (1, 2, 3):
        chosen = (quarters == turns).nonzero()[:, 0].to(images.device)
        result[chosen] = torch.rot90(images[chosen], turns, (2, 3))
    return result
