"""A device that cannot be used gets a sentence, wherever one is named."""

from pathlib import Path

import pytest

from tapr.errors import InputError
from tapr.runs import spec
from tapr.runs.adapting import Adapting, Request
from tapr.runs.bench import Bench
from tapr.runs.device import usable

SENTENCE = "cannot use the device 'abacus': "


def test_a_device_nobody_has() -> None:
    with pytest.raises(InputError, match=SENTENCE):
        usable("abacus")


def test_in_a_benchmark(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=SENTENCE):
        Bench(spec.load("digits", {"device": "abacus"}), tmp_path)


def test_on_your_own_images(tmp_path: Path) -> None:
    request = Request(str(tmp_path), "digits-small", tmp_path / "out.csv", device="abacus")
    with pytest.raises(InputError, match=SENTENCE):
        Adapting(request)
