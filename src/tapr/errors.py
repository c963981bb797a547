"""The exceptions of tapr: one tree, every message says what was expected and what came.

TaprError
├── InputError (ValueError)     an argument or an image is not what the call accepts
│   └── UnknownNameError (KeyError)   an unknown name; the message offers the nearest
├── ModelError                  the model cannot be adapted, or loaded, as asked
├── StateError                  a saved state is damaged, or of another program or model
├── DataError                   a data set, archive or record on disk is missing or wrong
└── SyncError                   a process that adapts with others is gone or hangs
"""

from collections.abc import Mapping
from typing import Any


class TaprError(Exception):
    """The base of all errors that tapr raises on purpose: `except TaprError` catches them."""


class InputError(TaprError, ValueError):
    """An argument or an image is not what the call accepts."""


class UnknownNameError(InputError, KeyError):
    """An unknown name; the message offers the nearest known ones."""

    __str__ = Exception.__str__  # a KeyError would put the sentence in quotes


class ModelError(TaprError):
    """The model cannot be adapted, or loaded, as asked."""


class StateError(TaprError):
    """A saved state is damaged, or belongs to another program or another model."""


class DataError(TaprError):
    """A data set, archive or record on disk is missing or wrong."""


class SyncError(TaprError):
    """A process that adapts together with others is gone, hangs, or has a different model."""


# What pydantic calls a problem -> what it expected; braces are filled from the problem itself.
_EXPECTED = {
    "bool_parsing": "true or false",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "dict_type": "a table",
    "string_type": "a text",
    "tuple_type": "a list",
}


def expectation(problem: Mapping[str, Any]) -> str:
    """What one entry of a pydantic `errors()` expected and what came, in our words.

    >>> expectation({"type": "less_than_equal", "ctx": {"le": 5}, "input": 6})
    'expected at most 5, got 6'
    """
    wanted = _EXPECTED.get(problem["type"])
    if wanted is None:
        return f"{problem['msg']}, got {problem['input']!r}"
    return f"expected {wanted.format(**problem.get('ctx', {}))}, got {problem['input']!r}"
