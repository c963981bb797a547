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
