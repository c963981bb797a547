"""What is said about a run; each sign of a collapse fires, and none on a healthy stream."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tapr.cli.adapt import text
from tapr.runs.predictions import Row
from tapr.runs.summary import Summary, summarise

NAMES = ("ant", "bee", "cat", "dog", "elk")
Classes = NDArray[np.int64]


def rows(source: Classes, adapted: Classes, **more: Any) -> list[Row]:
    values = {"confidence": 0.9, "entropy": 0.3, "source_confidence": 0.6, "source_entropy": 1.1}
    return [
        Row(f"{number}.png", predicted=int(new), source_predicted=int(old), **{**values, **more})
        for number, (old, new) in enumerate(zip(source, adapted, strict=True))
    ]


def healthy(images: int = 1200) -> tuple[Classes, Classes]:
    """The unadapted model leans to one class; the adapted one is right nine times of ten."""
    random = np.random.default_rng(0)
    truth = random.integers(0, 5, images)
    source = np.where(random.random(images) < 0.6, truth, 2)
    adapted = np.where(random.random(images) < 0.9, truth, random.integers(0, 5, images))
    return source, adapted


def taken_over(source: Classes, adapted: Classes) -> Classes:
    """In the last quarter, images on which the two did not agree are called elk."""
    late = np.arange(len(adapted)) >= len(adapted) * 3 / 4
    return np.where(late & (source != adapted), 4, adapted)


def drifting(source: Classes, adapted: Classes) -> Classes:
    """At first the unadapted model's predictions, in the end unrelated ones, of all classes."""
    random = np.random.default_rng(1).random(len(adapted))
    return np.where(random < np.linspace(1, 0, len(adapted)), source, adapted)


@pytest.mark.parametrize("images", [30, 150, 799, 1200, 8000])
def test_a_healthy_stream_has_no_warning(images: int) -> None:
    summary = summarise(rows(*healthy(images)), NAMES)
    assert summary.warnings == []
    assert "WARNING" not in text(summary)


@pytest.mark.parametrize(
    ("change", "more", "sign"),
    [
        (
            taken_over,
            {},
            r"one class is taking over: \d+% of the last 300 images are predicted as elk",
        ),
        (
            lambda source, adapted: adapted,
            {"entropy": 0.001},
            "the entropy is near zero: 0.0010 nats",
        ),
        (
            drifting,
            {},
            r"the agreement with the unadapted model falls along the stream, from 9\d% to",
        ),
    ],
)
def test_each_sign_of_a_collapse_is_said_and_no_other(
    change: Callable[[Classes, Classes], Classes], more: dict[str, float], sign: str
) -> None:
    source, adapted = healthy()
    summary = summarise(rows(source, change(source, adapted), **more), NAMES)
    (warning,) = summary.warnings
    assert re.match(sign, warning)
    assert f"WARNING  {warning}" in text(summary)


def test_a_class_that_grows_where_the_unadapted_model_was_stuck_on_it_is_seen() -> None:
    _, adapted = healthy()
    stuck = np.full(len(adapted), 4)  # so that elk's share only falls, and others' come from 0
    assert summarise(rows(stuck, adapted), NAMES).warnings == []
    late = (np.arange(len(adapted)) >= 900) & (np.arange(len(adapted)) % 3 == 0)
    (warning,) = summarise(rows(stuck, np.where(late, 4, adapted)), NAMES).warnings
    assert re.search(r"as elk \(100% by the unadapted model\), of the first ones 2\d%", warning)


def test_a_model_that_was_sure_before_is_not_suspected() -> None:
    sure = rows(*healthy(), entropy=0.001, source_entropy=0.002)
    assert summarise(sure, NAMES).warnings == []


@pytest.mark.parametrize("images", [200, 400, 600])
def test_a_short_stream_does_not_collapse_without_a_warning(images: int) -> None:
    """As PEST does in contrast at 100 times its rate: no class takes over, but all is certain."""
    source, adapted = healthy(images)
    late = np.arange(images) >= images // 2
    given = rows(source, adapted, source_entropy=1.3)
    collapsed = [
        row._replace(entropy=0.1 if end else 0.7) for row, end in zip(given, late, strict=True)
    ]
    (warning,) = summarise(collapsed, NAMES).warnings
    assert warning.startswith("the entropy is near zero: 0.1000 nats at the end, 1.3000 with the")
    surer = [
        row._replace(entropy=0.2 if end else 0.7) for row, end in zip(given, late, strict=True)
    ]
    assert summarise(surer, NAMES).warnings == []


def test_refused_steps_are_said() -> None:
    assert "3 steps were rolled back" in summarise(rows(*healthy()), NAMES, 3).warnings[0]


def test_the_numbers() -> None:
    given = rows(np.array([0, 0, 1, 4]), np.array([0, 1, 1, 1]))
    given = [row._replace(label=label) for row, label in zip(given, (0, 1, 4, None), strict=True)]
    summary = summarise([*given, Row("torn.png", error="it is not an image")], NAMES)
    assert (summary.images, summary.failed, summary.changed) == (4, 1, 2)
    assert summary.agreement == (0.5, 0.5)
    assert summary.entropy == (1.1, 0.3)
    assert summary.most_entropy == round(math.log(5), 4)
    assert summary.confidence == (0.6, 0.9)
    assert (summary.known, summary.accuracy) == (3, (0.3333, 0.6667))
    assert summary.classes[:2] == [("ant", 2, 1), ("bee", 1, 3)]
    shown = text(summary)
    for line in (
        "4 images predicted, 1 could not be read or predicted",
        "predictions that adaptation changed  2 (50.0%)",
        "mean entropy                         1.100 -> 0.300 nats (at most 1.609)",
        "bee       1 ->       3  ##############################",
        "ant       2 ->       1  ##########",
    ):
        assert line in shown.splitlines()
    assert Summary(**json.loads(json.dumps(asdict(summary)))).warnings == []


def test_without_a_comparison_there_is_less_to_say() -> None:
    given = [Row("a.png", 1, confidence=0.5, entropy=0.7), Row("b.png", 1, None, 0.5, 0.7)]
    summary = summarise(given, NAMES)
    assert (summary.changed, summary.agreement, summary.entropy) == (None, None, (None, 0.7))
    assert "unadapted" not in text(summary)
    assert "bee       2  ####" in text(summary)


def test_nothing_predicted() -> None:
    summary = summarise([Row("torn.png", error="it is not an image")], NAMES)
    assert (summary.images, summary.failed) == (0, 1)
    assert "0 images predicted, 1 could not" in text(summary)


def test_many_classes_are_cut_short() -> None:
    names = [f"kind {number}" for number in range(1000)]
    shown = text(summarise(rows(np.arange(1000), np.arange(1000) // 2), names))
    assert "and 980 more classes with 960 images" in shown


def test_health_is_a_strip_along_the_stream() -> None:
    told = ["ok"] * 600 + ["watch answered"] * 300
    told += ["harm unlearnt"] * 100 + ["harm restarted"] * 200
    given = [row._replace(health=said) for row, said in zip(rows(*healthy()), told, strict=True)]
    summary = summarise(given, NAMES)
    assert summary.strip == "." * 30 + "+" * 15 + "#" * 15
    assert summary.acts == " " * 30 + "a" * 15 + "u" * 5 + "r" * 10
    assert summary.guard == {"answered": 300, "unlearnt": 100, "restarted": 200}
    assert "....+++" in text(summary)
    assert "300 answered, 100 unlearnt, 200 restarted" in text(summary)


def test_without_health_there_is_no_strip() -> None:
    summary = summarise(rows(*healthy()), NAMES)
    assert (summary.strip, summary.guard) == ("", {})
    assert "health" not in text(summary)
    short = [row._replace(health="ok") for row in rows(*healthy(3))]
    assert summarise(short, NAMES).strip == "..."
    assert summarise([], NAMES).strip == ""


def test_a_thousand_classes_are_not_a_thousand_lines() -> None:
    names = [f"kind {number}" for number in range(1000)]
    source = np.arange(600)
    adapted = np.where(source < 40, 7, source)
    lines = text(summarise(rows(source, adapted), names)).splitlines()
    assert len(lines) < 60
    assert any(re.search(r"^kind 7 +1 -> +40", line) for line in lines)
    start = next(place for place, line in enumerate(lines) if line.startswith("most changed"))
    assert lines[start].endswith("of 40 classes that are called more or less often")
    assert lines[start + 1] == "  kind 7  1 -> 40"
    assert len(lines[start + 1 :]) >= 10
