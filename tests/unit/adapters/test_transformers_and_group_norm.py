"""A ViT as timm builds it and a ResNet with GroupNorm adapt like anything else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from typer.testing import CliRunner

import tapr
from tapr.cli import app

SIZE, CLASSES = 16, 5


class PatchEmbed(nn.Module):
    """A convolution whose stride is its kernel: one token for each patch."""

    def __init__(self, patch: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, patch, patch)

    def forward(self, images: Tensor) -> Tensor:
        return self.proj(images).flatten(2).transpose(1, 2)  # type: ignore[no-any-return]


class Attention(nn.Module):
    """As in timm: queries, keys and values from one linear layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, count, width = tokens.shape
        split = self.qkv(tokens).reshape(batch, count, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.proj(mixed.transpose(1, 2).reshape(batch, count, width))  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width, eps=1e-6), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attn(self.norm1(tokens))
        return tokens + self.mlp(self.norm2(tokens))  # type: ignore[no-any-return]


class VisionTransformer(nn.Module):
    """Patches, a class token, learned places, blocks; the head reads the class token."""

    def __init__(self, patch: int = 4, width: int = 24, heads: int = 3, depth: int = 2) -> None:
        super().__init__()
        self.patch_embed = PatchEmbed(patch, width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + (SIZE // patch) ** 2, width) * 0.1)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, CLASSES)
        self.pretrained_cfg = {
            "input_size": (3, SIZE, SIZE),
            "crop_pct": 0.9,
            "interpolation": "bicubic",
            "mean": (0.5, 0.5, 0.5),
            "std": (0.5, 0.5, 0.5),
        }

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patch_embed(images)
        tokens = torch.cat([self.cls_token.expand(len(patches), -1, -1), patches], 1)
        return self.head(self.norm(self.blocks(tokens + self.pos_embed))[:, 0])  # type: ignore[no-any-return]


class GroupBlock(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.GroupNorm(4, channels), nn.GroupNorm(4, channels)
        self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        hidden = self.norm1(self.conv1(features)).relu()
        return (self.norm2(self.conv2(hidden)) + self.shortcut(features)).relu()  # type: ignore[no-any-return]


def group_norm_resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1, bias=False),
        nn.GroupNorm(4, 8),
        nn.ReLU(),
        GroupBlock(8, 8, 1),
        GroupBlock(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    "vit": VisionTransformer,
    "group-norm-resnet": group_norm_resnet,
}
NORMS = {"vit": "5 LayerNorm", "group-norm-resnet": "5 GroupNorm"}


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(name: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MODELS[name]().eval()


@pytest.fixture
def images() -> Tensor:
    return torch.rand(6, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("method", ["tent", "pest"])
def test_the_check_finds_nothing_in_the_way(
    name: str, model: nn.Module, images: Tensor, method: str
) -> None:
    report = tapr.check(model, images, method)
    assert report.ok, str(report)
    assert f"normalisation layers: {NORMS[name]}" in str(report)
    assert f"logits for {CLASSES} classes" in str(report)


@pytest.mark.parametrize("method", ["tent", "pest"])
def test_it_adapts_by_the_methods_own_options(
    model: nn.Module, images: Tensor, method: str, tmp_path: Path
) -> None:
    before = {key: value.clone() for key, value in model.state_dict().items()}
    adapter = tapr.adapt(model, method)
    losses = [adapter.predict(images).loss for _ in range(12)]
    assert all(loss is not None for loss in losses)
    assert losses[-1] < losses[0]  # type: ignore[operator]
    assert adapter.refused == 0
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    adapter.save(tmp_path / "state")
    assert torch.equal(tapr.load(tmp_path / "state", model)(images), adapter(images))
    adapter.reset()
    assert torch.equal(adapter(images), tapr.adapt(model, method)(images))


def test_tent_moves_the_normalisation_and_pest_everything(model: nn.Module, images: Tensor) -> None:
    source = dict(model.named_parameters())
    for method, expected in (
        ("tent", {n for n in source if "norm" in n or n.startswith("1.")}),
        ("pest", set(source)),
    ):
        adapter = tapr.adapt(model, method)
        adapter(images)
        moved = {n for n, p in adapter.model.named_parameters() if not torch.equal(p, source[n])}
        assert moved == expected


def test_the_command_reads_timms_config_and_adapts_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    for number in range(8):
        pixels = random.integers(0, 256, (20 + number, 30, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.jpg")
    module: Any = type(pytest)("vit_of_mine")
    module.net = VisionTransformer
    monkeypatch.setitem(__import__("sys").modules, "vit_of_mine", module)
    command = ["adapt", str(tmp_path), "--model", "vit_of_mine:net", "-o", str(tmp_path / "p.csv")]
    done = CliRunner().invoke(app, [*command, "--batch-size", "4"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "0.9 of the shorter side, 3 x 16 x 16, bicubic; normalised by mean 0.5" in done.output
    assert "8 images predicted" in done.output


def test_images_that_lie_channels_last_do_not_crash_group_norm(model: nn.Module) -> None:
    images = torch.rand(6, SIZE, SIZE, 3, generator=torch.Generator().manual_seed(1))
    adapter = tapr.adapt(model, "tent")
    last = adapter(images.permute(0, 3, 1, 2))
    plain = tapr.adapt(model, "tent")(images.permute(0, 3, 1, 2).contiguous())
    torch.testing.assert_close(last, plain)
    assert adapter.predict(images.permute(0, 3, 1, 2)).steps == 1
    kernels_too = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert tapr.check(kernels_too, images.permute(0, 3, 1, 2), "tent").ok
