"""The sentences of the page."""

from collections.abc import Callable
from pathlib import Path

from tapr.records import RunRecord
from tapr.reports import results, words
from tapr.reports.tables import Table, table

Make = Callable[..., RunRecord]


def of(runs: list[RunRecord]) -> Table:
    (setting,) = results.gather(runs, [])
    return table(setting)


def plain(sentences: list[str]) -> str:
    return " ".join(sentences).replace("\u00a0", " ")


def test_headline(bench: Path) -> None:
    (setting,) = results.read([bench]).settings
    found = table(setting)
    means = {row.system.label: 100 * row.mean.value for row in found.rows if row.mean}
    text = plain(words.headline(found))
    assert text.startswith(
        f"PEST with AugMix predicts {means['pest-augmix']:.1f} % of the images right, the unadapted"
        f" model {means['source']:.1f} %: {means['pest-augmix'] - means['source']:.1f} points more."
    )
    part = means["pest-augmix"] - means["pest-control"]
    assert f"the gradient of PEST with AugMix itself adds {part:.1f} points" in text


def test_a_method_that_harms_is_called_so(make_run: Make) -> None:
    text = plain(words.headline(of([make_run("source"), make_run("mine")])))
    assert "points more" in text
    worse = [make_run("tent"), make_run("source")]
    worse[0].cell["adapts"], worse[1].cell["adapts"] = False, True  # type: ignore[index]
    assert "points fewer" in plain(words.headline(of(worse)))


def test_headline_of_few(make_run: Make) -> None:
    assert plain(words.headline(of([make_run("tent")]))).startswith("Tent predicts")
    assert plain(words.headline(of([make_run("source")]))).startswith(
        "The unadapted model predicts"
    )
    run = make_run("tent")
    cut = RunRecord(run.cell, run.environment, run.batches[:1], None)
    assert words.headline(of([cut])) == ["Nothing here is finished yet."]


def test_heading(make_run: Make) -> None:
    found = of([make_run("tent", ["fog-5", "snow-5"], protocol="continual", order="shuffled")])
    assert words.heading(found.setting) == (
        "CIFAR-10-C, severity 5, 400 images of each, batches of 100, model cifar10-small,"
        " continual stream, order shuffled"
    )


def test_different_statistics_are_said(make_run: Make) -> None:
    said = "predict with different batch-norm statistics"
    apart = of([make_run("source"), make_run("tent"), make_run("pest-augmix")])
    assert f"{said} (batch: Tent; running, fed by views: PEST AugMix)" in plain(words.notes(apart))
    same = of([make_run("source"), make_run("norm"), make_run("tent")])
    assert said not in plain(words.notes(same))


def test_what_the_mean_and_the_interval_are_over(make_run: Make) -> None:
    one = of([make_run("tent", [d]) for d in ("fog-5", "snow-5")])
    assert "mean is over these 2, not over the standard 15" in plain(words.notes(one))
    assert "95 % bootstrap over the images" in plain(words.notes(one))
    seeds = of([make_run("tent", seed=seed) for seed in (0, 1)])
    assert "Student's t over 2 seeds" in plain(words.notes(seeds))


def test_unfinished_and_mixed_machines_are_said(make_run: Make) -> None:
    run = make_run("tent")
    cut = RunRecord(run.cell, {**run.environment, "threads": 2}, run.batches[:1], None)
    text = plain(words.notes(of([cut, make_run("norm"), make_run("norm", ["snow-5"])])))
    assert "Tent is not finished: 1 of its 1 runs are cut short (†); nothing yet on snow." in text
    assert "The runs come from several machines or thread counts" in text


def test_versions_are_said(make_run: Make) -> None:
    runs = [make_run("tent"), make_run("norm")]
    runs[0].environment["torch"] = "2.6.0"  # type: ignore[index]
    text = plain(words.notes(of(runs)))
    assert "different versions of torch: 2.13.0 and 2.6.0." in text


def test_a_damaged_environment_is_no_reason_to_fail(make_run: Make) -> None:
    run = make_run("tent")
    odd = RunRecord(run.cell, {"machine": ["Linux"], "threads": {}}, run.batches, run.end)
    text = plain(words.notes(of([odd, make_run("norm")])))
    assert "The runs come from several machines or thread counts" in text
