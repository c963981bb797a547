"""The methods on docs/own-method-parts.md run as they stand there, and are short."""

import re
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapr

PAGE = Path(__file__).parents[2] / "docs" / "own-method-parts.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
NAMES = ("Pupil", "SureMemory", "TentByPrototypes", "NormThenNeighbours")


@pytest.mark.parametrize(("number", "name"), list(enumerate(NAMES)))
def test_the_class_is_a_method(
    model: nn.Module, images: Tensor, monkeypatch: pytest.MonkeyPatch, number: int, name: str
) -> None:
    block = BLOCKS[number]
    assert block.count("\n") < 40
    module = ModuleType("page_of_parts")
    exec(block, module.__dict__)
    monkeypatch.setitem(sys.modules, "page_of_parts", module)
    adapter: Any = tapr.adapt(model, f"page_of_parts:{name}")
    first = [adapter(images) for _ in range(3)]
    adapter.reset()
    assert all(torch.equal(adapter(images), before) for before in first)
    tapr.testing.check_method(partial(tapr.adapt, method=f"page_of_parts:{name}"))


def test_every_block_is_run() -> None:
    assert len(BLOCKS) == len(NAMES)
