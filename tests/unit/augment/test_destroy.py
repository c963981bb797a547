"""What destroys an object keeps what it says it keeps."""

import pytest
import torch

from tapr.augment.destroy import DESTROYERS, Occlusion, Patches, Pixels


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_patches_are_shuffled_whole_and_each_image_in_its_own_way() -> None:
    images = torch.arange(3 * 64.0).view(1, 3, 8, 8).repeat(2, 1, 1, 1)
    changed = Patches()(images, generator())
    assert torch.equal(changed.flatten(1).sort().values, images.flatten(1).sort().values)
    assert not torch.equal(changed[0], changed[1])
    blocks = changed.unfold(2, 2, 2).unfold(3, 2, 2)  # [B, C, 4, 4, 2, 2]
    within = blocks - blocks[..., :1, :1]
    assert torch.equal(within[0, 0, 0, 0], torch.tensor([[0.0, 1.0], [8.0, 9.0]]))
    assert (within == within[:1, :1, :1, :1]).all()
    order = torch.arange(16).repeat(2, 1)
    assert torch.equal(Patches().transform(images, order), images)


@pytest.mark.parametrize("shape", [(2, 3, 10, 9), (2, 3, 3, 2), (0, 3, 8, 8), (1, 1, 7, 7)])
@pytest.mark.parametrize("name", DESTROYERS)
def test_any_size_stays_what_it_is(name: str, shape: tuple[int, ...]) -> None:
    images = torch.rand(shape)
    before = images.clone()
    changed = DESTROYERS[name]()(images, generator())
    assert changed.shape == images.shape
    assert torch.equal(images, before)
    if changed.numel():
        assert changed.min() >= -1e-6
        assert changed.max() <= 1 + 1e-6


def test_pixels_are_shuffled_alike_in_all_images() -> None:
    images = torch.arange(36.0).view(1, 1, 6, 6).repeat(2, 3, 1, 1)
    changed = Pixels()(images, generator())
    assert (changed == changed[:1, :1]).all()
    assert torch.equal(changed[0, 0].flatten().sort().values, images[0, 0].flatten())


def test_the_middle_is_hidden_by_the_mean() -> None:
    images = torch.rand(2, 3, 8, 8)
    changed = Occlusion()(images, generator())
    mean = images.mean((2, 3), keepdim=True)
    assert (changed[:, :, 2:6, 2:6] == mean).all()
    hidden = torch.zeros(8, 8, dtype=torch.bool)
    hidden[2:6, 2:6] = True
    assert torch.equal(changed[:, :, ~hidden], images[:, :, ~hidden])
