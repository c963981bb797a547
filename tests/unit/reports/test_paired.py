"""Two systems on the same images."""

from collections.abc import Callable

import numpy as np
import pytest

from tapr.errors import InputError
from tapr.records import BatchRecord, RunRecord
from tapr.reports import results
from tapr.reports.paired import Comparison, Side, compare, verdict
from tapr.reports.statistics import mcnemar

Make = Callable[..., RunRecord]


def side(name: str, *runs: RunRecord) -> Side:
    (setting,) = results.gather(runs, [])
    return Side(name, setting, setting.systems[0])


def changed(batch: BatchRecord, **values: object) -> BatchRecord:
    return BatchRecord(**{**batch.__dict__, **values})


def with_batches(run: RunRecord, batches: list[BatchRecord], **setting: object) -> RunRecord:
    cell = {**run.cell, "setting": {**run.cell["setting"], **setting}}
    return RunRecord(cell, run.environment, batches, run.end)


def under_snow(run: RunRecord) -> RunRecord:
    """The same predictions, said to be under another corruption."""
    facts = {"corruption": "snow", "severity": 5}
    batches = [changed(batch, domain="snow-5", **facts) for batch in run.batches]
    cell = {**run.cell, "domains": [{"name": "snow-5", **facts}]}
    return RunRecord(cell, run.environment, batches, run.end)


def both(make_run: Make, domains: tuple[str, ...] = ("fog-5",)) -> Comparison:
    first = side("tent", *(make_run("tent", [domain]) for domain in domains))
    second = side("pest", *(make_run("pest-augmix", [domain]) for domain in domains))
    return compare(first, second)


def test_counts_against_a_plain_loop(make_run: Make) -> None:
    one, two = make_run("tent"), make_run("pest-augmix")
    found = compare(side("a", one), side("b", two)).overall
    fixed = broken = 0
    for a, b in zip(one.batches, two.batches, strict=True):
        assert a.labels
        for label, first, second in zip(a.labels, a.predicted, b.predicted, strict=True):
            fixed += first != label == second
            broken += first == label != second
    assert (found.fixed, found.broken) == (fixed, broken)
    assert (found.first, found.second) == (one.accuracy, two.accuracy)
    assert found.difference == pytest.approx((fixed - broken) / 400)
    assert found.p == mcnemar(fixed, broken)
    assert found.interval
    assert found.interval.low < found.difference < found.interval.high


def test_pairing_is_surer_than_two_intervals(make_run: Make) -> None:
    found = both(make_run).overall
    assert found.interval
    width = found.interval.high - found.interval.low
    unpaired = 2 * 1.96 * np.sqrt(sum(p * (1 - p) / 400 for p in (found.first, found.second)))
    assert width < 0.8 * unpaired


def test_domains_in_the_standard_order(make_run: Make) -> None:
    found = both(make_run, ("snow-5", "gaussian_noise-5"))
    assert [str(domain) for domain in found.domains] == ["gaussian_noise-5", "snow-5"]
    assert found.repeated
    assert found.overall.images == 800
    assert found.overall.fixed == sum(pairing.fixed or 0 for pairing in found.domains.values())


def test_a_picture_seen_twice_counts_once_for_the_interval(make_run: Make) -> None:
    """The same predictions under a second name make nothing surer."""
    runs = [make_run("tent"), make_run("pest-augmix")]
    once = compare(side("a", runs[0]), side("b", runs[1])).overall
    doubled = [[run, under_snow(run)] for run in runs]
    twice = compare(side("a", *doubled[0]), side("b", *doubled[1])).overall
    assert twice.interval == pytest.approx(once.interval)


def test_another_order_is_paired_by_the_image(make_run: Make) -> None:
    run = make_run("tent")
    turned = [
        changed(b, **{key: getattr(b, key)[::-1] for key in ("images", "labels", "predicted")})
        for b in run.batches
    ]
    found = compare(side("a", run), side("b", with_batches(run, turned, order="shuffled")))
    assert (found.overall.fixed, found.overall.broken, found.overall.p) == (0, 0, 1.0)
    assert found.differing == ["order: None / shuffled"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"data": "cifar100c"}, "got data 'cifar10c' of a and 'cifar100c' of b"),
        (
            {"origin": {"dataset": "cifar10c", "made": "published"}},
            "got origin 'cifar10, generated' of a and 'cifar10c, read from files' of b",
        ),
        ({"images": 300}, "a has 400 of fog-5 with seed 0, b has 300"),
        ({"seed": 1}, "a has fog-5 with seed 0, b has not"),
        ({"domains": ["snow-5"]}, "a has fog-5 with seed 0, b has not"),
    ],
)
def test_other_images_are_refused(make_run: Make, other: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare(side("a", make_run("tent")), side("b", make_run("norm", **other)))


def test_other_numbers_and_labels_are_refused(make_run: Make) -> None:
    run = make_run("tent")
    moved = [changed(b, images=[i + 1 for i in b.images]) for b in run.batches]
    renamed = [changed(b, labels=[9 - label for label in b.labels or ()]) for b in run.batches]
    unknown = [changed(b, labels=None) for b in run.batches]
    for batches in (moved, renamed):
        with pytest.raises(InputError, match="a and b have others in fog-5"):
            compare(side("a", run), side("b", with_batches(run, batches)))
    with pytest.raises(InputError, match="no labels"):
        compare(side("a", run), side("b", with_batches(run, unknown)))


def test_an_unfinished_run_is_named(make_run: Make) -> None:
    run = make_run("tent")
    cut = RunRecord(run.cell, run.environment, run.batches[:1], None)
    with pytest.raises(InputError, match=r"\(b is not finished\)"):
        compare(side("a", run), side("b", cut))


def test_a_mixed_stream_is_paired_by_its_order(make_run: Make) -> None:
    run = make_run("tent", protocol="mixed")
    batches = [changed(b, domain="mixed", images=[i // 2 for i in b.images]) for b in run.batches]
    mixed = with_batches(run, batches)
    assert compare(side("a", mixed), side("b", mixed)).overall.images == 400
    turned = [changed(b, number=3 - b.number) for b in batches]
    with pytest.raises(InputError, match="each occurs several times"):
        compare(side("a", mixed), side("b", with_batches(run, turned)))


def with_numbers(first: float, fixed: int, broken: int, make_run: Make) -> Comparison:
    run = make_run("tent", images=1000, batch_size=1000)
    (batch,) = run.batches
    labels = np.zeros(1000, int)
    before = (np.arange(1000) >= first * 1000).astype(int)  # the first ones are right
    after = before.copy()
    after[:broken] = 1
    after[1000 - fixed :] = 0
    sides = [
        side(
            name, with_batches(run, [changed(batch, labels=labels.tolist(), predicted=p.tolist())])
        )
        for name, p in (("a", before), ("b", after))
    ]
    return compare(sides[0], sides[1])


@pytest.mark.parametrize(
    ("fixed", "broken", "said"),
    [
        (90, 30, "B is better than A: +6.00 points"),
        (30, 90, "B is worse than A: -6.00 points"),
        (50, 48, "These images do not show a difference between A and B: +0.20 points"),
    ],
)
def test_verdict(make_run: Make, fixed: int, broken: int, said: str) -> None:
    lines = verdict(with_numbers(0.5, fixed, broken, make_run), "a", "b")
    assert lines[0] == "A: a: 50.00 % right"
    assert lines[3].startswith(said)
    assert f"B fixes {fixed} of A's mistakes and breaks {broken}" in lines[4]


def test_verdict_of_several_domains_has_a_table(make_run: Make) -> None:
    lines = verdict(both(make_run, ("snow-5", "fog-5")), "tent", "pest")
    assert any("does not" in line for line in lines)
    assert sum(line.startswith(("snow, severity 5", "fog, severity 5")) for line in lines) == 2
    assert "statistics: batch / running" in lines[-1]
    assert any("different batch-norm statistics (A: batch; B: running" in line for line in lines)
