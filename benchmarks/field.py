"""Methods with many views beside plain loops of them, as people write them, in one process.

    OMP_NUM_THREADS=1 python -m benchmarks.field

MEMO's plain loop makes its views by PIL, image by image, and loads the source weights for each
image; CoTTA's and RMT's augment image by image and call the model once for every view. CoTTA's draw
for the whole batch, which costs no loop, is its preset `released`. The ratio is the median over
rounds in which the sides alternate; above 1 ours is quicker. A second table has every method's CPU
time for an image of a batch of 200 (MEMO: of 20, one after another), the median of three batches
behind two, and its peak memory: the most that a process of its own held, less what it did for the
unadapted model. Both have imported what torch imports at the first step of an optimiser, 74 MiB of
modules that are no part of a batch. In brackets is what `adapter.cost` predicts.
"""

import importlib
import random
import subprocess
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from statistics import median
from typing import Any

import torch
from benchmarks.views import RELEASED, photographs, pil_mixture
from torch import Tensor, nn

import tapr
from tapr.augment import Crop, Katana
from tapr.models.statistics import Statistics

ROUNDS = 5
METHODS = (
    *("source", "norm", "lame", "t3a", "note", "rotta", "rmt", "rmt-source", "adacontrast"),
    *("cotta", "memo"),
)
Side = Callable[[Tensor], object]


def memo(model: nn.Module, views: int) -> Side:
    """Each image alone: PIL views, one step, predict, load the source weights again."""
    model = deepcopy(model).eval()
    source = deepcopy(model.state_dict())
    norms = Statistics("prior").policy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=5e-3)
    rng, generator = random.Random(0), torch.Generator().manual_seed(0)

    def adapt(images: Tensor) -> Tensor:
        said = []
        for image in images:
            model.load_state_dict(source)
            cropped = torch.cat([Crop()(image[None], generator) for _ in range(views)])
            own = pil_mixture(cropped, rng, RELEASED, 1, 3, (1, 3))
            with norms.feeding():
                mean = model(own).softmax(1).mean(0)
                optimizer.zero_grad()
                torch.autograd.backward(-(mean * mean.log()).sum())
                optimizer.step()
                with torch.no_grad():
                    said.append(model(image[None]))
        return torch.cat(said)

    return adapt


def cotta(model: nn.Module, views: int) -> Side:
    """Three models in training mode; every view of every image is augmented on its own."""
    student, teacher, anchor = (deepcopy(model).train() for _ in range(3))
    source = deepcopy(model.state_dict())
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(0)

    def adapt(images: Tensor) -> Tensor:
        said = student(images)
        with torch.no_grad():
            anchor(images).softmax(1).max(1)
            total = torch.zeros_like(said)
            for _ in range(views):
                view = torch.cat([Katana()(image[None], generator) for image in images])
                total += teacher(view)
            target = total / views
        loss = -(target.softmax(1) * said.log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.mul_(0.999).add_(fast, alpha=0.001)
            for name, parameter in student.named_parameters():
                mask = torch.rand_like(parameter) < 0.01
                parameter.copy_(torch.where(mask, source[name], parameter))
        return target

    return adapt


def rmt(model: nn.Module) -> Side:
    """Self-training alone: a forward for the image, one for its view, one for the teacher."""
    student, teacher = deepcopy(model).train(), deepcopy(model).train()
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(0)

    def adapt(images: Tensor) -> Tensor:
        view = torch.cat([Katana()(image[None], generator) for image in images])
        one, two = student(images), student(view)
        with torch.no_grad():
            target = teacher(images)
        loss = torch.zeros(())
        for said in (one, two):
            both = target.softmax(1) * said.log_softmax(1) + said.softmax(1) * target.log_softmax(1)
            loss = loss - both.sum(1).mean() / 4
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.mul_(0.999).add_(fast, alpha=0.001)
        return torch.as_tensor(one.detach() + target)

    return adapt


def cpu_seconds(side: Side, images: Tensor) -> float:
    start = time.process_time()
    side(images)
    return time.process_time() - start


def compare(ours: Side, theirs: Side, images: Tensor) -> tuple[float, float]:
    ours(images[:2]), theirs(images[:2])
    pairs = [(cpu_seconds(ours, images), cpu_seconds(theirs, images)) for _ in range(ROUNDS)]
    return median(pair[0] for pair in pairs), median(pair[1] / pair[0] for pair in pairs)


def main() -> None:
    torch.set_num_threads(1)
    model = tapr.models.load("cifar10-small")
    one_by_one = tapr.adapt(model, "memo")
    sides: dict[str, tuple[Side, Side, int]] = {
        "MEMO, 32 views": (one_by_one, memo(model, 32), 8),
        "MEMO, 64 views": (tapr.adapt(model, "memo", views=64), memo(model, 64), 4),
        "MEMO, vectorised / one by one": (
            tapr.adapt(model, "memo", vectorised=True),
            one_by_one,
            8,
        ),
        "CoTTA, 32 views": (tapr.adapt(model, "cotta", certainty=1.0), cotta(model, 32), 32),
        "RMT, no contrast": (tapr.adapt(model, "rmt", contrast=0.0), rmt(model), 100),
    }
    print(f"{'':30} {'images':>7} {'ms/image':>9} {'ratio':>6}")
    for name, (ours, theirs, count) in sides.items():
        images = photographs(count, 32, torch.Generator().manual_seed(0))
        seconds, ratio = compare(ours, theirs, images)
        print(f"{name:30} {count:7} {1000 * seconds / count:9.1f} {ratio:6.2f}")
    costs()


def own_process(name: str) -> None:
    """Five batches by one method; print CPU seconds an image, peak and predicted bytes, passes."""
    torch.set_num_threads(1)
    importlib.import_module("torch._dynamo")
    count = 20 if name == "memo" else 200
    images = photographs(200, 32, torch.Generator().manual_seed(0))
    more: dict[str, Any] = {"source_images": images, "source_labels": torch.arange(200) % 10}
    method, _, source = name.partition("-")
    model = tapr.models.load("cifar10-small")
    adapter = tapr.adapt(model, method, **({**more, "warm_up": 0} if source else {}))
    spent = [cpu_seconds(adapter, images[:count]) / count for _ in range(2 + 3)]
    status = Path("/proc/self/status").read_text()  # ru_maxrss would begin with the parent's
    held = 1024 * int(status.partition("VmHWM:")[2].split()[0])
    print(median(spent[2:]), held, adapter.cost((count, 3, 32, 32)).memory, *adapter.passes)


def costs() -> None:
    print(f"\n{'':12} {'forward':>8} {'backward':>8} {'ms/image':>9} {'x source':>9} {'MiB':>6}")
    alone = floor = 0.0
    for name in METHODS:
        command = [sys.executable, "-m", "benchmarks.field", name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        seconds, held, predicted, forward, backward = map(float, said.split()[-5:])
        alone, floor = alone or seconds, floor or held
        memory = f"{(held - floor) / 2**20:6.0f} ({predicted / 2**20:.0f})"
        times = f"{1000 * seconds:9.2f} {seconds / alone:9.1f}"
        print(f"{name:12} {forward:8.0f} {backward:8.0f} {times} {memory}", flush=True)


if __name__ == "__main__":
    own_process(sys.argv[1]) if sys.argv[1:] else main()
