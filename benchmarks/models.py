"""Images per second of the shipped models beside ResNet-20, forward and forward+backward.

    python benchmarks/models.py [--batch 600] [--threads 2] [--rounds 7]

All models are channels last, forward in evaluation mode without gradients, forward+backward in
training mode with gradients of every parameter. The models take turns within each round, so that a
busy machine slows all of them; the medians over the rounds are shown, and the median ratio.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional

from tapr.models import build, card, load

REFERENCE = "resnet-20"
SHIPPED = ("cifar10-small", "cifar100-small")


def models() -> dict[str, nn.Module]:
    reference = build(REFERENCE, 10)
    reference.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return {REFERENCE: reference, **{name: load(name) for name in SHIPPED}}


def forward(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    with torch.no_grad():
        model.eval()(images)


def forward_backward(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    model.zero_grad()
    torch.autograd.backward(functional.cross_entropy(model.train()(images), labels))


def seconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batch", type=int, default=600)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(arguments.batch, 3, 32, 32, generator=generator)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (arguments.batch,), generator=generator)
    print(f"batch {arguments.batch}, threads {arguments.threads}, rounds {arguments.rounds}")
    print(f"{'':18} {'pass':17} {'images/s':>9} {'times ' + REFERENCE:>16} {'clean':>8}")
    for title, work in (("forward", forward), ("forward+backward", forward_backward)):
        times: dict[str, list[float]] = {name: [] for name in (REFERENCE, *SHIPPED)}
        candidates = models()
        for round_ in range(1 + arguments.rounds):
            for name, model in candidates.items():
                took = seconds(lambda model=model, work=work: work(model, images, labels))  # type: ignore[misc]
                if round_:  # the first warms up
                    times[name].append(took)
        for name, own in times.items():
            ratio = median(r / o for r, o in zip(times[REFERENCE], own, strict=True))
            clean = f"{card(name)['clean_accuracy']:.2%}" if name in SHIPPED else ""
            rate = arguments.batch / median(own)
            print(f"{name:18} {title:17} {rate:9,.0f} {ratio:16.2f} {clean:>8}", flush=True)


if __name__ == "__main__":
    main()
