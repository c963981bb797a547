"""What the shell completes is what there is."""

import subprocess
import sys
from collections.abc import Iterable

import pytest

from tapr import augment, corruptions, methods, models, names, streams
from tapr.cli import app, completing, data
from tapr.cli.ending import run
from tapr.reports.metrics import METRICS
from tapr.runs import spec

TABLES: dict[str, tuple[Iterable[str], Iterable[str]]] = {
    "methods": (names.METHODS, methods.known()),
    "protocols": (names.PROTOCOLS, streams.PROTOCOLS),
    "orders": (names.ORDERS, streams.ORDERS),
    "metrics": (names.METRICS, METRICS),
    "augmentations": (names.AUGMENTATIONS, augment.AUGMENTATIONS),
    "data": ([*names.DATA, "frost"], data._entries()),
    "corruptions": (names.CORRUPTIONS, corruptions.CORRUPTIONS),
    "specs": (completing.specs(""), spec.READY),
    "models": (completing.models(""), models.SHIPPED),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_names_are_those_of_the_registry(name: str) -> None:
    completed, registered = TABLES[name]
    assert sorted(completed) == sorted(registered)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mod", ["models"]),
        ("bench dig", ["digits"]),
        ("bench --methods source,ten", ["source,tent", "source,tent-x10", "source,tent-x100"]),
        ("bench --methods pest-c", ["pest-control"]),
        ("bench --corruptions fog,gla", ["fog,glass_blur"]),
        ("bench --order s", ["shuffled", "sorted", "shift"]),
        ("doctor cifar100-small-", ["cifar100-small-rotation"]),
        ("data get mn", ["mnist"]),
        ("show cifar10 --corruption sn", ["snow"]),
        ("ablate ran", ["randaugment"]),
    ],
)
def test_a_line_is_completed(
    line: str,
    expected: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["tapr", *line.split(" ")]
    monkeypatch.setenv("_TAPR_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    monkeypatch.setattr(sys, "argv", ["tapr"])
    with pytest.raises(SystemExit):
        run(app)
    assert capsys.readouterr().out.split() == expected


def test_completion_does_not_import_torch() -> None:
    code = (
        "import sys; from tapr.cli import completing as names\n"
        "print(names.specs('dem'), names.models('digits-small-'), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['demo'] ['digits-small-rotation'] False\n"
