"""What the last batch says about the health of a stream."""

from typing import Literal, NamedTuple

from tapr.adapters import Adapter
from tapr.types import Prediction

Verdict = Literal["ok", "watch", "harm"]
VERDICTS: tuple[Verdict, ...] = ("ok", "watch", "harm")


class Health(NamedTuple):
    """A verdict, and the reason in words where it is not "ok"."""

    verdict: Verdict = "ok"
    why: str = ""


def health(adapter: Adapter, prediction: Prediction) -> Health:
    """The health of the stream that the adapter holds, after this prediction.

    The only place of the service that judges an adapter.
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
    return Health()
