"""Reading the official CIFAR pickles without running any code of theirs."""

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from tapr.errors import DataError


def _encode(text: str, encoding: str) -> bytes:
    """What Python 3 writes for bytes in an old pickle protocol: always latin1."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"refused to encode as {encoding}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
    # numpy's own maker of empty arrays, under its names before and after numpy 2
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # type: ignore[dict-item]
    ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # type: ignore[dict-item]
}


class _Plain(pickle.Unpickler):
    """Knows arrays and nothing else: any other name in the file is refused, not imported."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no data file needs")
        return _ALLOWED[module, name]


def read_pickle(data: bytes, what: str) -> dict[bytes, Any]:
    """The dictionary in an official CIFAR pickle; `what` names the file in an error."""
    try:
        content = _Plain(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a damaged pickle may raise anything at all
        raise DataError(f"{what} is not an official CIFAR file: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{what}: expected a pickled dictionary, got {type(content).__name__}")
    return {key.encode() if isinstance(key, str) else key: content[key] for key in content}
