"""Damaged and hostile specs and records: read, or refused by a sentence.

`TAPR_ATTACK=N`: 100 N specs and as many records are fuzzed, and as many tables drawn.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapr import records
from tapr.runs import spec

FILES = 100 * int(os.environ.get("TAPR_ATTACK", "1"))
SPECS, RECORDS = "fuzzed specs", "fuzzed records"
TEXT = """
data = "cifar10"
model = "cifar10-small"
corruptions = ["fog", "contrast"]
severities = [5, 1]
images = 500
protocol = "each"
batch_size = 200
seeds = [0, 1]
device = "cpu"

[methods.source]
method = "source"

[methods.mine]
method = "pest"
steps = 2
lr = 1e-4
augmentation = "augmix"
augmentation_options = { severity = 3 }
"""
FIELDS = [*spec.Spec.model_fields, "over", "nonsense", ""]
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    # What stands there rightly, in places where it does not.
    | st.sampled_from(["fog", "tent", "pest", "cifar10", "each", "os:system", "\0", "../..", 5]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def damaged(text: bytes, random: np.random.Generator) -> bytes:
    """One of many damages: bytes, lines, cuts, and words that mean something."""
    data = bytearray(text)
    kind = random.integers(6)
    place = int(random.integers(len(data)))
    if kind == 0:
        for spot in random.integers(0, len(data), random.integers(1, 6)):
            data[spot] = random.integers(256)
    elif kind == 1:
        del data[place:]
    elif kind == 2:
        del data[place : place + int(random.integers(1, 30))]
    elif kind == 3:
        data[place:place] = data[: int(random.integers(1, 80))]
    elif kind == 4:
        words = (b"null", b"NaN", b"1e999", b"[]", b"{}", b'""', b"-1", b"true", b"9" * 400)
        end = place + int(random.integers(1, 12))
        data[place:end] = words[random.integers(len(words))]
    else:
        lines = data.split(b"\n")
        random.shuffle(lines)
        data = bytearray(b"\n".join(lines))
    return bytes(data)


def test_a_fuzzed_spec_is_a_spec_or_a_sentence(tmp_path: Path, tally: Any) -> None:
    random, path = np.random.default_rng(19), tmp_path / "mine.toml"
    for number in range(FILES):
        path.write_bytes(damaged(TEXT.encode(), random))
        tally.attempt(SPECS, f"file {number}", lambda: is_spec(spec.load(str(path), {})))
    assert tally.sentences > tally.results > 0


def is_spec(made: Any) -> str | None:
    return None if made.name and made.methods and made.batch_size > 0 else f"accepted {made}"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"\0",
        b"a" * 10,
        b"[" * 5000,
        b"a." * 3000 + b"b = 1",
        TEXT.encode("utf-16"),
    ],
)
def test_what_is_no_toml_is_a_sentence(content: bytes, tmp_path: Path, tally: Any) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    tally.attempt(SPECS, f"{content[:9]!r}", lambda: f"accepted {spec.load(str(path), {})}")
    assert tally.sentences == 1


@pytest.mark.parametrize(
    "name", ["no/such.toml", "..toml", ".toml", "\0.toml", "", "nonsense", "/"]
)
def test_a_spec_that_is_not_there_is_a_sentence(name: str, tally: Any) -> None:
    tally.attempt(SPECS, repr(name), lambda: f"accepted {spec.load(name, {})}")
    assert tally.sentences == 1


def test_drawn_values_of_a_spec(tally: Any) -> None:
    @settings(max_examples=FILES)
    @given(st.sampled_from(FIELDS), values, st.sampled_from(FIELDS), values)
    @example("batch_size", 7, "seed", 3)  # few of those drawn at random are right
    def attack(one: str, first: Any, two: str, second: Any) -> None:
        table = {"name": "mine", "data": "cifar10", "model": "cifar10-small", "methods": ["source"]}
        table |= {one: first, two: second}
        tally.attempt(SPECS, repr(table), lambda: None if spec.make(table) else "nothing")

    attack()
    assert tally.sentences > tally.results > 0


def test_a_fuzzed_record_is_a_record_or_a_sentence(
    make_run: Callable[..., Any], save_run: Callable[..., Path], tmp_path: Path, tally: Any
) -> None:
    """Every line is either read, or named as one that cannot be."""
    random = np.random.default_rng(23)
    path = save_run(make_run("tent", ["fog-5"], images=40, batch_size=10), tmp_path)
    whole = path.read_bytes()
    for number in range(FILES):
        path.write_bytes(damaged(whole, random))
        tally.attempt(RECORDS, f"file {number}", lambda: read(path))
    assert tally.sentences
    assert tally.results


def read(path: Path) -> str | None:
    """Read a record and use it as reports do."""
    run, problems = records.read(path)
    used = (run.images, run.accuracy, run.seconds, records.confusion(run.batches))
    if not all(isinstance(problem, str) and problem for problem in problems):
        return f"problems without words: {problems}"
    return None if used else "nothing"


LINES: dict[str, Any] = {
    "a number": 3,
    "a list": [],
    "null": None,
    "no kind": {},
    "an unknown kind": {"kind": "bench"},
    "a kind that is a list": {"kind": []},
    "a run without a cell": {"kind": "run", "format": records.FORMAT},
    "a cell that is a list": {
        "kind": "run",
        "format": records.FORMAT,
        "cell": [],
        "environment": [],
    },
    "another format": {"kind": "run", "format": "tapr-run-99", "cell": {}, "environment": {}},
    "a batch of nothing": {"kind": "batch"},
}
CHANGES: dict[str, Any] = {
    "number": "first",
    "domain": 3,
    "images": 7,
    "labels": "cat",
    "predicted": None,
    "loss": [],
    "terms": [],
    "steps": "many",
    "refused": None,
    "forward": {},
    "seconds": "long",
}


@pytest.mark.parametrize("name", [*LINES, *CHANGES])
def test_a_line_of_another_kind_is_named(
    name: str,
    make_run: Callable[..., Any],
    save_run: Callable[..., Path],
    tmp_path: Path,
    tally: Any,
) -> None:
    path = save_run(make_run("tent", ["fog-5"], images=40, batch_size=10), tmp_path)
    lines = path.read_text().splitlines()
    if name in LINES:
        lines.insert(2, json.dumps(LINES[name]))
    else:
        lines[2] = json.dumps({**json.loads(lines[2]), name: CHANGES[name]})
    path.write_text("\n".join(lines) + "\n")

    def named() -> str | None:
        wrong, (_, problems) = read(path), records.read(path)
        return wrong or (None if len(problems) == 1 else f"{len(problems)} problems")

    tally.attempt(RECORDS, name, named)
