"""What the kept states of earlier domains could bring, at the most, when these come back.

    python -m benchmarks.returning [--methods tent,roid,steady:learn=true] [--rounds 4]

The four extra corruptions come in turn, again and again, on 200 images of the test set (6,000 on)
in batches of 50. A method goes on as it is, begins anew at each change, or takes up the state that
it had when it last left the domain; an oracle says which domain begins. The guard is off.
"""

import argparse
import logging
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

import tapr
from tapr import datasets, models
from tapr.adapters.moving import Moment
from tapr.streams import Stream, generated, protocols
from tapr.types import Batch

FIRST, IMAGES, BATCH = 6000, 200, 50
SHIFTS = (("speckle_noise", 5), ("gaussian_blur", 5), ("saturate", 5), ("spatter", 3))
WAYS = ("goes on", "anew", "kept")


def accuracy(model: nn.Module, method: str, way: str, batches: Sequence[Batch]) -> float:
    """The share predicted right, in %."""
    adapter = tapr.adapt(model, method, guard="off")
    kept: dict[str, Moment] = {}
    domain, right = "", []
    for batch in batches:
        if batch.domain != domain and way != "goes on":
            if domain and way == "kept":
                kept[domain] = adapter.capture()
            adapter.reset()
            if batch.domain in kept:
                adapter.put_back(kept[batch.domain])
        domain = batch.domain
        right.append((adapter(batch.images).argmax(1) == batch.labels).float())
    return 100 * float(torch.cat(right).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--methods", default="tent,tent:lr=0.005,roid,steady:learn=true")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--model", default="cifar10-small")
    parser.add_argument("--data", default="cifar10")
    given = parser.parse_args()
    logging.getLogger("tapr").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    dataset, some = datasets.load(given.data, "test"), np.arange(FIRST, FIRST + IMAGES)
    domains = [generated(dataset, *shift, some) for shift in SHIFTS]
    visits = protocols.made("continual", rounds=given.rounds)
    batches = list(Stream(domains, BATCH, protocol=visits, order="shuffled"))
    model = models.load(given.model)
    for method in given.methods.split(","):
        found = [f"{way} {accuracy(model, method, way, batches):.2f}" for way in WAYS]
        print(f"{method:20}", *found, sep="  ", flush=True)


if __name__ == "__main__":
    main()
