"""From renderings to reality: every number and figure of docs/domain-shift.md.

    python benchmarks/digits.py [--work runs/digits-seeds]

Three source models are trained on rendered digits (seeds 0, 1, 2; seed 0 is the shipped one) and
each is run by every system of `tapr bench digits` on the real ones, its views with the same seed.
What is already in the work folder is not done again. Writes results/digits/results.json and
docs/images/digits-confusion.png. About 10 minutes on two idle cores.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from tapr import datasets, files, models, records
from tapr.records import Confusion
from tapr.reports.statistics import over_seeds
from tapr.runs import spec as specs
from tapr.runs.bench import Bench
from tapr.runs.cards import accuracy
from tapr.runs.train import Training, recipe

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "digits" / "results.json"
FIGURE = ROOT / "docs" / "images" / "digits-confusion.png"
SEEDS = (0, 1, 2)
SHIPPED = "digits-small"
BASES = ("source", "norm", "pest-control")  # what a system's gain is measured from, model by model
SHOWN = {"source": "unadapted", "pest-augmix": "PEST AugMix"}  # in the figure


def source_model(seed: int, work: Path) -> str:
    """The shipped model for seed 0; the others are trained with the same recipe, if need be."""
    if seed == 0:
        return SHIPPED
    path = work / f"source-{seed}" / "model.safetensors"
    if not path.exists():
        print(f"training with seed {seed}", flush=True)
        data = datasets.load("digits", "train")
        training = Training(recipe("digits", seed=seed), data, path.parent)
        for _ in training.run():
            pass
        training.save()
    return str(path)


def run(seed: int, model: str, work: Path) -> dict[str, Confusion]:
    """Every system on the real digits: its confusion."""
    spec = specs.load("digits", {"model": model, "seeds": [seed]})
    bench = Bench(spec, work / f"records-{seed}")
    found = {}
    for cell in bench.cells:
        for _ in bench.run(cell):
            pass
        finished, problems = records.read(bench.folder / cell.file)
        assert not problems, problems
        found[cell.label] = records.confusion(finished.batches)
        print(f"seed {seed} {cell.label:18s} {finished.accuracy:.2%}", flush=True)
    return found


def percent(values: list[float]) -> dict[str, Any]:
    """The seeds' values, their mean and Student's 95 % interval, in percent."""
    hundred = [100 * value for value in values]
    interval = [round(end, 2) for end in over_seeds(hundred)]
    seeds = [round(value, 2) for value in hundred]
    return {"seeds": seeds, "mean": round(mean(hundred), 2), "interval_95": interval}


def summary(source: list[float], runs: list[dict[str, Confusion]]) -> dict[str, Any]:
    """What goes into the results file."""

    def right(counts: Confusion) -> float:
        return sum(counts[k, k] for k in range(10)) / counts.total()

    systems = {}
    for label in runs[0]:
        found = [one[label] for one in runs]
        together: Confusion = sum(found, Counter())
        systems[label] = {
            "accuracy": percent([right(counts) for counts in found]),
            **{
                f"over_{base}": percent([right(one[label]) - right(one[base]) for one in runs])
                for base in BASES
            },
            "class_mean": percent([records.class_mean(counts) or 0 for counts in found]),
            "classes": {
                str(label): round(100 * share, 1)
                for label, share in records.class_accuracies(together).items()
            },
            "confusion": [[together[row, column] for column in range(10)] for row in range(10)],
        }
    return {
        "command": "python benchmarks/digits.py",
        "seeds": list(SEEDS),
        "images": runs[0]["source"].total(),
        "held_out_renderings": percent(source),
        "systems": systems,
    }


def markdown(content: dict[str, Any]) -> str:
    """The tables of docs/domain-shift.md."""
    over = " | ".join(f"over `{base}`" for base in BASES)
    lines = [f"| system | mean | 95 % interval | seeds 0 / 1 / 2 | {over} |"]
    lines.append("|---|" + "---:|" * (3 + len(BASES)))
    for label, found in content["systems"].items():
        accuracy = found["accuracy"]
        cells = [
            f"{accuracy['mean']:.1f}",
            "{:.1f} - {:.1f}".format(*accuracy["interval_95"]),
            " / ".join(f"{value:.1f}" for value in accuracy["seeds"]),
            *("-" if base == label else _signed(found[f"over_{base}"]) for base in BASES),
        ]
        lines.append(f"| `{label}` | " + " | ".join(cells) + " |")
    lines += ["", "| digit | " + " | ".join(map(str, range(10))) + " |", "|---" * 11 + "|"]
    for label, found in content["systems"].items():
        shares = (f"{share:.0f}" for share in found["classes"].values())
        lines.append(f"| `{label}` | " + " | ".join(shares) + " |")
    return "\n".join(lines)


def _signed(gain: dict[str, Any]) -> str:
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(gain["mean"], *gain["interval_95"])


def draw(systems: dict[str, Any]) -> None:
    """The confusion of all seeds before and after, as shares of a row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.1), layout="constrained")
    for axes, (label, title) in zip(figure.subplots(1, 2), SHOWN.items(), strict=True):
        counts = np.array(systems[label]["confusion"])
        shares = 100 * counts / counts.sum(1, keepdims=True)
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=100)
        for (row, column), share in np.ndenumerate(shares):
            if share >= 1:
                colour = "white" if share > 50 else "black"
                axes.text(
                    column, row, f"{share:.0f}", ha="center", va="center", color=colour, fontsize=8
                )
        axes.set(xticks=range(10), yticks=range(10), xlabel="predicted", ylabel="digit")
        axes.set_title(f"{title}, {systems[label]['accuracy']['mean']:.1f} %")
    with files.atomic(FIGURE) as part:
        figure.savefig(part, format="png", dpi=100, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "digits-seeds")
    work = parser.parse_args().work
    names = [source_model(seed, work) for seed in SEEDS]
    validation = datasets.load("digits", "validation")
    source = [accuracy(models.load(name), validation) for name in names]
    runs = [run(seed, name, work) for seed, name in zip(SEEDS, names, strict=True)]
    content = summary(source, runs)
    with files.atomic(RESULTS) as part:
        part.write_text(json.dumps(content, indent=1) + "\n")
    draw(content["systems"])
    print(markdown(content))


if __name__ == "__main__":
    main()
