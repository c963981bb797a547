"""What every augmentation owes.

What depends on an op is asked of every op alone, on uint8 images: floats become levels before any
op sees them. What depends on how draws are made and put together is asked of the composed
augmentations, for every type of images.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tapr.augment import (
    AUGMENTATIONS,
    Augmentation,
    AugMix,
    Crop,
    Identity,
    Katana,
    MoCo,
    RandAugment,
    ResizedCrop,
    Views,
)
from tapr.augment.grouped import NAMES

Make = Callable[[], Augmentation]

COMPOSED: dict[str, Make] = {
    "identity": Identity,
    "randaugment": RandAugment,
    "randaugment-released": RandAugment.released,
    "randaugment-centred": lambda: RandAugment(n=3, m=20, scale="centred"),
    "randaugment-strong": lambda: RandAugment(n=2, m=30, ops="released"),
    "augmix": AugMix,
    "augmix-released": AugMix.released,
    "augmix-grey": lambda: AugMix(severity=5, width=2, grey=True),
    "crop": Crop,
    "resized-crop": ResizedCrop,
    "katana": Katana,
    "moco": MoCo,
    "katana-batchwide": lambda: Katana(batchwide=True),
    "katana-reflect": lambda: Katana(padding="reflect", blur=False, noise=False),
    "augmix-centred": lambda: AugMix(severity=10, width=2, scale="centred", alpha=0.3),
}
SINGLE: dict[str, Make] = {
    op: lambda op=op: RandAugment(m=9, ops=[op])  # type: ignore[misc]
    for op in NAMES
}
KINDS = {"uint8": torch.uint8, "float32": torch.float32, "float64": torch.float64}

composed = pytest.mark.parametrize("make", COMPOSED.values(), ids=COMPOSED.keys())
augmented = pytest.mark.parametrize(
    "make", [*COMPOSED.values(), *SINGLE.values()], ids=[*COMPOSED, *SINGLE]
)
augmented_of_kind = pytest.mark.parametrize(
    ("make", "dtype"),
    [
        *(
            pytest.param(make, dtype, id=f"{name}-{kind}")
            for name, make in COMPOSED.items()
            for kind, dtype in KINDS.items()
        ),
        *(pytest.param(make, torch.uint8, id=f"{op}-uint8") for op, make in SINGLE.items()),
    ],
)


def batch(
    dtype: torch.dtype = torch.float32, count: int = 9, shape: tuple[int, int, int] = (3, 17, 23)
) -> Tensor:
    levels = torch.randint(0, 256, (count, *shape), generator=torch.Generator().manual_seed(5))
    return levels.to(torch.uint8) if dtype == torch.uint8 else levels.to(dtype) / 255


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(params: Any, place: int) -> Any:
    """The parameters of one image."""
    if params is None:
        return None
    return type(params)(*(part[place : place + 1] for part in params))


@augmented_of_kind
def test_batch_equals_images_one_by_one(make: Make, dtype: torch.dtype) -> None:
    for channels in (1, 3):
        images, augmentation = batch(dtype, shape=(channels, 17, 23)), make()
        params = augmentation.sample(images.shape, seeded())
        together = augmentation.transform(images, params)
        for place in range(len(images)):
            one = slice(place, place + 1)
            alone = augmentation.transform(images[one], rows(params, place))
            assert torch.equal(together[one], alone), (channels, place)


@augmented_of_kind
def test_shape_dtype_and_range_are_kept(make: Make, dtype: torch.dtype) -> None:
    images = batch(dtype)
    changed = make()(images, seeded())
    assert (changed.shape, changed.dtype, changed.device) == (images.shape, dtype, images.device)
    assert changed.min() >= 0
    assert changed.max() <= (255 if dtype == torch.uint8 else 1)


@augmented_of_kind
def test_input_is_not_written_nor_returned(make: Make, dtype: torch.dtype) -> None:
    images = batch(dtype)
    before = images.clone()
    changed = make()(images, seeded())
    changed.zero_()
    assert torch.equal(images, before)


@composed
def test_same_seed_same_views(make: Make) -> None:
    assert torch.equal(make()(batch(), seeded(3)), make()(batch(), seeded(3)))


@composed
def test_stored_parameters_replay(make: Make, tmp_path: Any) -> None:
    images, augmentation = batch(), make()
    params = augmentation.sample(images.shape, seeded())
    expected = augmentation.transform(images, params)
    assert torch.equal(augmentation.transform(images, params), expected)
    if params is None:
        return
    torch.save(params._asdict(), tmp_path / "params.pt")
    stored = torch.load(tmp_path / "params.pt", weights_only=True)
    assert torch.equal(augmentation.transform(images, type(params)(**stored)), expected)
    text = json.dumps({name: part.tolist() for name, part in params._asdict().items()})
    read = {
        name: torch.tensor(part, dtype=getattr(params, name).dtype)
        for name, part in json.loads(text).items()
    }
    assert torch.equal(augmentation.transform(images, type(params)(**read)), expected)


@composed
def test_only_the_generator_is_advanced(make: Make) -> None:
    generator, before = seeded(), torch.random.get_rng_state()
    start = generator.get_state()
    augmentation = make()
    augmentation(batch(), generator)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(generator.get_state(), start) == isinstance(augmentation, Identity)


@composed
@pytest.mark.parametrize("dtype", KINDS.values(), ids=KINDS.keys())
def test_empty_batch(make: Make, dtype: torch.dtype) -> None:
    images = batch(dtype)[:0]
    changed = make()(images, seeded())
    assert (changed.shape, changed.dtype) == (images.shape, dtype)


@augmented
def test_any_height_and_width(make: Make) -> None:
    for shape in ((3, 1, 1), (1, 1, 9), (3, 2, 300)):
        assert make()(batch(shape=shape), seeded()).shape[1:] == shape


@composed
def test_memory_layout_does_not_matter(make: Make) -> None:
    images = batch()
    last = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(make()(last, seeded()), make()(images, seeded()))


@composed
def test_uint8_and_float_images_agree(make: Make) -> None:
    whole = make()(batch(torch.uint8), seeded()).double()
    part = make()(batch(torch.float64), seeded())
    assert (whole - 255 * part).abs().max() <= 0.5 + 1e-3


@augmented
def test_captions_name_every_image(make: Make) -> None:
    augmentation = make()
    captions = augmentation.describe(augmentation.sample((7, 3, 8, 8), seeded()))
    assert len(captions) in (0, 7)
    assert all(captions)


@composed
def test_views_put_the_original_images_first(make: Make) -> None:
    images = batch()
    views = Views(make(), count=2)(images, seeded()).reshape(3, *images.shape)
    assert torch.equal(views[0], images)


@composed
def test_views_are_ordinary_tensors_that_a_model_can_learn_on(
    make: Make,
) -> None:
    changed = make()(batch(), seeded())
    assert not changed.is_inference()
    weight = torch.ones(1, requires_grad=True)
    (changed * weight).sum().backward()
    assert weight.grad is not None


def test_views_carry_no_gradient() -> None:
    for augmentation in (RandAugment(), AugMix()):
        assert not augmentation(batch().requires_grad_(), seeded()).requires_grad


def test_views_can_be_made_in_inference_mode() -> None:
    with torch.inference_mode():
        inside = AugMix()(batch(), seeded())
    assert torch.equal(inside, AugMix()(batch(), seeded()))


def test_every_registered_augmentation_is_in_the_table() -> None:
    made = {type(make()) for make in COMPOSED.values()}
    assert {type(make()) for make in AUGMENTATIONS.values()} <= made
