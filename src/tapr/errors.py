"""The exceptions of tapr: one tree, every message says what was expected and what came.

TaprError
├── InputError (ValueError)     an argument or an image is not what the call takes
│   └── UnknownNameError (KeyError)   a name nobody knows, with the nearest ones
├── ModelError                  the model cannot be adapted, or loaded, as asked
├── StateError                  a saved state is not ours, damaged, or of another model
└── DataError                   a data set, archive or record on disk is missing or wrong
"""


class TaprError(Exception):
    """The root: `except TaprError` catches everything tapr raises on purpose."""


class InputError(TaprError, ValueError):
    """An argument or an image is not what the call takes."""


class UnknownNameError(InputError, KeyError):
    """A name that no registry knows; the message offers the nearest ones."""

    __str__ = Exception.__str__  # a KeyError would put the sentence in quotes


class ModelError(TaprError):
    """The model cannot be adapted, or loaded, as asked."""


class StateError(TaprError):
    """A saved state is not ours, is damaged, or belongs to another model."""


class DataError(TaprError):
    """A data set, archive or record on disk is missing or wrong."""
