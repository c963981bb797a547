"""The code on docs/own-method.md runs as it stands there."""

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

PAGE = Path(__file__).parents[2] / "docs" / "own-method.md"
BLOCKS = [
    b for b in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "class" in b
]


@pytest.mark.parametrize(
    ("block", "name", "options"),
    [(0, "MarginTent", {"lr": 0.01}), (1, "EvenClasses", {"pull": 0.5})],
)
def test_the_class_is_a_method(
    model: nn.Module,
    images: Tensor,
    monkeypatch: pytest.MonkeyPatch,
    block: int,
    name: str,
    options: dict[str, Any],
) -> None:
    module = ModuleType("page_of_mine")
    exec(BLOCKS[block], module.__dict__)
    monkeypatch.setitem(sys.modules, "page_of_mine", module)
    adapter = tapr.adapt(model, f"page_of_mine:{name}", **options)
    first, second = adapter(images), adapter(images)
    assert not torch.equal(first, second)
    adapter.reset()
    assert torch.equal(adapter(images), first)
    tapr.testing.check_method(partial(tapr.adapt, method=f"page_of_mine:{name}"))
