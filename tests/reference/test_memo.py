"""MEMO against plain PyTorch, in float64; its views against PIL."""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.reference.common import Darker, close
from torch import Tensor, nn
from torch.nn import functional

import tapr
from tapr import rng
from tapr.augment import AugMix, Crop, Identity, ResizedCrop
from tapr.augment.grouped import NAMES
from tapr.methods.memo import marginal_entropy

SIZES = (7, 64, 1, 2)


@pytest.fixture
def net(make_model: Callable[..., nn.Sequential]) -> Any:
    model: Any = make_model().double()
    model[1].running_mean.fill_(0.1)
    return model


def batches(*sizes: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(4)
    return [torch.rand(size, 3, 9, 8, generator=generator).double() for size in sizes]


class PriorBN(nn.Module):
    """(N x source + test) / (N + 1) of the mean and of the unbiased variance."""

    def __init__(self, layer: Any, prior: float) -> None:
        super().__init__()
        self.weight, self.bias, self.eps, self.prior = layer.weight, layer.bias, layer.eps, prior
        self.mean, self.variance = layer.running_mean, layer.running_var

    def forward(self, x: Tensor) -> Tensor:
        mean = (self.prior * self.mean + x.mean((0, 2, 3))) / (self.prior + 1)
        variance = (self.prior * self.variance + x.var((0, 2, 3))) / (self.prior + 1)
        shape = (1, -1, 1, 1)
        normal = (x - mean.view(shape)) / (variance.view(shape) + self.eps).sqrt()
        return torch.as_tensor(normal * self.weight.view(shape) + self.bias.view(shape))


OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "paper": lambda p: torch.optim.SGD(p, lr=5e-3),
    "imagenet": lambda p: torch.optim.SGD(p, lr=2.5e-4),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-5, weight_decay=0.01),
    "benchmark": lambda p: torch.optim.SGD(p, lr=5e-3, momentum=0.9, nesterov=True),
}


def written_out(net: Any, stream: list[Tensor], preset: str, leak: bool) -> list[Tensor]:
    """Load the source weights, step on the views of one image, predict it; image after image."""
    model = deepcopy(net)
    model[1] = PriorBN(model[1], 9.0 if preset == "benchmark" else 16.0)
    source, generator = deepcopy(model.state_dict()), rng.generator(0, "views")
    optimizer, answers = OPTIMIZERS[preset](model.parameters()), []
    for images in stream:
        views = Darker()(images.repeat(4, 1, 1, 1), generator).view(4, *images.shape)
        said = []
        for number, image in enumerate(images):
            model.load_state_dict(source)
            if not leak:
                optimizer = OPTIMIZERS[preset](model.parameters())
            mean = model(views[:, number]).softmax(1).mean(0)
            optimizer.zero_grad()
            (-(mean * mean.log()).sum()).backward()
            optimizer.step()
            with torch.no_grad():
                said.append(model(image[None])[0])
        answers.append(torch.stack(said))
    return answers


@pytest.mark.parametrize("vectorised", [False, True])
@pytest.mark.parametrize("preset", ["paper", "imagenet", "adamw", "benchmark"])
def test_memo(net: Any, preset: str, vectorised: bool) -> None:
    options: dict[str, Any] = {"preset": preset, "views": 4, "augmentation": Darker()}
    if vectorised and preset in ("adamw", "benchmark"):
        with pytest.raises(tapr.TaprError, match="expected plain SGD"):
            tapr.adapt(net, "memo", **options, vectorised=True)
        return
    adapter = tapr.adapt(net, "memo", **options, vectorised=vectorised)
    stream = batches(*SIZES)
    for images, answer in zip(
        stream, written_out(net, stream, preset, preset == "adamw"), strict=True
    ):
        prediction = adapter.predict(images)
        close(prediction.logits, answer)
        assert prediction.steps == len(images)
        assert (prediction.forward, prediction.backward) == (5 * len(images), 4 * len(images))
    for ours, source in zip(adapter.model.parameters(), net.parameters(), strict=True):
        assert torch.equal(ours, source)  # nothing stays


def test_memo_without_the_leak_starts_each_image_anew(net: Any) -> None:
    options: dict[str, Any] = {"preset": "adamw", "views": 4, "augmentation": Darker()}
    stream = batches(7)
    close(
        tapr.adapt(net, "memo", **options, leak=False)(stream[0]),
        written_out(net, stream, "adamw", leak=False)[0],
    )


def test_one_view_of_one_image_has_its_own_entropy(net: Any) -> None:
    (images,) = batches(7)
    p = net(images).softmax(1)
    close(marginal_entropy(net(images)[None]), -(p * p.log()).sum(1))
    adapter = tapr.adapt(net, "memo", views=1, augmentation=Identity(), statistics="source")
    p = net(images[-1:]).detach().softmax(1)
    loss = adapter.predict(images).loss
    assert loss is not None
    assert math.isclose(loss, float(-(p * p.log()).sum()), rel_tol=1e-9)


def test_a_refused_image_leaves_the_others_alone(net: Any) -> None:
    """Each image starts from the source model: what one does, the next does not feel."""
    (images,) = batches(5)

    class Broken(Darker):
        def transform(self, images: Tensor, params: Tensor) -> Tensor:
            views = super().transform(images, params)
            views[2::5] = float("nan")
            return views

    for vectorised in (False, True):
        broken = tapr.adapt(net, "memo", views=4, augmentation=Broken(), vectorised=vectorised)
        whole = tapr.adapt(net, "memo", views=4, augmentation=Darker())
        prediction, expected = broken.predict(images), whole(images)
        others = [0, 1, 3, 4]
        close(prediction.logits[others], expected[others])
        assert (prediction.refused, prediction.steps) == (1, 4)
        assert prediction.logits.isfinite().all()


def test_the_views_leave_grey_behind_as_pil_does() -> None:
    generator = torch.Generator().manual_seed(0)
    levels = torch.randint(0, 256, (6, 3, 20, 24), generator=generator).to(torch.uint8)
    augmentation = AugMix(severity=10, ops=["rotate"], depth=1, grey=True)
    params = augmentation.sample(levels.shape, generator)._replace(keep=torch.zeros(6).double())
    ours = augmentation.transform(levels, params)
    assert NAMES[int(params.op[0, 0, 0])] == "rotate"
    for place, image in enumerate(levels):
        picture = Image.fromarray(image.permute(1, 2, 0).numpy())
        degrees = float(params.value[place, 0, 0])
        turned = picture.rotate(degrees, Image.Resampling.BILINEAR, fillcolor=(128, 128, 128))
        theirs = torch.from_numpy(np.array(turned)).permute(2, 0, 1)
        assert (ours[place].int() - theirs.int()).abs().max() <= 1
        corner = ours[place, :, 0, 0].tolist()
        assert (corner == [128, 128, 128]) == (abs(degrees) >= 1)


def test_a_crop_is_a_window_of_the_padded_image() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(40, 3, 12, 10, generator=generator)
    params = Crop().sample(images.shape, generator)
    ours = Crop().transform(images, params)
    padded = functional.pad(images, (4, 4, 4, 4))
    seen = set()
    for place in range(40):
        left, top = (int(v) + 4 for v in params.box[place, :2])
        window = padded[place, :, top : top + 12, left : left + 10]
        assert torch.equal(ours[place], window.flip(2) if params.flip[place] else window)
        seen.add((left, top))
    assert len(seen) > 20
    assert 8 < params.flip.sum() < 32


def test_a_resized_crop_is_its_box_enlarged() -> None:
    generator = torch.Generator().manual_seed(0)
    levels = torch.randint(0, 256, (30, 3, 24, 20), generator=generator).to(torch.uint8)
    params = ResizedCrop().sample(levels.shape, generator)
    ours = ResizedCrop().transform(levels, params).double()
    for place in range(30):
        left, top, width, height = (int(v) for v in params.box[place])
        assert 0.05 < width * height / 480 <= 1
        box = levels[place : place + 1, :, top : top + height, left : left + width].double()
        large = functional.interpolate(box, (24, 20), mode="bilinear")[0]
        large = large.flip(2) if params.flip[place] else large
        assert (ours[place] - large).abs().max() <= 0.5 + 1e-4  # rounded to a level
