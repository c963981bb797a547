"""What steady was chosen on: one voter over its share of source statistics, and the vote.

    python -m benchmarks.steady [--images 800] [--results results/steady.csv]

On `cifar10-small` with clean images, the four extra corruptions at severity 5, and four of the
fifteen at severity 3, on which nothing is reported. Writes results/steady-study.json and the
figures docs/images/steady-share.svg and docs/images/steady-corruptions.svg, the latter from the
CSV of `results/steady.toml`. About three minutes on one core.
"""

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import nn

import tapr
from tapr import datasets, files, models
from tapr.streams import Domain, clean, corrupted

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
STUDY = ROOT / "results" / "steady-study.json"
SHARES = (0.0, 0.15, 0.3, 0.5, 0.7, 0.85, 1.0)
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
MILD = ("snow", "glass_blur", "contrast", "jpeg_compression")
VIEWS = ("original", "flip", "smooth")
METHODS = {"source": "unadapted", "norm": "norm", "tent": "Tent", "steady": "steady"}


def accuracy(adapter: tapr.Adapter, domain: Domain) -> float:
    """In percent, in batches of 200."""
    right = 0
    for start in range(0, len(domain), 200):
        numbers = domain.numbers[start : start + 200]
        images = torch.from_numpy(domain.read(numbers)).permute(0, 3, 1, 2).float() / 255
        assert domain.labels is not None
        labels = torch.from_numpy(domain.labels[start : start + 200])
        right += int((adapter(images).argmax(1) == labels).sum())
    return round(100 * right / len(domain), 2)


def study(model: nn.Module, domain: Domain) -> dict[str, Any]:
    """Each view alone with each share, and the vote."""
    alone = {
        view: [
            accuracy(
                tapr.adapt(model, "norm", statistics="window", share=share, votes=view), domain
            )
            for share in SHARES
        ]
        for view in VIEWS
    }
    equal = tapr.adapt(model, "steady", weights="equal")
    return {
        **alone,
        "steady": accuracy(tapr.adapt(model, "steady"), domain),
        "equal weights": accuracy(equal, domain),
    }


def draw_shares(found: dict[str, Any]) -> None:
    """One voter over its share, and the vote as a line across."""
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    shown = ["clean", *(f"{name}-5" for name in EXTRA), "contrast-3"]
    for axes, name in zip(figure.subplots(2, 3).flat, shown, strict=True):
        for view in VIEWS:
            axes.plot(SHARES, found[name][view], marker="o", markersize=3, label=f"{view} alone")
        axes.axhline(found[name]["steady"], color="black", label="steady: the weighted vote")
        axes.set_title(name, fontsize=9)
        axes.tick_params(labelsize=8)
    figure.supxlabel("share of the source's statistics", fontsize=9)
    figure.supylabel("accuracy in %", fontsize=9)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8)
    save(figure, "steady-share.svg")


def draw_corruptions(path: Path) -> None:
    """The methods on the fifteen corruptions."""
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    domains = list(dict.fromkeys(row["domain"] for row in rows if row["domain"].endswith("-5")))
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots()
    for number, (method, title) in enumerate(METHODS.items()):
        values = {
            row["domain"]: 100 * float(row["accuracy"]) for row in rows if row["method"] == method
        }
        places = [place + 0.2 * (number - 1.5) for place in range(len(domains))]
        axes.bar(places, [values[name] for name in domains], width=0.2, label=title)
    names = [name.removesuffix("-5").replace("_", " ") for name in domains]
    axes.set_xticks(range(len(domains)), names, rotation=40, ha="right", fontsize=8)
    axes.set_ylabel("accuracy in %")
    axes.set_ylim(15, 90)
    figure.legend(ncols=4, fontsize=8, loc="outside upper center")
    save(figure, "steady-corruptions.svg")


def save(figure: Figure, name: str) -> None:
    with files.atomic(IMAGES / name) as part:
        figure.savefig(part, format="svg", metadata={"Date": None})


def main() -> None:
    """Measure, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=800)
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "steady.csv")
    chosen = parser.parse_args()
    model, data = models.load("cifar10-small"), datasets.load("cifar10")
    domains = [
        clean(data, chosen.images),
        *corrupted(data, EXTRA, (5,), chosen.images),
        *corrupted(data, MILD, (3,), chosen.images),
    ]
    found = {}
    for domain in domains:
        found[domain.name] = study(model, domain)
        print(f"{domain.name:20s} {found[domain.name]}", flush=True)
    content = {
        "command": "python -m benchmarks.steady",
        "model": "cifar10-small",
        "images": chosen.images,
        "shares": SHARES,
        "accuracy": found,
    }
    with files.atomic(STUDY) as part:
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    draw_shares(found)
    draw_corruptions(chosen.results)


if __name__ == "__main__":
    main()
