"""Packages that only the page needs."""

from importlib import import_module
from typing import Any

from tapr.errors import InputError


def need(module: str) -> Any:
    """Import a module of the `report` extra, or say how to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(
            f"the page needs {package}, which is not installed: pip install 'tapr[report]'"
        ) from error
