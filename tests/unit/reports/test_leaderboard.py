"""Methods across settings: ranks, how sure they are, the frontier, and the page's numbers."""

import csv
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tapr.cli import app
from tapr.records import RunRecord
from tapr.reports import explore, export, plots, results, words
from tapr.reports.leaderboard import Leaderboard, Spent, frontier, leaderboard, spent
from tapr.reports.metrics import METRICS
from tapr.reports.tables import table

Make = Callable[..., RunRecord]
Save = Callable[[RunRecord, Path], Path]
METHODS = ("source", "norm", "tent", "pest-augmix")
STREAMS = ({"protocol": "each"}, {"protocol": "continual"}, {"protocol": "mixed"})


def runs(make_run: Make, streams: tuple[dict[str, str], ...] = STREAMS) -> list[RunRecord]:
    return [
        make_run(method, ["fog-5"], images=400, **stream)
        for stream in streams
        for method in METHODS
    ]


def made(found: list[RunRecord], metric: str = "accuracy") -> Leaderboard:
    settings = results.gather(found, [])
    board = leaderboard([table(setting, METRICS[metric]) for setting in settings])
    assert board
    return board


@pytest.fixture
def board(make_run: Make) -> Leaderboard:
    return made(runs(make_run))


def test_the_best_mean_rank_comes_first(board: Leaderboard) -> None:
    assert [line.name for line in board.lines] == ["pest-augmix", "tent", "norm", "source"]
    for line in board.lines:
        ranks = [place.rank for place in line.places if place]
        assert line.rank == pytest.approx(np.mean(ranks))
        assert line.rank is not None
        assert line.interval.low <= line.rank <= line.interval.high
    assert board.lines[-1].interval == (4, 4), "far behind on any pictures"


def test_few_pictures_leave_ranks_open(make_run: Make) -> None:
    names = ("norm", "tent", "pest-augmix")
    few = [make_run(n, images=40, protocol=p) for n in names for p in ("each", "continual")]
    widths = [line.interval.high - line.interval.low for line in made(few).lines]
    assert max(widths) >= 1


def test_streams_stand_in_the_order_of_their_names(board: Leaderboard) -> None:
    found = [words.stream(each.setting) for each in board.tables]
    assert found == ["reset each", "continual", "mixed"]


def test_less_is_better_for_an_error(make_run: Make) -> None:
    names = [line.name for line in made(runs(make_run), "error").lines]
    assert names == ["pest-augmix", "tent", "norm", "source"]


def test_a_metric_that_is_no_share_has_ranks_without_intervals(make_run: Make) -> None:
    line = made(runs(make_run), "time").lines[0]
    assert line.rank == 1.5, "source and norm take as long"
    assert np.isnan(line.interval.low)


def test_what_lacks_a_setting_has_no_mean_rank(make_run: Make) -> None:
    found = runs(make_run)[:-1]
    board = made(found)
    assert [line.name for line in board.lines] == ["tent", "norm", "source", "pest-augmix"]
    assert board.lines[-1].rank is None
    assert board.lines[-1].places[-1] is None
    assert [line.rank for line in board.lines[:3]] == [1, 2, 3], "among those that are everywhere"


def test_as_text_it_stands_before_the_tables(board: Leaderboard) -> None:
    markdown = export.to_markdown(board.tables, board)
    assert markdown.startswith("### Leaderboard: accuracy in %\n")
    head, _, first, *_ = [line for line in markdown.splitlines() if line.startswith("|")]
    assert head == "| method | mean rank | 95 % interval | reset each | continual | mixed |"
    name, rank, interval, *cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert (name, rank, interval) == ("PEST AugMix", "1.0", "[1.0 - 1.0]")
    for cell, place in zip(cells, board.lines[0].places, strict=True):
        assert place
        assert cell == f"**{100 * place.estimate.value:.1f}**"
    assert markdown.count("### ") == 1 + 3
    latex = export.to_latex(board.tables, board)
    assert latex.count(r"\begin{tabular}") == 1 + 3
    assert r"method & mean rank & 95 \% interval & reset each & continual & mixed \\" in latex
    assert r"PEST AugMix & 1.0 & [1.0--1.0] & \textbf{" in latex


def test_the_csv_tells_streams_apart(make_run: Make) -> None:
    once = make_run("tent", images=100, protocol="continual")
    setting = {**once.cell["setting"], "rounds": 3}
    again = make_run("tent", images=100, setting=setting)
    settings = results.gather([once, again], [])
    lines = csv.DictReader(export.to_csv([table(each) for each in settings]).splitlines())
    assert {line["stream"] for line in lines} == {"continual", "continual, 3 rounds"}


def test_one_setting_is_no_leaderboard(make_run: Make) -> None:
    settings = results.gather(runs(make_run)[:4], [])
    assert leaderboard([table(setting) for setting in settings]) is None


def test_the_frontier_is_what_nothing_beats_in_both(board: Leaderboard) -> None:
    points = [
        Spent(board.lines[0], value, time)
        for value, time in [(0.5, 1), (0.4, 2), (0.7, 3), (0.7, 4), (0.9, 9), (0.6, 1)]
    ]
    accuracy, error = METRICS["accuracy"], METRICS["error"]
    found = [(p.value, p.milliseconds) for p in frontier(points, accuracy)]
    assert found == [(0.6, 1), (0.7, 3), (0.9, 9)]
    assert [(p.value, p.milliseconds) for p in frontier(points, error)] == [(0.5, 1), (0.4, 2)]
    (model,) = spent(board).values()
    times = {each.line.name: each.milliseconds for each in model}
    assert times == pytest.approx({"source": 1, "norm": 1, "tent": 5, "pest-augmix": 9})
    assert plots.costs(board)


def test_the_pages_numbers_are_those_of_the_tables(board: Leaderboard) -> None:
    content = json.loads(explore.data(board))
    accuracies = content["values"]["accuracy"]
    for at, each in enumerate(board.tables):
        rows = {row.system.name: row for row in each.rows}
        for place, method in enumerate(content["methods"]):
            row = rows[method["name"]]
            assert row.mean
            expected = [row.mean.value, *row.mean.interval]
            assert accuracies[at][place][0] == pytest.approx(expected, abs=1e-4)
            assert len(accuracies[at][place]) == 1 + len(each.domains)
    names = {metric["name"] for metric in content["metrics"]}
    assert {"accuracy", "error", "time", "worst-domain"} <= names
    assert not names & {"nll", "brier", "calibration"}, "these records lack them"
    assert content["ranks"][0][0] == board.lines[0].rank


def test_a_name_cannot_end_the_script(make_run: Make, save_run: Save, tmp_path: Path) -> None:
    for protocol in ("each", "continual"):
        for name in ("</script><b>", "tent"):
            run = make_run(name, images=100, protocol=protocol)
            save_run(run, tmp_path / "runs" / f"{protocol}-{len(name)}")
    text = written(tmp_path)
    assert text.count("</script") == text.count("<script")
    assert "<b>" not in text[text.index("<body>") : text.index("<footer>")]


def written(folder: Path) -> str:
    """The page of the records below a folder."""
    out = folder / "board.html"
    command = ["report", str(folder / "runs"), "--no-examples", "-o", str(out)]
    CliRunner().invoke(app, command, catch_exceptions=False)
    return out.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(make_run: Make, save_run: Save, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("leaderboard")
    for number, run in enumerate(runs(make_run)):
        save_run(run, folder / "runs" / str(number))
    return written(folder)


def test_the_page_stands_without_its_script(page: str) -> None:
    still = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert '<section id="explore" hidden>' in still
    ranks = still[still.index('<table class="ranks">') :]
    ranks = ranks[: ranks.index("</table>")]
    assert ranks.count("<tr>") == 1 + 4
    assert still.count('<table class="main">') == 3
    assert "<h1>Leaderboard: 4 methods in 3 settings</h1>" in still
    assert not re.search(r'(?:src|href)="(?!#|data:)', still)
    assert "http" not in re.sub(r'(xmlns(:\w+)?=)?"http://www.w3.org/[^"]*"', "", page)


def test_every_control_of_the_script_is_on_the_page(page: str) -> None:
    script = page[page.rindex("<script>") :]
    used = {*re.findall(r'\$\("(\w+)"\)', script), *re.findall(r'fill\("(\w+)"', script)}
    used |= {*re.findall(r'listen\("(\w+)"', script)}
    assert len(used) > 12
    assert [name for name in used if f'id="x-{name}"' not in page] == []


def test_with_too_many_numbers_the_leaderboard_stands_alone(
    make_run: Make, save_run: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a page of fifty thousand cells stays small: benchmarks/page.py measures it."""
    for number, run in enumerate(runs(make_run)):
        save_run(run, tmp_path / "runs" / str(number))
    monkeypatch.setattr("tapr.cli.report.MOST", 11)  # of twelve
    text = written(tmp_path)
    assert text.count("<table") == 2
    assert "too many numbers for a table of each setting" in text
    assert 'href="#s1"' not in text


NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="no node on this machine")
def test_the_script_does_what_its_controls_say(page: str, tmp_path: Path) -> None:
    """Under node, with a stub of a browser; tests/browser has the real one."""
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    stub = Path(__file__).parents[2] / "fixtures" / "dom.js"
    command = [str(NODE), str(stub), str(tmp_path / "page.html")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["visible"]
    head, *rows = found["first"]
    assert head[:2] == ["method", "mean rank ▲"]
    assert [row[0] for row in rows] == ["PEST AugMix", "Tent", "norm", "unadapted"]
    assert [float(row[1]) for row in rows] == [1, 2, 3, 4]
    falling, rising = ([float(row[2]) for row in found[key][1:]] for key in ("falling", "rising"))
    assert falling == sorted(falling, reverse=True)
    assert rising == falling[::-1]
    assert found["focus"] == "reset each · cifar10-small ▲", "the focus stays on the heading"
    titles = [row[0] for row in found["named"][1:]]
    assert titles == sorted(titles, key=str.lower)
    assert len(found["charts"]) == 4 * len({chart[0] for chart in found["charts"]})
    for name, dots, points, curves in found["charts"]:
        assert dots == 4
        assert points == (0 if name == "time" else 4)
        assert curves in (0, 4)
    assert [row[0] for row in found["filtered"][1:]] == ["Tent"]
    assert "Tent against unadapted" in found["difference"]
    assert "+" in found["difference"]
    assert "PEST AugMix" not in [row[0] for row in found["hidden"]]
    assert " – " in found["intervals"][1][2]
    assert "95 % interval" in found["said"]
    lines = list(csv.DictReader(found["csv"].splitlines()))
    assert len(lines) == 4 * (1 + 3)
    assert {line["metric"] for line in lines} == {"rank", "accuracy"}
