from typing import Any

import pytest

from tapr.errors import UnknownNameError
from tapr.registry import Registry


def test_a_registry_is_a_mapping_with_helpful_errors() -> None:
    colours = Registry("colour", {"red": 1, "green": 2})
    assert dict(colours) == {"red": 1, "green": 2}
    assert colours.get("blue") is None
    assert "blue" not in colours
    with pytest.raises(UnknownNameError) as caught:
        colours["gren"]
    assert str(caught.value) == "unknown colour 'gren'; did you mean 'green'?"
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("name", [None, 3, ["red"], print])
def test_what_is_no_name_is_refused_like_a_wrong_one(name: Any) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown colour .*'red'"):
        Registry("colour", {"red": 1})[name]
