"""The health of a stream: the guard's verdict, and failures that show without the guard."""

from typing import get_args

from tapr.types import Health, Prediction, Verdict

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


def health(prediction: Prediction, before: Health) -> Health:
    """The health of a stream after a prediction, or the earlier one if the guard did not look.

    We read it from the prediction, since `adapter.health()` may belong to another stream's batch.
    """
    odd = int((~prediction.logits.isfinite()).any(1).sum())
    if odd:
        reason = f"{odd} of {len(prediction.logits)} images have no finite logits"
        return before._replace(verdict="harm", reason=reason, action="")
    found = prediction.health or before
    if prediction.refused and found.verdict == "ok":
        reason = f"the guard refused {prediction.refused} steps of the last batch"
        return found._replace(verdict="watch", reason=reason)
    return found
