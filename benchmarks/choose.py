"""Which criterion ranks methods without labels, and what a choice by it costs.

    python -m benchmarks.choose [--model cifar10-small] [--data cifar10] [--images 400]

Adds lines to results/choose.csv: for clean images and corruptions at severity 5 (the first images
of the test set, batches of 64), the accuracy of every candidate of `tapr.choose` and the criteria.
Prints the regret (accuracy of the best candidate minus that of the chosen one) and the rank
correlation with accuracy, over all lines of the file.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import tapr
from tapr import datasets, models
from tapr.adapters.shadow import Shadow
from tapr.runs.choose import CANDIDATES
from tapr.streams import Domain, clean, generated
from tapr.streams.stream import as_tensor

RESULTS = Path(__file__).parents[1] / "results" / "choose.csv"
CORRUPTIONS = (
    *("gaussian_noise", "defocus_blur", "snow", "fog", "brightness", "contrast"),
    "jpeg_compression",
)
CRITERIA = ("credit", "information", "certainty")


def spread(p: Tensor) -> Tensor:
    """Entropy over the last axis."""
    return -(p * p.clamp(min=1e-30).log()).sum(-1)


def lines(model: nn.Module, domain: Domain) -> Iterator[dict[str, Any]]:
    """A line for each candidate."""
    images = as_tensor(np.asarray(domain.read(domain.numbers)))
    assert domain.labels is not None
    labels = torch.from_numpy(domain.labels)
    batches = torch.split(images, 64)
    source = tapr.adapt(model, "source")
    shadow = Shadow(source.model)
    told = [shadow(source, batch) for batch in batches]
    witness = torch.cat([said.witness for said in told])
    first = torch.cat([said.source for said in told]).argmax(1, keepdim=True)
    for variant in CANDIDATES:
        adapter = tapr.adapt(model, variant, guard="off")
        p = torch.cat([adapter(batch) for batch in batches]).softmax(1)
        classes = p.argmax(1)
        believed = witness.gather(1, classes[:, None]) - witness.gather(1, first)
        yield {
            "domain": domain.name,
            "method": variant,
            "accuracy": round(100 * float((classes == labels).float().mean()), 2),
            "credit": round(float(believed.mean()), 5),
            "information": round(float(spread(p.mean(0)) - spread(p).mean()), 5),
            "certainty": round(-float(spread(p).mean()), 5),
        }


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A sentence for each criterion, with and without steady among the candidates."""
    cells = defaultdict(list)
    for row in rows:
        cells[row["model"], row["domain"]].append(row)
    for without in ("", "steady"):
        for name in (*CRITERIA, "always source", "always norm", "always steady"):
            if without and name.endswith(without):
                continue
            regrets, ranks = [], []
            for cell in cells.values():
                among = [row for row in cell if row["method"] != without]
                accuracy = np.array([float(row["accuracy"]) for row in among])
                if name.startswith("always "):
                    value = np.array([name.endswith(f" {row['method']}") for row in among], float)
                else:
                    value = np.array([float(row[name]) for row in among])
                    one, two = (np.argsort(np.argsort(n)) for n in (accuracy, value))
                    ranks.append(np.corrcoef(one, two)[0, 1])
                regrets.append(accuracy.max() - accuracy[value.argmax()])
            rank = f", rank correlation {np.mean(ranks):.2f}" if ranks else ""
            yield (
                f"{'without ' + without if without else 'all candidates':16} {name:14} regret"
                f" {np.mean(regrets):.2f}, at most {max(regrets):.2f}{rank}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="cifar10-small")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = list(csv.DictReader(given.out.open())) if given.out.exists() else []
    done = {(row["model"], row["domain"]) for row in rows}
    dataset = datasets.load(given.data, "test")
    corrupted = [generated(dataset, name, 5, given.images) for name in CORRUPTIONS]
    model = models.load(given.model)
    with given.out.open("a", newline="") as file:
        fields = ["model", "images", "domain", "method", "accuracy", *CRITERIA]
        writer = csv.DictWriter(file, fields)
        if not rows:
            writer.writeheader()
        for domain in (clean(dataset, given.images), *corrupted):
            if (given.model, domain.name) in done:
                continue
            for line in lines(model, domain):
                row = {"model": given.model, "images": given.images, **line}
                rows.append(row)
                writer.writerow(row)
            file.flush()
    for sentence in summary(rows):
        print(sentence)


if __name__ == "__main__":
    main()
