"""The attack's bookkeeping: every try is counted by area and outcome, and summed up in a table.

`TAPR_ATTACK=N` multiplies the tries (each file says of what); `make attack` sets it to 50.
`TAPR_ATTACK_TABLE=FILE` writes the table as Markdown. A test fails when one of its tries was a raw
exception, a wrong result or lost data. A test that counts nothing is itself one try.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from tapr.adapters import Adapter
from tapr.errors import TaprError

Outcome = Literal["fine", "raw", "wrong", "lost"]
OUTCOMES: dict[Outcome, str] = {
    "fine": "clear sentence or right result",
    "raw": "raw exception",
    "wrong": "wrong result",
    "lost": "lost data, changed state",
}
_total: Counter[tuple[str, Outcome]] = Counter()


class Tally:
    """Counts what came of the tries of one test."""

    def __init__(self) -> None:
        self.bad: list[str] = []
        self.sentences = self.results = 0

    def count(self, area: str, outcome: Outcome, what: str = "", times: int = 1) -> None:
        """Count a try; `what` says which it was, should it be a bad one."""
        _total[area, outcome] += times
        if outcome != "fine":
            self.bad.append(f"{outcome}: {what}")

    def attempt(self, area: str, what: str, action: Callable[[], str | None]) -> str | None:
        """Count an action: done, or refused by a sentence, which is returned.

        The action returns what is wrong with its result; None: nothing.
        """
        try:
            wrong = action()
        except TaprError as error:
            self.sentences += 1
            self.count(area, "fine" if len(str(error)) > 10 else "raw", f"{what}: no sentence")
            return str(error)
        except Exception as error:
            self.count(area, "raw", f"{what}: {type(error).__name__}: {str(error)[:300]}")
            return None
        self.results += wrong is None
        self.count(area, "fine" if wrong is None else "wrong", f"{what}: {wrong}")
        return None

    def unchanged(self, area: str, what: str, adapter: Adapter, before: Any) -> bool:
        """Count a state that is not, bit for bit, what it was."""
        same = same_moment(adapter.capture(), before)
        if not same:
            self.count(area, "lost", f"{what}: the state of the adapter changed")
        return same


def same_moment(one: Any, two: Any) -> bool:
    """Are two moments of an adapter the same, bit for bit?"""
    return bool(
        one.tensors.keys() == two.tensors.keys()
        and all(same_bits(tensor, two.tensors[name]) for name, tensor in one.tensors.items())
        and (one.numbers, one.empty) == (two.numbers, two.empty)
    )


def same_bits(one: torch.Tensor, two: torch.Tensor) -> bool:
    if (one.dtype, one.shape, one.layout) != (two.dtype, two.shape, two.layout):
        return False
    one, two = (t.detach().to_dense() if t.layout != torch.strided else t for t in (one, two))
    return torch.equal(*(t.detach().contiguous().view(-1).view(torch.uint8) for t in (one, two)))


@pytest.fixture
def alike() -> Callable[[Any, Any], bool]:
    return same_moment


@pytest.fixture
def tally() -> Iterator[Tally]:
    own = Tally()
    yield own
    if own.bad:
        pytest.fail(f"{len(own.bad)} tries went wrong:\n" + "\n".join(own.bad[:40]))


def table() -> str:
    """The outcomes by area, as Markdown."""
    areas = sorted({area for area, _ in _total})
    lines = [
        "| area | tries | " + " | ".join(OUTCOMES.values()) + " |",
        "|---|---:|" + "---:|" * len(OUTCOMES),
    ]
    rows = [(area, [_total[area, outcome] for outcome in OUTCOMES]) for area in areas]
    together = [sum(column) for column in zip(*(counts for _, counts in rows), strict=True)]
    rows.append(("together", together))
    for area, counts in rows:
        cells = [area, f"{sum(counts):,}", *(f"{count:,}" for count in counts)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Any:
    report = yield
    if report.when == "call" and report.outcome != "skipped":
        counts = "tally" in item.fixturenames
        area = item.path.stem.removeprefix("test_").replace("_", " ")
        if report.failed:
            _total[area, "wrong" if call.excinfo.errisinstance(AssertionError) else "raw"] += 1
        elif not counts:
            _total[area, "fine"] += 1
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:  # a worker of xdist: its counts go to the one who prints
        output["attack"] = [[area, outcome, n] for (area, outcome), n in _total.items()]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    for area, outcome, n in getattr(node, "workeroutput", {}).get("attack", []):
        _total[area, outcome] += n


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _total or "TAPR_ATTACK" not in os.environ:
        return
    terminalreporter.section("attack")
    terminalreporter.write(table())
    if file := os.environ.get("TAPR_ATTACK_TABLE"):
        Path(file).write_text(table(), encoding="utf-8")
