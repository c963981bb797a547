"""A stream through an adapter: what the records say about each image."""

from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import tapr
from tapr.records import BatchRecord, Shift
from tapr.runs.evaluate import evaluate
from tapr.streams import Domain, Origin, Stream
from tapr.streams import stream as streams
from tapr.types import Prediction

COUNT = 7
PIXELS = np.random.default_rng(0).integers(0, 256, (COUNT, 8, 8, 3), np.uint8)


def domain(*shift: Any, labels: bool = True) -> Domain:
    def read(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        return np.asarray(PIXELS[numbers])

    known = np.arange(COUNT) % 3 if labels else None
    return Domain(Origin("made up"), np.arange(COUNT), known, ("a",) * 8, read, *shift)


def net(classes: int) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, classes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    return model


def records(model: nn.Module, *domains: Domain, **options: Any) -> list[BatchRecord]:
    stream = Stream(domains, 4, **options)
    return list(evaluate(tapr.adapt(model, "source"), stream))


@pytest.mark.parametrize("classes", [8, 3])
def test_the_likeliest_classes_are_those_of_a_plain_softmax(classes: int) -> None:
    model = net(classes)
    first, second = records(model, domain("fog", 5))
    images = torch.from_numpy(PIXELS).permute(0, 3, 1, 2).double() / 255
    exact = model.double()(images).exp()
    exact = (exact / exact.sum(1, keepdim=True)).detach().numpy()  # [7, K]
    order = np.argsort(-exact, 1)[:, :5]
    assert first.top + second.top == order.tolist()
    found = np.array(first.probabilities + second.probabilities)
    assert found.shape == (COUNT, min(5, classes))
    np.testing.assert_allclose(found, np.take_along_axis(exact, order, 1), rtol=2e-5)
    true = exact[np.arange(COUNT), np.arange(COUNT) % 3]
    assert first.log_likelihoods
    assert second.log_likelihoods
    likelihoods = first.log_likelihoods + second.log_likelihoods
    np.testing.assert_allclose(likelihoods, np.log(true), rtol=2e-5, atol=1e-6)
    assert first.predicted == [row[0] for row in first.top]
    assert all(p == float(f"{p:.6g}") for row in first.probabilities for p in row)


def test_without_labels_there_is_no_likelihood() -> None:
    (first, _) = records(net(8), domain(labels=False))
    assert (first.labels, first.log_likelihoods) == (None, None)
    assert len(first.top) == 4


def test_a_record_says_which_corruption_and_how_strong() -> None:
    domains = domain("fog", 5), domain("snow", 3), domain()
    shifts = [record.shift for record in records(net(8), *domains, protocol="continual")]
    assert list(dict.fromkeys(shifts)) == [
        Shift("fog-5", "fog", 5),
        Shift("snow-3", "snow", 3),
        Shift("clean"),
    ]
    mixed = records(net(8), *domains, protocol="mixed")
    assert {record.shift for record in mixed} == {Shift("mixed")}


def test_an_observer_sees_every_prediction_with_its_record() -> None:
    seen: list[tuple[Prediction, BatchRecord]] = []

    def observe(prediction: Prediction, record: BatchRecord) -> None:
        seen.append((prediction, record))

    stream = Stream([domain("fog", 5)], 4)
    found = list(evaluate(tapr.adapt(net(8), "source"), stream, observe=observe))
    assert [record for _, record in seen] == found
    for prediction, record in seen:
        assert prediction.logits.argmax(1).tolist() == record.predicted


def test_the_images_of_a_batch_are_freed_before_the_next_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []
    as_tensor = streams.as_tensor

    def alone(pixels: NDArray[np.uint8]) -> Tensor:
        assert not any(earlier() is not None for earlier in made)
        images = as_tensor(pixels)
        made.append(ref(images))
        return images

    monkeypatch.setattr(streams, "as_tensor", alone)
    assert len(records(net(3), domain(), domain())) == len(made) > 1
