"""The pre-flight report says what is there, and finds what will not work."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import tapr
from tapr import process
from tapr.cli import app


def test_a_good_model(model: nn.Sequential, images: Tensor) -> None:
    report = tapr.check(model, images.repeat(2, 1, 1, 1), "pest")
    assert report.ok
    text = str(report)
    for part in (
        "1 BatchNorm2d",
        "pest would adapt all 785 parameters",
        "cost per batch: 16 forward and 15 backward",
        "batch of 16, 3 channels, 10 x 9",
        "logits for 5 classes",
        "a batch like this takes about",
    ):
        assert part in text
    assert "PROBLEM" not in text


def test_the_model_is_left_alone(model: nn.Sequential, images: Tensor) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    tapr.check(model, images, "pest", lr=0.1)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("change", "method", "message"),
    [
        (lambda m, x: (nn.Sequential(m, nn.Softmax(1)), x), "pest", "probabilities, not logits"),
        (lambda m, x: (m, x * 255), "pest", "divide by 255"),
        (lambda m, x: (m.requires_grad_(False), x), "pest", "frozen"),
        (lambda m, x: (nn.Sequential(nn.Flatten(), nn.Linear(270, 2)), x), "norm", "found none"),
        (lambda m, x: (nn.Sequential(m, nn.Unflatten(1, (5, 1))), x), "source", "expected logits"),
        (lambda m, x: (m, x[:, :1]), "pest", "3 channels"),
    ],
)
def test_what_will_not_work_is_a_problem(
    model: nn.Sequential,
    images: Tensor,
    change: Callable[[nn.Module, Tensor], tuple[nn.Sequential, Tensor]],
    method: str,
    message: str,
) -> None:
    report = tapr.check(*change(model, images), method)
    assert not report.ok
    assert message in next(text for level, text in report.findings if level == "problem")


def test_notes(make_model: Callable[..., nn.Sequential], images: Tensor) -> None:
    inner = make_model()
    model = nn.Sequential(nn.Dropout2d(), inner)
    inner[0].requires_grad_(False)
    text = str(tapr.check(model, images, "pest"))
    assert "1 dropout layers: they stay switched off" in text
    assert "2 parameter tensors are frozen" in text
    assert "batches of 8 are small" in text
    assert "no statistics to re-estimate" in str(
        tapr.check(make_model(lambda c: nn.GroupNorm(2, c)), method="pest")
    )


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_models.py").write_text(
        "from torch import nn\n"
        "def small():\n"
        "    return nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 5))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    arguments = ["doctor", "my_models:small", "--method", "tent", "--size", "3x2x2"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "tent would adapt 6 of 71 parameters" in done.stdout
    done = CliRunner().invoke(app, [*arguments[:2], "--method", "tent"])
    assert done.exit_code == 1
    assert "PROBLEM" in done.stdout
    done = CliRunner().invoke(app, [*arguments[:2], "--size", "large"])
    assert isinstance(done.exception, tapr.TaprError)
    assert "expected a size like 3x32x32, got 'large'" in str(done.exception)


def test_an_empty_batch_raises_no_suspicion(model: nn.Sequential) -> None:
    assert tapr.check(model, torch.zeros(0, 3, 10, 9), "pest").ok


@pytest.mark.parametrize(("share", "noted"), [(0.2, True), (0.01, False)])
def test_kept_memory_is_recommended_where_it_pays(
    monkeypatch: pytest.MonkeyPatch, model: nn.Sequential, images: Tensor, share: float, noted: bool
) -> None:
    fresh = process.Fresh(taken=50 * 2**20, share=share)
    monkeypatch.setattr(process, "fresh_memory", lambda work: fresh)
    text = str(tapr.check(model, images, "norm"))
    assert ("50 MiB from the system afresh, about 20% of its time" in text) == noted
    assert ("tapr.keep_memory()" in text) == noted
