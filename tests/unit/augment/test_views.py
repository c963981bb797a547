from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from tapr.augment import Augmentation, Identity, RandAugment, Views
from tapr.errors import InputError


class Shout(Augmentation):
    """A user's own augmentation, with parameters of its own kind."""

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> dict[str, list[int]]:
        return {"shift": torch.randint(9, (shape[0],), generator=generator).tolist()}

    def transform(self, images: Tensor, params: dict[str, list[int]]) -> Tensor:
        return images + torch.tensor(params["shift"]).view(-1, 1, 1, 1)


def test_views_come_after_the_images_view_by_view() -> None:
    images = torch.zeros(50, 3, 2, 2)
    views = Views(Shout(), count=3)(images, torch.Generator().manual_seed(0))
    assert views.shape == (200, 3, 2, 2)
    originals, *others = views.reshape(4, 50, -1).unbind(0)
    assert torch.equal(originals, images.reshape(50, -1))
    assert not torch.equal(others[0], others[1])
    assert all(len(view.unique()) > 1 for view in others)


def test_a_users_own_augmentation_needs_no_captions() -> None:
    assert Shout().describe({"shift": [1]}) == []


def test_no_views_are_the_images() -> None:
    images = torch.rand(2, 3, 4, 4)
    assert torch.equal(Views(Identity(), count=0)(images, torch.Generator()), images)


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(InputError, match="expected count of views >= 0, got -1"):
        Views(RandAugment(), count=-1)


def test_views_print_what_they_do() -> None:
    text = repr(Views(RandAugment(m=3)))
    assert "count=2" in text
    assert "m=3" in text
