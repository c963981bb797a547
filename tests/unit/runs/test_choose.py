"""A method is chosen by whom the witness believes; bad input is refused by a sentence."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from typer.testing import CliRunner

import tapr
from tapr.cli import app
from tapr.runs.choose import CANDIDATES, Choice


def pictures(count: int, seed: int = 0) -> Tensor:
    noise = torch.rand(count, 3, 10, 9, generator=torch.Generator().manual_seed(seed))
    return (noise + noise.roll(1, 3)) / 2


def test_the_unadapted_model_is_always_a_candidate(model: nn.Module) -> None:
    choice = tapr.choose(model, pictures(100), candidates=["norm"], batch_size=50)
    assert {each.method for each in choice.candidates} == {"source", "norm"}
    source = next(each for each in choice.candidates if each.method == "source")
    assert (source.credit, source.chance, source.changed) == (0, 0, 0)
    credits = [each.credit for each in choice.candidates]
    assert credits == sorted(credits, reverse=True)
    assert choice.best == choice.candidates[0]


OPPOSITE = """
import tapr

class Opposite(tapr.Loop):
    def adapt(self, images):
        prediction = super().adapt(images)
        return prediction._replace(logits=-prediction.logits)
"""


def test_a_method_that_ruins_the_model_is_not_chosen(
    model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "opposite.py").write_text(OPPOSITE)
    monkeypatch.syspath_prepend(tmp_path)
    choice = tapr.choose(model, pictures(400), candidates=["opposite:Opposite"], batch_size=50)
    assert choice.best.method == "source"
    ruined = choice.candidates[-1]
    assert ruined.changed == 1
    assert ruined.credit < -3 * ruined.chance
    assert "clearly ahead of opposite:Opposite" in choice.sure


def test_all_of_ours_can_be_tried_and_nothing_moves(model: nn.Module) -> None:
    images, before = pictures(64), torch.random.get_rng_state()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    choice = tapr.choose(model, images)
    assert {each.method for each in choice.candidates} == set(CANDIDATES)
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), before)
    again = tapr.choose(model, images)
    timeless = [[each._replace(seconds=0) for each in c.candidates] for c in (choice, again)]
    assert timeless[0] == timeless[1]


def test_what_a_model_cannot_have_is_said(make_model: Callable[..., nn.Sequential]) -> None:
    choice = tapr.choose(make_model(norm=None), pictures(64), candidates=["norm", "steady"])
    assert list(choice.refused) == ["norm"]
    assert "no batch-norm layers" in choice.notes[0]
    assert "not usable: norm" in str(choice)


def test_few_images_and_wrong_names_are_refused(model: nn.Module) -> None:
    with pytest.raises(tapr.TaprError, match="at least 64 images to choose by, got 10"):
        tapr.choose(model, pictures(10))
    with pytest.raises(tapr.TaprError, match="batch size of at least 1, got 0"):
        tapr.choose(model, pictures(64), batch_size=0)
    choice = tapr.choose(model, pictures(64), candidates=["tnet"])
    assert "did you mean 'tent'" in choice.refused["tnet"]


def test_one_candidate_needs_no_comparison(model: nn.Module) -> None:
    choice = tapr.choose(model, pictures(64), candidates=[])
    assert (choice.best.method, choice.sure) == ("source", "it is the only candidate")
    assert isinstance(choice, Choice)


def test_the_command_prints_the_line_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for number in range(70):
        blocks = random.integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(blocks.repeat(4, 0).repeat(4, 1)).save(f"photos/{number:02d}.png")
    words = ["choose", "photos", "--model", "cifar10-small", "--candidates", "norm,steady"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    last = result.output.strip().splitlines()[-1]
    assert last.startswith("tapr adapt photos --model cifar10-small --method ")
    result = CliRunner().invoke(app, [*words, "--json"])
    assert '"refused": {}' in result.output
