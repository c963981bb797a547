import torch

from tapr.runs.recipes import recipe
from tapr.runs.train import Recipe
from tapr.runs.train_views import AUGMENTS


def test_each_data_set_has_its_own_recipe_and_what_is_given_wins() -> None:
    assert recipe("cifar10") == Recipe("cifar10")
    assert (recipe("digits").augment, recipe("digits", augment="augmix").augment) == (
        "none",
        "augmix",
    )
    assert recipe("visda", seed=3).weights == "timm:resnet50"
    assert "--weights timm:resnet50" in recipe("visda").command()
    assert "--weights" not in recipe("digits").command()


def test_weights_go_with_their_network() -> None:
    assert recipe("visda", architecture="wrn-40-2").weights is None
    assert recipe("visda", architecture="resnet-50").weights == "timm:resnet50"
    assert recipe("visda", architecture="wrn-40-2", weights="a.pth").weights == "a.pth"


def test_images_as_they_are() -> None:
    seen = []

    def model(images: torch.Tensor) -> torch.Tensor:
        seen.append(images)
        return images.mean((2, 3))

    images = torch.randint(256, (4, 8, 8, 3), dtype=torch.uint8)
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    AUGMENTS["none"](model, images, torch.zeros(4, dtype=torch.long), 0.0, generator)  # type: ignore[arg-type]
    assert torch.equal((seen[0] * 255).round().byte(), images.permute(0, 3, 1, 2))
    assert torch.equal(generator.get_state(), before)
