"""Small models, images and made-up runs that many tests share."""

import signal
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from torch import Tensor, nn

from tapr import names, records
from tapr.datasets.digits import RENDERED
from tapr.records import BatchRecord, RunRecord, Shift
from tapr.runs.device import usable
from tapr.testing import small_model

# A shell starts what runs in the background with SIGINT ignored; its children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")  # the same commit gives the same cases
torch.set_num_threads(1)  # tiny tensors: a second thread only costs, and adds run-to-run noise


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="where models and images of tests are: cuda")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> torch.device:
    """The device of `--device`, which must be there: a test elsewhere would prove nothing."""
    return usable(request.config.getoption("--device"))


@pytest.fixture
def make_model(device: torch.device) -> Callable[..., nn.Sequential]:
    def made(*arguments: Any, **options: Any) -> nn.Sequential:
        return small_model(*arguments, **options).to(device)

    return made


@pytest.fixture
def model(device: torch.device) -> nn.Sequential:
    return small_model().to(device)


class Block(nn.Module):
    """Attention with one head and a small network, each behind a norm and beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 10), nn.GELU(), nn.Linear(10, width))

    def forward(self, tokens: Tensor) -> Tensor:
        queries, keys, values = self.qkv(self.norm1(tokens)).chunk(3, 2)
        attention = (queries @ keys.transpose(1, 2) / tokens.shape[2] ** 0.5).softmax(2)
        tokens = tokens + self.proj(attention @ values)
        return torch.as_tensor(tokens + self.mlp(self.norm2(tokens)))


class Transformer(nn.Module):
    """A vision transformer as timm has them, by the names of its parts, and tiny."""

    def __init__(self, blocks: int = 3, width: int = 6, classes: int = 5) -> None:
        super().__init__()
        self.patch_embed = nn.Sequential()
        self.patch_embed.add_module("proj", nn.Conv2d(3, width, 3, stride=3))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 10, width))
        self.norm_pre = nn.Identity()
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(generator=generator).mul_(0.5)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patch_embed(images).flatten(2).transpose(1, 2)
        tokens = torch.cat((self.cls_token.expand(len(patches), -1, -1), patches), 1)
        tokens = self.blocks(self.norm_pre(tokens + self.pos_embed))
        return torch.as_tensor(self.head(self.norm(tokens)[:, 0]))


class Turning(nn.Sequential):
    """The small model, with a second head on its features that tells rotations, as TTT needs."""

    def __init__(self) -> None:
        super().__init__(*small_model())
        self.turn = nn.Linear(32, 4)
        with torch.no_grad():
            for parameter in self.turn.parameters():
                parameter.normal_(generator=torch.Generator().manual_seed(3)).mul_(0.5)

    def features(self, images: Tensor) -> Tensor:
        for number in range(7):
            images = self[number](images)
        return images

    def forward(self, images: Tensor) -> Tensor:
        return torch.as_tensor(self[7](self.features(images)))

    def rotation(self, images: Tensor) -> Tensor:
        return torch.as_tensor(self.turn(self.features(images)))


@pytest.fixture
def transformer(device: torch.device) -> nn.Module:
    return Transformer().eval().to(device)


@pytest.fixture
def images(device: torch.device) -> Tensor:
    return torch.rand(8, 3, 10, 9, generator=torch.Generator().manual_seed(1)).to(device)


ACCURACY = {
    "source": 0.45,
    "norm": 0.66,
    "tent": 0.68,
    "pest-randaugment": 0.70,
    "pest-augmix": 0.71,
    "pest-control": 0.69,
}
PEST_OPTIONS = {"method": "pest", "statistics": "running", "feed": "views", "views": 2}
RECIPES: dict[str, dict[str, Any]] = {
    "source": {"method": "source"},
    "norm": {"method": "norm", "statistics": "batch"},
    "tent": {"method": "tent", "statistics": "batch", "lr": 1e-3},
    "pest-randaugment": {**PEST_OPTIONS, "augmentation": "randaugment", "lr": 1e-4},
    "pest-augmix": {**PEST_OPTIONS, "augmentation": "augmix", "lr": 1e-4},
    "pest-control": {**PEST_OPTIONS, "augmentation": "augmix", "lr": 0.0},
}
DEFAULTS: dict[str, dict[str, Any]] = {
    **{name: RECIPES[name] for name in ("source", "norm", "tent")},
    "pest": RECIPES["pest-augmix"],
}
SETTING: dict[str, Any] = {
    "data": "cifar10c",
    "split": "test",
    "images": 400,
    "protocol": "each",
    "order": None,
    "batch_size": 100,
    "model": "cifar10-small",
    "model_hash": "00",
}
TERMS = {"tent": ("entropy",), "pest": ("consistency", "entropy")}


def as_shift(name: str) -> Shift:
    """What a domain's name in a test says: "fog-5", or "clean"."""
    corruption, _, severity = name.rpartition("-")
    return Shift(name, corruption, int(severity)) if corruption else Shift(name)


def fake_run(label: str, domains: Sequence[str] = ("fog-5",), **changed: Any) -> RunRecord:
    """A made-up finished run; image i of a domain is as hard for every method.

    `changed` are facts of the run or of its setting.
    """
    shifts = [as_shift(name) for name in domains]
    recipe = changed.pop("recipe", RECIPES.get(label, {"method": label, "statistics": "batch"}))
    seed, method = changed.pop("seed", 0), recipe["method"]
    origin = changed.pop("origin", {"dataset": "cifar10", "made": "generated", "seed": 0})
    setting = {**SETTING, **{key: changed.pop(key) for key in SETTING if key in changed}}
    setting["origin"] = {key: origin[key] for key in ("dataset", "made")}
    setting["severities"] = sorted({shift.severity for shift in shifts if shift.severity})
    if setting["protocol"] != "each":
        setting["domains"] = list(domains)
    defaults = DEFAULTS.get(method, {})
    cell: dict[str, Any] = {
        "spec": "fake",
        "label": label,
        "method": method,
        "title": method,
        "options": {k: v for k, v in recipe.items() if defaults.get(k, v) != v},
        "statistics": names.statistics(recipe),
        "adapts": method != "source",
        "recipe": {"preset": "paper", "seed": seed, **recipe},
        "seed": seed,
        "device": "cpu",
        "setting": setting,
        "origin": origin,
        "domains": [vars(shift) for shift in shifts],
        "classes": ["plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"],
        **changed,
    }
    batches: list[BatchRecord] = []
    for shift in shifts:
        batches += _fake_batches(cell, shift, len(batches))
    environment = {"tapr": "0.1.0", "torch": "2.13.0", "machine": "Linux", "threads": 1}
    environment["began"] = "2026-11-15T20:00:00+00:00"
    end = {"peak_mib": 410.5, "ended": "2026-11-15T20:10:00+00:00"}
    return RunRecord(cell, environment, batches, end)


def _fake_batches(cell: dict[str, Any], shift: Shift, first: int) -> Iterator[BatchRecord]:
    domain, method = shift.name, cell["label"]
    count, size = cell["setting"]["images"], cell["setting"]["batch_size"]
    hardness = np.random.default_rng(zlib.crc32(domain.encode())).random(count)
    noise = np.random.default_rng(zlib.crc32(f"{domain}{method}{cell['seed']}".encode()))
    easier = (zlib.crc32(domain.encode()) % 40 - 20) / 100
    labels = np.arange(count) * 7 % 10
    hit = hardness + noise.normal(0, 0.1, count) < ACCURACY.get(method, 0.6) + easier
    predicted = np.where(hit, labels, (labels + 3) % 10)
    terms = TERMS.get(str(cell["recipe"]["method"]), ())
    for number, start in enumerate(range(0, count, size), first):
        part = slice(start, start + size)
        taken = len(labels[part])
        yield BatchRecord(
            number=number,
            domain=domain,
            corruption=shift.corruption,
            severity=shift.severity,
            images=np.arange(count)[part].tolist(),
            labels=labels[part].tolist(),
            predicted=predicted[part].tolist(),
            loss=0.5 if terms else None,
            terms={name: round(0.4 / (k + 1 + 0.1 * number), 4) for k, name in enumerate(terms)},
            steps=len(terms),
            kept=taken if terms else 0,
            refused=0,
            forward=taken * (1 + 3 * len(terms)),
            backward=taken * 2 * len(terms),
            seconds=round(taken * (0.001 + 0.004 * len(terms)), 6),
        )


def write_run(run: RunRecord, folder: Path) -> Path:
    """The run's file, as `tapr bench` writes it."""
    name = f"{run.shifts[0]}.{names.slug(run.label)}.seed{run.seed}.jsonl"
    lines = [records.begin(run.cell, run.environment), *map(records.batch_line, run.batches)]
    if run.end is not None:
        lines.append(records.line("end", run.end))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(lines))
    return folder / name


@pytest.fixture
def few_renderings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training set of 600 rendered digits: all 20,000 take ten seconds to draw."""
    monkeypatch.setitem(RENDERED, "train", RENDERED["train"]._replace(images=600))


@pytest.fixture(scope="session")
def make_run() -> Callable[..., RunRecord]:
    return fake_run


@pytest.fixture
def shift() -> Callable[[str], Shift]:
    return as_shift


@pytest.fixture(scope="session")
def save_run() -> Callable[[RunRecord, Path], Path]:
    return write_run


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """The records of six methods on four corruptions."""
    for method in ACCURACY:
        for domain in ("contrast-5", "fog-5", "gaussian_noise-5", "defocus_blur-5"):
            write_run(fake_run(method, [domain]), tmp_path / "runs")
    return tmp_path / "runs"
