"""Begin with the weights of another task: everything but the head."""

from torch import nn

from tapr.errors import ModelError
from tapr.models import checkpoint, zoo

HEAD = "fc."
INNER = "model."  # where a model of timm keeps its network, beside the normalisation


def start_from(model: nn.Module, weights: str, architecture: str) -> None:
    """Load `weights`, a file or "timm:NAME", into a fresh model of that architecture.

    The head stays as it is: its classes are others. The input normalisation comes along.
    """
    try:
        given = zoo.load(weights, architecture=None if _timm(weights) else architecture)
    except ModelError as error:
        if not _timm(weights):
            raise
        raise ModelError(f"{error}; or give a file you have with --weights PATH") from error
    state = {key.removeprefix(INNER): value for key, value in given.state_dict().items()}
    body = {key: value for key, value in state.items() if not key.startswith(HEAD)}
    head = {key: value for key, value in model.state_dict().items() if key.startswith(HEAD)}
    checkpoint.fit(model, checkpoint.Checkpoint(body | head, None), f"{weights} as {architecture}")


def _timm(weights: str) -> bool:
    return weights.startswith(zoo.TIMM)
