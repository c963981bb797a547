"""README's numbers are those of the committed results; a failure says what to write instead."""

import csv
import json
import re
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

from tapr.methods import about
from tools import leaderboard

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NUMBER = r"(\d+(?:\.\d+)?)"
# README's heading of a column -> the heading in the table of the leaderboard.
COLUMNS = {
    "CIFAR-10, reset": "cifar10-small, reset each",
    "CIFAR-10, continual": "cifar10-small, continual",
    "CIFAR-100, reset": "cifar100-small, reset each",
    "CIFAR-100, continual": "cifar100-small, continual",
}
# The columns of README's table of the paper -> their methods in results/paper-cifar10c.csv.
PAPER = {
    "unadapted": "source",
    "norm": "norm",
    "Tent": "tent",
    "PEST RandAugment": "pest-randaugment",
    "PEST AugMix": "pest-augmix",
    "learning rate 0": "pest-control",
}


def accuracy(file: str, method: str, domain: str) -> Decimal:
    """A row of a committed CSV file, in %."""
    with (ROOT / "results" / f"{file}.csv").open(encoding="utf-8", newline="") as stream:
        rows = [r for r in csv.DictReader(stream) if (r["method"], r["domain"]) == (method, domain)]
    (row,) = rows
    return 100 * Decimal(row["accuracy"])


def rounded(value: Decimal, places: str = "0.1") -> str:
    """A number as README writes it; a half is rounded up."""
    return str(value.quantize(Decimal(places), ROUND_HALF_UP))


def rows(table: str) -> list[list[str]]:
    """The cells of a Markdown table, heading first."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if not re.fullmatch(r"[|: -]+", line)
    ]


def section(heading: str) -> str:
    return README.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def agree(what: str, wrong: list[str]) -> None:
    assert not wrong, "\n".join([f"{what} differ:", *wrong])


def measured() -> list[leaderboard.Measured]:
    with (ROOT / "results" / "leaderboard" / "full.csv").open(encoding="utf-8") as stream:
        return [
            leaderboard.Measured(
                row["model"],
                row["stream"],
                row["method"],
                float(row["accuracy"]),
                float(row["low"]),
                float(row["high"]),
                int(row["images"]),
                row["file"],
            )
            for row in csv.DictReader(stream)
        ]


def test_the_table_of_the_leaderboard_is_made_from_its_csv() -> None:
    made = (ROOT / "results" / "leaderboard" / "table.md").read_text(encoding="utf-8")
    assert made == leaderboard.as_markdown(measured()), "run `python tools/leaderboard.py`"


def test_what_it_gains_is_the_leaderboard() -> None:
    """Numbers, bold type, passes and the order of the rows."""
    names, *lines = rows(leaderboard.as_markdown(measured()))
    cells = {line[0]: dict(zip(names, line, strict=True)) for line in lines}
    passes = {
        leaderboard.title(each.method): about(each.method.partition("-")[0]).passes
        for each in measured()
        if each.method in leaderboard.SHOWN
    }
    heading, *table = rows(section("What it gains"))
    wrong = []
    for title, *shown in table:
        method = title.strip("*")
        if method not in cells:
            wrong.append(f"{title!r} is no row of the leaderboard: expected one of {sorted(cells)}")
            continue
        for column, cell in zip(heading[1:], shown, strict=True):
            if column in COLUMNS:
                right = cells[method][COLUMNS[column]].replace("-", "–")
            else:
                right = ", ".join(map(str, passes[method]))
            if cell != right:
                wrong.append(f"row {title!r}, column {column!r}: write {right!r}, not {cell!r}")
    agree("README.md, 'What it gains', and results/leaderboard/full.csv", wrong)
    first = [float(line[2].strip("*").replace("–", "0")) for line in table]
    assert first == sorted(first, reverse=True), "README.md: sort 'What it gains' by its accuracy"


def test_the_table_of_the_paper_is_the_committed_run() -> None:
    heading, values = rows(section("The paper"))
    wrong = []
    for column, cell in zip(heading[1:], values[1:], strict=True):
        right = rounded(accuracy("paper-cifar10c", PAPER[column], "mean of 15"))
        if cell != right:
            wrong.append(f"column {column!r}: write {right}, not {cell}")
    agree("README.md, 'The paper', and results/paper-cifar10c.csv", wrong)


def _less(first: tuple[str, str, str], second: tuple[str, str, str]) -> Decimal:
    return accuracy(*first) - accuracy(*second)


def test_the_honest_limits_are_the_committed_runs() -> None:
    noise, low = "gaussian_noise-5", "contrast-5"
    # A sentence with {} for each number, the numbers, and the files they come from.
    claims = [
        (
            "On 2,000 clean images steady keeps {} % (unadapted {}), and Tent falls to {}.",
            [rounded(accuracy("steady-clean", m, "clean")) for m in ("steady", "source", "tent")],
            "steady-clean.csv",
        ),
        (
            "under sorted gaussian noise Tent falls to {} % (unadapted {}), and steady reaches {},",
            [rounded(accuracy("steady-sorted", m, noise)) for m in ("tent", "source", "steady")],
            "steady-sorted.csv",
        ),
        (
            "{} points less than on a mixed stream.",
            [rounded(_less(("steady", "steady", noise), ("steady-sorted", "steady", noise)), "1")],
            "steady.csv and steady-sorted.csv",
        ),
        (
            "where plain `norm` is better than steady, by {} points.",
            [rounded(_less(("steady", "norm", low), ("steady", "steady", low)))],
            "steady.csv",
        ),
    ]
    limits = section("Honest limits")
    wrong = []
    for sentence, right, file in claims:
        found = re.search(re.escape(sentence).replace(r"\{\}", NUMBER), limits)
        if not found:
            wrong.append(
                f"expected a sentence like {sentence!r}: change it here and there together"
            )
        elif list(found.groups()) != right:
            wrong.append(f"write {sentence.format(*right)!r}, not {found[0]!r} (results/{file})")
    agree("README.md, 'Honest limits', and the committed results", wrong)


def test_the_digits_of_the_limits_are_the_means_of_three_models() -> None:
    text = (ROOT / "results" / "steady-digits-seeds.csv").read_text(encoding="utf-8")
    clean = [row for row in csv.DictReader(text.splitlines()) if row["domain"] == "clean"]
    means = {}
    for method in ("steady", "tent"):
        found = [100 * Decimal(row["accuracy"]) for row in clean if row["method"] == method]
        assert len(found) == 3
        means[method] = rounded(sum(found, Decimal()) / 3)
    digits = json.loads((ROOT / "results" / "digits" / "results.json").read_text("utf-8"))
    means["pest"] = rounded(Decimal(str(digits["systems"]["pest-augmix"]["accuracy"]["mean"])))
    sentence = f"steady has {means['steady']} %, Tent {means['tent']} and PEST {means['pest']}"
    assert sentence in section("Honest limits")
