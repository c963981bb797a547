"""What the last batch says about the health of a stream."""

from typing import NamedTuple, get_args

from tapr.adapters import Adapter
from tapr.adapters.guard import ACTIONS
from tapr.types import Prediction, Verdict

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class Health(NamedTuple):
    """A verdict, and the reason in words where it is not "ok"."""

    verdict: Verdict = "ok"
    why: str = ""


def health(adapter: Adapter, prediction: Prediction, before: Health) -> Health:
    """The health of the stream that the adapter holds, after this prediction.

    The only place of the service that judges an adapter. A batch that the guard did not look at
    leaves the health as it was.
    """
    odd = int((~prediction.logits.isfinite()).any(1).sum())
    if odd:
        return Health("harm", f"{odd} of {len(prediction.logits)} images have no finite logits")
    if prediction.refused:
        return Health(
            "watch",
            f"the guard refused {prediction.refused} steps of the last batch,"
            f" {adapter.refused} since the start or the last reset",
        )
    told = prediction.health
    if told is None:
        return Health() if adapter.guard.mode == "off" else before
    return Health(told.verdict, told.reason + ACTIONS[told.action])
