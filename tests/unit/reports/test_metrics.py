"""Metrics are torchmetrics' own to 1e-6, from numbers and from records; old records say so."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torchmetrics.functional import classification, mean_squared_error
from typer.testing import CliRunner

import tapr
from tapr import records
from tapr.cli import app
from tapr.errors import InputError
from tapr.records import BatchRecord, RunRecord
from tapr.reports import export, paired, results, words
from tapr.reports.metrics import BINS, METRICS
from tapr.reports.results import Outcome
from tapr.reports.tables import estimate, over_images, table
from tapr.runs.evaluate import evaluate
from tapr.streams import Stream, clean

COUNT, CLASSES = 3000, 10
Make = Callable[..., RunRecord]


def outcome(probabilities: Tensor, labels: Tensor) -> Outcome:
    """What a record of these probabilities would hold, without its rounding."""
    top = probabilities.topk(5)
    return Outcome(
        images=np.arange(len(labels)),
        labels=labels.numpy(),
        predicted=top.indices[:, 0].numpy(),
        finished=True,
        top=top.indices.numpy(),
        confidences=top.values[:, 0].double().numpy(),
        likelihoods=probabilities.gather(1, labels[:, None])[:, 0].double().log().numpy(),
        squares=probabilities.double().square().sum(1).numpy(),
    )


def oracle(probabilities: Tensor, labels: Tensor) -> dict[str, float]:
    """The same by torchmetrics."""
    of: Any = classification
    confidences, predicted = probabilities.max(1)
    right = predicted == labels
    truth = nn.functional.one_hot(labels, CLASSES).to(probabilities)
    squared = mean_squared_error(probabilities, truth, num_outputs=CLASSES)
    several = {"num_classes": CLASSES, "average": "micro"}
    # torchmetrics gives a confidence of exactly 1 a sixteenth bin; ours is in the last, as in Guo
    # et al.
    below = probabilities.clamp(max=1 - 1e-7)
    found = {
        "accuracy": of.multiclass_accuracy(probabilities, labels, **several),
        "error": 1 - of.multiclass_accuracy(probabilities, labels, **several),
        "top5": of.multiclass_accuracy(probabilities, labels, top_k=5, **several),
        "calibration": of.multiclass_calibration_error(below, labels, CLASSES, BINS),
        "auroc": of.binary_auroc(confidences, right.long()),
        "nll": nn.functional.nll_loss(probabilities.log(), labels),
        "brier": squared.sum(),
    }
    return {name: float(value) for name, value in found.items()}


@pytest.fixture(scope="module", params=[0.5, 3.0])
def drawn(request: pytest.FixtureRequest) -> tuple[Tensor, Tensor]:
    """Probabilities of hesitant and of sure models that are right about half of the time."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (COUNT,), generator=generator)
    logits = torch.randn(COUNT, CLASSES, generator=generator, dtype=torch.float64)
    logits = request.param * (logits + 1.5 * nn.functional.one_hot(labels, CLASSES))
    return logits.softmax(1), labels


def test_random_numbers_give_what_torchmetrics_gives(drawn: tuple[Tensor, Tensor]) -> None:
    made = outcome(*drawn)
    expected = oracle(*drawn)
    found = {name: METRICS[name].of(made) for name in expected}
    assert found == pytest.approx(expected, abs=1e-6)
    assert 0.2 < expected["accuracy"] < 0.8


def test_records_of_a_run_give_what_torchmetrics_gives_on_its_logits() -> None:
    model = tapr.testing.small_model(classes=CLASSES)
    pixels = np.random.default_rng(0).integers(0, 256, (400, 12, 12, 3), np.uint8)
    labels = np.random.default_rng(1).integers(0, CLASSES, 400)
    data = tapr.datasets.Dataset("noise", pixels, labels, tuple("abcdefghij"))
    logits: list[Tensor] = []
    batches = list(
        evaluate(
            tapr.adapt(model, "tent"),
            Stream([clean(data)], 64),
            observe=lambda prediction, _: logits.append(prediction.logits),
        )
    )
    written = [records.line("batch", dataclasses.asdict(batch)) for batch in batches]
    assert all("squares" in line for line in written)
    (made,) = _outcomes(batches).values()
    expected = oracle(torch.cat(logits).detach().double().softmax(1), torch.from_numpy(labels))
    found = {name: METRICS[name].of(made) for name in expected}
    assert found == pytest.approx(expected, abs=1e-6)


def _outcomes(batches: list[BatchRecord]) -> Mapping[Any, Outcome]:
    cell = {"label": "x", "method": "x", "setting": {"images": 400}, "domains": [{"name": "clean"}]}
    (setting,) = results.gather([RunRecord(cell, {}, batches, {"peak_mib": 1.0})], [])
    return setting.systems[0].outcomes


def test_equal_mass_is_a_loop_over_sorted_images(drawn: tuple[Tensor, Tensor]) -> None:
    made = outcome(*drawn)
    assert made.confidences is not None
    assert made.correct is not None
    order = np.argsort(made.confidences)
    gap = 0.0
    for part in np.split(order, BINS):
        gap += len(part) * abs(made.correct[part].mean() - made.confidences[part].mean())
    assert METRICS["calibration-mass"].of(made) == pytest.approx(gap / COUNT)


def correct(values: list[int]) -> Outcome:
    images = np.arange(len(values))
    return Outcome(images, np.array(values), np.ones(len(values), np.int64), True)


def test_the_worst_thousand_in_a_row() -> None:
    made = correct([1] * 700 + [0] * 600 + [1] * 1200)
    assert METRICS["worst-1000"].of(made) == pytest.approx(0.4)
    assert METRICS["worst-1000"].of(correct([1] * 999)) is None


def test_settling_is_the_last_time_away_from_the_end() -> None:
    assert METRICS["settling"].of(correct([0] * 100 + [1] * 900)) == 909  # 809 / 909 < 0.89
    assert METRICS["settling"].of(correct([1] * 50)) == 0


def test_several_domains_are_a_mean_or_the_worst(make_run: Make) -> None:
    runs = [make_run("tent", [domain], images=200) for domain in ("fog-5", "snow-5")]
    (setting,) = results.gather(runs, [])
    (system,) = setting.systems
    each = [float(run.accuracy or 0) for run in runs]
    worst = estimate(system, setting.domains, METRICS["worst-domain"])
    error = estimate(system, setting.domains, METRICS["error"])
    assert worst
    assert error
    assert (worst.value, worst.over) == (min(each), "images")
    assert worst.interval.low < worst.value < worst.interval.high
    assert error.value == pytest.approx(1 - np.mean(each))
    time = estimate(system, setting.domains, METRICS["time"])
    assert time
    assert time.value == pytest.approx(5.0)
    assert time.over == ""


def test_the_jackknife_covers(drawn: tuple[Tensor, Tensor]) -> None:
    """Of a number that is a mean it is as wide as Student's interval of the mean."""
    made = outcome(*drawn)
    assert made.likelihoods is not None
    value = METRICS["nll"].of(made)
    assert value
    low, high = over_images(METRICS["nll"], [made], value)
    expected = 2 * 1.96 * made.likelihoods.std() / np.sqrt(COUNT)
    assert high - low == pytest.approx(expected, rel=0.4)


def test_old_records_say_what_they_lack(bench: Path) -> None:
    (setting,) = results.read([bench]).settings
    for name in ("calibration", "nll", "brier", "auroc", "top5"):
        with pytest.raises(InputError, match=r"needs records that hold .*an older tapr did"):
            table(setting, METRICS[name])
    with pytest.raises(InputError, match="did you mean 'brier'"):
        METRICS["brir"]


@pytest.mark.parametrize("name", ["error", "worst-domain", "time", "forward", "settling"])
def test_tables_take_any_metric(bench: Path, name: str) -> None:
    (setting,) = results.read([bench]).settings
    made = table(setting, METRICS[name])
    head, *lines = export.to_csv([made]).splitlines()
    assert f",{name},low,high," in head
    assert len(lines) == 6 * 5
    assert made.metric.heading.replace(", %", " in %") in export.to_markdown([made])
    assert made.metric.title[:1].upper() + made.metric.title[1:] in export.to_latex([made])
    (headline,) = words.headline(made)
    assert headline.endswith(" is better.")
    best = min if METRICS[name].lower else max
    assert made.best(None) == best(row.mean.value for row in made.rows if row.mean)


def test_the_page_and_the_comparison_take_any_metric(bench: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = ["report", str(bench), "--metric", "error", "--no-examples", "-o", str(page)]
    CliRunner().invoke(app, command, catch_exceptions=False)
    assert "<h3>Error, %</h3>" in page.read_text()
    command = ["compare", str(bench), "--methods", "source,tent", "--metric", "error"]
    text = CliRunner().invoke(app, command, catch_exceptions=False).stdout
    assert "A: source: error 5" in text
    assert "B is better than A: -" in text
    assert "McNemar" in text
    command[-1] = "time"
    text = CliRunner().invoke(app, command, catch_exceptions=False).stdout
    assert "B minus A: +4.000 ms; these records do not say how sure" in text


def test_two_sides_of_a_calibration(make_run: Make) -> None:
    """The difference of a metric that is no mean has an interval around it."""
    random = np.random.default_rng(0)

    def sure(run: RunRecord, by: float) -> RunRecord:
        batches = [
            dataclasses.replace(
                batch,
                top=[[p, 0] for p in batch.predicted],
                probabilities=[[by + 0.1 * random.random(), 0.0] for _ in batch.predicted],
            )
            for batch in run.batches
        ]
        return dataclasses.replace(run, batches=batches)

    runs = [sure(make_run("norm", images=400), 0.6), sure(make_run("tent", images=400), 0.9)]
    (setting,) = results.gather(runs, [])
    sides = [paired.Side(system.name, setting, system) for system in setting.systems]
    found = paired.compare(sides[0], sides[1], METRICS["calibration"])
    assert found.overall.interval
    assert found.overall.interval.low < found.overall.difference < found.overall.interval.high
    assert (found.overall.p, found.overall.fixed) == (None, None)
    assert "B is worse than A: +" in "\n".join(paired.verdict(found, "A", "B"))
