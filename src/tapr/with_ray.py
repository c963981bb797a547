"""The one way to reach Ray, for the cells of a benchmark and for the replicas of a server."""

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from tapr import process
from tapr.errors import DataError, InputError

_EXTRAS = {"ray": "ray", "ray.serve": "serve-ray"}
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing phones home
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # what Ray asks for, to be silent about it
}


@contextmanager
def connected(address: str | None, environment: dict[str, str], **here: Any) -> Iterator[Any]:
    """The module `ray`, connected to the cluster at `address`; without one, a Ray starts here.

    `here` are settings of `ray.init` for a Ray of our own, `environment` variables of its workers.
    What this began ends with the block.
    """
    # Ray reads its variables when it is imported. Whoever reaches its ports can run code: a Ray of
    # our own admits who has the token of this run; by itself it would write one into the home
    # folder. A cluster has its own.
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    own = {} if address else {**here, "include_dashboard": False}
    with process.variables({**_QUIET, **environment, **({} if address else token)}):
        ray = module("ray")
        try:
            ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
        except Exception as error:  # a start that took too long is a plain one of Ray's
            raise DataError(f"cannot reach Ray at {address or 'this machine'}: {error}") from error
        try:
            yield ray
        finally:
            ray.shutdown()


def module(name: str) -> Any:
    """A module of Ray, or a sentence that it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"--on ray needs {error.name}, which is not installed:"
            f" pip install 'torch-tapr[{_EXTRAS[name]}]'; without --on, this machine does the work"
        ) from error
