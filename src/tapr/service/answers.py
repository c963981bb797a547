"""The schemas of answers, for the API's page and for readers of this code."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from tapr.service.engine import Answer


class Problem(BaseModel):
    """Why a request was refused."""

    error: str
    request: str


class Control(BaseModel):
    """The answer to an operator's request: what was done to which stream."""

    stream: str
    done: str
    result: str | None


class Likely(BaseModel):
    """A class, and how probable it is."""

    number: int
    name: str | None
    probability: float


class Image(BaseModel):
    """The likeliest classes of an image; none where the model's logits were not finite."""

    top: list[Likely]


class Judgement(BaseModel):
    """The guard's verdict on the stream, its reason, and what the guard did."""

    verdict: str
    reason: str
    action: str


class Predicted(BaseModel):
    """The answer to a request for predictions."""

    stream: str
    request: str
    predictions: list[Image]
    adapted: bool
    mode: str
    health: Judgement
    batch: int
    together: int
    seconds: dict[str, float]


def predicted(
    answer: Answer,
    stream: str,
    request: str,
    names: Sequence[str],
    top: int,
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """The answer as a JSON object, in the form of `Predicted`."""
    probabilities = answer.probabilities
    finite = probabilities.isfinite().all(1).tolist()
    values, classes = probabilities.nan_to_num().topk(min(top, probabilities.shape[1]))
    images = [
        {
            "top": [
                {"number": c, "name": names[c] if names else None, "probability": v}
                for c, v in zip(numbers, said, strict=True)
            ]
            if good
            else []
        }
        for numbers, said, good in zip(classes.tolist(), values.tolist(), finite, strict=True)
    ]
    return {
        "stream": stream,
        "request": request,
        "predictions": images,
        "adapted": answer.mode == "adapted",
        "mode": answer.mode,
        "health": {key: getattr(answer.health, key) for key in ("verdict", "reason", "action")},
        "batch": answer.batch,
        "together": answer.together,
        "seconds": {
            key: round(value, 6) for key, value in {**seconds, **answer.timings._asdict()}.items()
        },
    }
