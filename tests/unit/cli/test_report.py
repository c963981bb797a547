"""`tapr report`: files, stdout, examples, warnings and errors."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from tapr.cli import app
from tapr.errors import DataError
from tapr.records import RunRecord

Make = Callable[..., RunRecord]
Save = Callable[[RunRecord, Path], Path]


def run(*arguments: object) -> Result:
    command = ["report", *map(str, arguments)]
    return CliRunner().invoke(app, command, catch_exceptions=False)


def test_tables_alone_make_no_page(
    bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(bench, "--csv", "a.csv", "--latex", "sub/a.tex", "--markdown", "-")
    assert result.stdout.startswith("### CIFAR-10-C, severity 5")
    assert (tmp_path / "a.csv").read_text().count("\n") == 31
    assert r"\toprule" in (tmp_path / "sub" / "a.tex").read_text()
    assert not (tmp_path / "report.html").exists()


def test_page_figures_and_a_bad_line(bench: Path, tmp_path: Path) -> None:
    path = sorted(bench.glob("*.jsonl"))[0]
    path.write_text(path.read_text() + '{"kind":"ba')
    result = run(bench, "--no-examples", "-o", tmp_path / "a.html", "--figures", tmp_path / "f")
    assert f"tapr: warning: {path}, line 7: not JSON" in result.stderr
    page = (tmp_path / "a.html").read_text()
    assert f"{path}, line 7: not JSON" in page
    assert "What adaptation changed" not in page
    names = {
        f"{name}.{kind}" for name in ("bars", "stream", "losses", "cost") for kind in ("svg", "png")
    }
    assert {file.name for file in (tmp_path / "f").iterdir()} == names


def with_labels(record: RunRecord, labels: list[int]) -> RunRecord:
    """The same hits and misses, for other labels."""
    batches = []
    for batch in record.batches:
        new = [labels[image] for image in batch.images]
        hits = [a == b for a, b in zip(batch.predicted, batch.labels or (), strict=True)]
        predicted = [label if hit else 1 - label for label, hit in zip(new, hits, strict=True)]
        batches.append(type(batch)(**{**batch.__dict__, "labels": new, "predicted": predicted}))
    return RunRecord(record.cell, record.environment, batches, record.end)


@pytest.fixture
def photos(tmp_path: Path, make_run: Make, save_run: Save) -> Path:
    """Runs on a folder of twelve pictures."""
    random = np.random.default_rng(0)
    for name in ("ant", "bee"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(6):
            pixels = random.integers(0, 256, (32, 32, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    for method in ("source", "pest-augmix"):
        record = make_run(
            method,
            ["gaussian_noise-5"],
            data=f"folder:{tmp_path / 'photos'}",
            origin={"dataset": "photos", "made": "generated", "seed": 3},
            images=12,
            batch_size=4,
            classes=["ant", "bee"],
        )
        save_run(with_labels(record, [0] * 6 + [1] * 6), tmp_path / "runs")
    return tmp_path / "runs"


def test_examples_are_the_pixels_the_methods_saw(photos: Path) -> None:
    from tapr.cli.report_examples import contact_sheet, gallery
    from tapr.corruptions import corrupt
    from tapr.datasets import load
    from tapr.reports import results
    from tapr.reports.tables import table

    shown = gallery(table(results.read([photos]).settings[0]))
    assert shown.pixels
    images = load(f"folder:{photos.parent / 'photos'}").images
    for (domain, number), pixels in shown.pixels.items():
        assert str(domain) == "gaussian_noise-5"
        index = np.array([number])
        (noisy,) = corrupt(images[index], "gaussian_noise", 5, seed=3, indices=index)
        assert np.array_equal(pixels, noisy)
    assert contact_sheet(shown)


def test_the_origin_of_clean_images(make_run: Make) -> None:
    from tapr.cli.report_examples import _domain
    from tapr.datasets import load
    from tapr.streams import clean

    data = load("digits")
    record = make_run(
        "tent", ["clean"], data="digits", split="test", origin=asdict(clean(data).origin)
    )
    domain = _domain(record, record.shifts[0], [3, 5])
    assert np.array_equal(domain.read(domain.numbers), data.images[np.array([3, 5])])


def test_the_origin_of_published_images(
    make_run: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read from files is read from them again, not corrupted here."""
    from tapr.cli.report_examples import _domain
    from tapr.streams import published

    monkeypatch.setenv("TAPR_CACHE", str(tmp_path / "cache"))
    (tmp_path / "files").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), np.uint8)
    np.save(tmp_path / "files" / "fog.npy", pixels)
    np.save(tmp_path / "files" / "labels.npy", np.tile([3, 8], 5))
    command = ["data", "get", "cifar10c", "--from", str(tmp_path / "files")]
    CliRunner().invoke(app, command, catch_exceptions=False)
    record = make_run("tent", ["fog-5"], origin=asdict(published("cifar10c", "fog", 5).origin))
    domain = _domain(record, record.shifts[0], [1])
    assert np.array_equal(domain.read(domain.numbers), pixels[[9]])


def test_the_page_has_the_examples(photos: Path, tmp_path: Path) -> None:
    run(photos, "-o", tmp_path / "a.html", "--figures", tmp_path / "f")
    assert "data:image/png;base64," in (tmp_path / "a.html").read_text()
    assert (tmp_path / "f" / "examples.png").exists()


def test_data_that_is_not_here_is_said(
    bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPR_CACHE", str(tmp_path / "empty"))
    run(bench, "-o", tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert "cannot be shown here: cifar10 is not on this machine" in page
    assert "data:image" not in page


def test_data_with_other_labels_is_said(photos: Path, tmp_path: Path) -> None:
    for number in range(5):
        old = tmp_path / "photos" / "bee" / f"{number}.png"
        old.rename(tmp_path / "photos" / "ant" / f"x{number}.png")
    run(photos, "-o", tmp_path / "a.html")
    assert "are not those in the records" in (tmp_path / "a.html").read_text()


def test_errors_leave_nothing(bench: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        run(tmp_path / "nowhere", "-o", tmp_path / "a.html")
    assert not (tmp_path / "a.html").exists()
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot write"):
        run(bench, "--csv", tmp_path / "file" / "a.csv")


def test_help_has_an_example() -> None:
    result = CliRunner().invoke(app, ["report", "--help"])
    assert "Example: tapr report runs/demo" in result.output
