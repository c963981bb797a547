"""Streams that ruin models: every method on them, with the guard off and acting.

    python -m benchmarks.harm [--model cifar10-small] [--methods norm,tent] [--images 1000]

Adds a line to results/harm.csv for each method, stream and guard that it does not have. A stream
has the first images of the test set, clean and under four corruptions at severity 5, in batches of
a fifth to a tenth of them. Images that show nothing (black, of one colour, noise) count for nothing
but what they do to the adapter. `misses` says whether the guard's promise is broken: accuracy more
than 1 point below the unadapted model's over the stream, or more than 3 over any 1,000 images in a
row. `tent*100` is Tent at 100 times its learning rate.
"""

import argparse
import csv
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import tapr
from tapr import datasets, models
from tapr.streams import Domain, clean, generated
from tapr.streams.stream import as_tensor

RESULTS = Path(__file__).parents[1] / "results" / "harm.csv"
CORRUPTIONS = ("gaussian_noise", "contrast", "snow", "jpeg_compression")
METHODS = (
    *("steady", "norm", "tent", "tent*10", "tent*100", "pest", "pest*10", "pest*100", "lame"),
    *("eta", "sar", "roid", "cmf", "deyo", "rpl", "shot", "rdumb", "t3a", "rotta", "note"),
    *("cotta", "rmt", "adacontrast"),
)
FIELDS = (
    *("model", "images", "stream", "method", "guard", "source", "accuracy", "worst_1000"),
    *("watch", "harm", "answered", "unlearnt", "restarted", "batches", "misses"),
)
NOTHING = 4  # batches that show nothing
VISITS = 20
Places = NDArray[np.int64]


class Part(NamedTuple):
    """Images of a batch: places in a domain, or a kind of images that show nothing."""

    of: Domain | str
    places: Places


Plan = list[list[Part]]


class Material(NamedTuple):
    """The same images clean and under corruptions, and the size of a batch."""

    clean: Domain
    shifted: Sequence[Domain]
    size: int

    @property
    def labels(self) -> Places:
        """Of the images."""
        assert self.clean.labels is not None
        return self.clean.labels

    @property
    def places(self) -> Places:
        """Of all images, in order."""
        return np.arange(len(self.clean))

    def batches(self, of: Domain | str, places: Places, size: int | None = None) -> Plan:
        """Batches of these images."""
        size = size or self.size
        return [[Part(of, places[i : i + size])] for i in range(0, len(places), size)]


def streams(m: Material) -> Iterator[tuple[str, Plan]]:
    """The streams by name."""
    first = m.shifted[0]
    by_class = np.argsort(m.labels, kind="stable")
    common = np.flatnonzero(m.labels == np.bincount(m.labels).argmax())
    late = m.labels >= (m.labels.max() + 1) / 2
    half_by_half = np.concatenate([np.flatnonzero(~late), np.flatnonzero(late)])
    middle = len(m.places) // 2
    for domain in (m.clean, *m.shifted):
        yield domain.name, m.batches(domain, m.places)
    for domain in (m.clean, first):
        yield f"one class, {domain.name}", m.batches(domain, common)
    for domain in (m.clean, *m.shifted[:2]):
        yield f"sorted, {domain.name}", m.batches(domain, by_class)
    for domain in (m.clean, first):
        yield f"other classes from the middle, {domain.name}", m.batches(domain, half_by_half)
    for kind in ("black", "constant", "noise"):
        yield f"{kind}, then clean", [*_nothing(kind, m), *m.batches(m.clean, m.places)]
    stream = m.batches(first, m.places)
    there = len(stream) // 2
    yield f"noise amid {first.name}", [*stream[:there], *_nothing("noise", m), *stream[there:]]
    back = m.batches(m.clean, m.places[middle:])
    yield f"{first.name}, then clean", [*m.batches(first, m.places[:middle]), *back]
    yield (
        "half of each batch corrupted",
        [[Part(m.clean, p.places[::2]), Part(first, p.places[1::2])] for (p,) in stream],
    )
    turns = [m.clean, *m.shifted]
    yield (
        "another domain every batch",
        [[Part(turns[i % len(turns)], p.places)] for i, (p,) in enumerate(stream)],
    )
    yield (
        f"{VISITS} visits of {len(m.shifted)} corruptions",
        [
            [Part(domain, stream[(visit * len(m.shifted) + i) % len(stream)][0].places)]
            for visit in range(VISITS)
            for i, domain in enumerate(m.shifted)
        ],
    )
    for size in (1, 2, 4):
        for domain in (m.clean, first):
            yield f"batch {size}, {domain.name}", m.batches(domain, m.places[:400], size)


def _nothing(kind: str, m: Material) -> Plan:
    return [[Part(kind, np.arange(m.size) + number)] for number in range(NOTHING)]


def read(part: Part) -> tuple[Tensor, Tensor]:
    """Images and labels; -1 for those that show nothing."""
    count = len(part.places)
    if isinstance(part.of, Domain):
        assert part.of.labels is not None
        images = as_tensor(part.of.read(part.of.numbers[part.places]))
        return images, torch.from_numpy(part.of.labels[part.places])
    generator = torch.Generator().manual_seed(int(part.places[0]))
    kinds: dict[str, Callable[[], Tensor]] = {
        "black": lambda: torch.zeros(count, 3, 32, 32),
        "constant": lambda: torch.rand(count, 3, 1, 1, generator=generator).repeat(1, 1, 32, 32),
        "noise": lambda: torch.rand(count, 3, 32, 32, generator=generator),
    }
    return kinds[part.of](), torch.full((count,), -1)


class Ran(NamedTuple):
    """What an adapter did on a stream."""

    right: Tensor  # [N] bool, of the images that show something
    counts: Counter[str]  # of verdicts and actions


def run(adapter: tapr.Adapter, plan: Plan) -> Ran:
    """Predict a stream."""
    right, counts = [], Counter[str]()
    for parts in plan:
        read_parts = [read(part) for part in parts]
        images, labels = (torch.cat(tensors) for tensors in zip(*read_parts, strict=True))
        prediction = adapter.predict(images)
        known = labels >= 0
        right.append((prediction.logits.argmax(1) == labels)[known])
        if prediction.health is not None:
            counts.update([prediction.health.verdict, prediction.health.action])
    return Ran(torch.cat(right), counts)


def worst(right: Tensor, source: Tensor, images: int = 1000) -> float:
    """The largest fall below the source over so many images in a row, in points."""
    lost = torch.cat([torch.zeros(1), (source.float() - right.float()).cumsum(0)])
    images = min(images, len(right))
    return 100 * float((lost[images:] - lost[:-images]).max()) / images


def variant(name: str) -> tuple[str, dict[str, Any]]:
    """A method and its options from a name such as `tent*100`."""
    method, _, times = name.partition("*")
    return method, {"lr": float(times) * tapr.presets(method)["paper"]["lr"]} if times else {}


def _cached(domain: Domain) -> Domain:
    """The domain with its pixels in memory."""
    pixels = np.asarray(domain.read(domain.numbers))
    first = int(domain.numbers[0])
    return replace(domain, read=lambda numbers: pixels[numbers - first])


def material(
    data: str, first: int, images: int, corruptions: Sequence[str], severity: int
) -> Material:
    """The first images of the test set, or others."""
    dataset = datasets.load(data, "test")
    some = np.arange(first, first + images)
    shifted = [generated(dataset, name, severity, some) for name in corruptions]
    size = min(200, images // 10)
    return Material(_cached(clean(dataset, some)), [*map(_cached, shifted)], size)


def lines(
    model: nn.Module,
    chosen: Sequence[tuple[str, Plan]],
    methods: Sequence[str],
    done: set[tuple[str, str, str]],
) -> Iterator[dict[str, Any]]:
    """A line for each method, stream and guard that is not done."""
    for name in methods:
        method, options = variant(name)
        for stream, plan in chosen:
            source = None
            for guard in ("off", "act"):
                if (stream, name, guard) in done:
                    continue
                if source is None:
                    source = run(tapr.adapt(model, "source"), plan).right
                ran = run(tapr.adapt(model, method, guard=guard, **options), plan)
                base, own = (100 * r.float().mean().item() for r in (source, ran.right))
                fall = worst(ran.right, source)
                yield {
                    **{"stream": stream, "method": name, "guard": guard},
                    **{"source": round(base, 2), "accuracy": round(own, 2)},
                    "worst_1000": round(fall, 2),
                    **{w: ran.counts[w] for w in ("watch", "harm")},
                    **{w: ran.counts[w] for w in ("answered", "unlearnt", "restarted")},
                    "batches": len(plan),
                    "misses": "yes" if round(base - own, 2) > 1 or round(fall, 2) > 3 else "",
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="cifar10-small")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--streams", default="", help="those with one of `a;b` in their names")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first image")
    parser.add_argument("--corruptions", default=",".join(CORRUPTIONS))
    parser.add_argument("--severity", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    logging.getLogger("tapr").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    old = list(csv.DictReader(given.out.open())) if given.out.exists() else []
    key = {"model": given.model, "images": str(given.images)}
    mine = [row for row in old if all(row[name] == value for name, value in key.items())]
    done = {(row["stream"], row["method"], row["guard"]) for row in mine}
    m = material(
        given.data, given.first, given.images, given.corruptions.split(","), given.severity
    )
    wanted = given.streams.split(";")
    chosen = [each for each in streams(m) if any(part in each[0] for part in wanted)]
    with given.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not old:
            writer.writeheader()
        for line in lines(models.load(given.model), chosen, given.methods.split(","), done):
            writer.writerow({**key, **line})
            file.flush()
            print(*(f"{value!s:<{12 if n else 30}}" for n, value in enumerate(line.values())))


if __name__ == "__main__":
    main()
