"""`module:Class`: a method of your own goes wherever a name of ours does."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import tapr
from tapr import records
from tapr.methods import own
from tapr.runs import spec as specs
from tapr.runs.bench import Bench

CODE = """
import torch
from torch import nn
import tapr
from tapr.adapters import Adapter

class Shifted(Adapter):
    '''Adds to every logit what it has seen so far, scaled.'''

    def __init__(self, model, *, scale=0.5, words="none", **options):
        super().__init__(model, **options)
        self.scale = scale
        self.register_buffer("seen", torch.zeros(()))

    def adapt(self, images):
        self.seen += len(images)
        with torch.no_grad():
            logits = self.logits(images) + self.scale * self.seen
        return tapr.Prediction(logits, None, {}, steps=0, kept=0, refused=0)

class Deaf(Adapter):
    def __init__(self, model):
        super().__init__(model)

    adapt = Shifted.adapt

class Needy(Shifted):
    def __init__(self, model, scale, **options):
        super().__init__(model, scale=scale, **options)

class Learning(tapr.Learner):
    def __init__(self, model, *, lr=0.5, **common):
        super().__init__(model, lr=lr, **common)

    def objective(self, outputs):
        return tapr.Loss.mean(outputs.logits[0].square().sum(1))

nothing = 3

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_code.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_is_made_by_name_with_its_options_and_recorded(model: nn.Module, images: Tensor) -> None:
    adapter = tapr.adapt(model, "own_code:Shifted", scale=2.0, seed=3)
    assert torch.equal(adapter(images), model(images) + 16)
    assert adapter.recipe == {
        "method": "own_code:Shifted",
        "preset": "paper",
        "seed": 3,
        "scale": 2.0,
        "words": "none",
    }
    expected = {"scale": 0.5, "words": "none", "layout": "kept", "guard": "watch"}
    expected["sync"] = "auto"
    assert tapr.presets("own_code:Shifted")["paper"] == expected
    assert tapr.check(model, images, "own_code:Shifted").ok


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("own_code:Shifted", {"scael": 1}, "unknown option 'scael'.*did you mean 'scale'"),
        ("own_code:Shiftde", {}, "cannot get a method from own_code:Shiftde: .*no attribute"),
        ("no_such_code:Shifted", {}, "No module named 'no_such_code'"),
        ("own_code:nothing", {}, "a subclass of tapr.Adapter, got 3"),
        ("own_code:Deaf", {}, r"expected Deaf\(model, .*to hand 'seed' on.*takes only the model"),
        ("own_code:Needy", {}, "expected a default for the option 'scale' of Needy"),
    ],
)
def test_what_is_no_method_gets_a_sentence(
    model: nn.Module, method: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        tapr.adapt(model, method, **options)


def test_a_saved_state_loads_again_but_never_chooses_the_code(
    model: nn.Module, images: Tensor, tmp_path: Path
) -> None:
    adapter = tapr.adapt(model, "own_code:Shifted", scale=2.0)
    adapter(images)
    adapter.save(tmp_path / "state")
    with pytest.raises(tapr.TaprError, match=r"method=own_code:Shifted, which is your own; pass"):
        tapr.load(tmp_path / "state", model)
    again = tapr.load(tmp_path / "state", model, method="own_code:Shifted")
    assert torch.equal(again(images), adapter(images))


def test_it_is_benchmarked_beside_ours(tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.fromarray(np.full((2, 2, 3), 99, np.uint8)).save(tmp_path / "photos" / name / "1.png")
    spec = specs.make(
        {
            "name": "tiny",
            "data": "folder:photos",
            "corruptions": [],
            "model": "own_code:net",
            "methods": ["source", "own_code:Shifted"],
        }
    )
    bench = Bench(spec, tmp_path / "out")
    for cell in bench.cells:
        list(bench.run(cell))
    run, _ = records.read(tmp_path / "out" / bench.cells[1].file)
    assert bench.cells[1].file.startswith("clean.own_code.Shifted.seed0.")
    assert run.cell["method"] == run.cell["recipe"]["method"] == "own_code:Shifted"
    assert run.images == 2


@pytest.mark.slow
def test_the_installed_command_finds_code_of_the_working_directory(place: Path) -> None:
    # -P: as in a console script, the working directory is not on the path by itself
    command = [sys.executable, "-P", "-c", "from tapr.cli import main; main()"]
    command += ["doctor", "own_code:net", "--size", "3x2x2", "--method", "own_code:Shifted"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "own_code:Shifted would move no parameter" in done.stdout


def test_an_installed_package_offers_a_method_by_an_entry_point(
    model: nn.Module, images: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "shifted-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shifted\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tapr.methods]\nshifted = own_code:Shifted\n")
    own._offered.cache_clear()
    try:
        assert "shifted" in tapr.methods.known()
        adapter = tapr.adapt(model, "shifted", scale=2.0)
        assert torch.equal(adapter(images), model(images) + 16)
        assert adapter.recipe["method"] == "shifted"
        with pytest.raises(
            tapr.TaprError, match="unknown method 'shiftde'; did you mean 'shifted'"
        ):
            tapr.adapt(model, "shiftde")
    finally:
        own._offered.cache_clear()


def test_a_method_of_your_own_has_the_common_options_and_their_checks(model: nn.Module) -> None:
    assert tapr.presets("own_code:Learning")["paper"]["max_grad_norm"] is None
    assert tapr.presets("own_code:Learning")["paper"]["lr"] == 0.5
    adapter = tapr.adapt(model, "own_code:Learning", amp=True, statistics="running", votes="flip")
    assert adapter.policy == "running"
    assert (adapter.recipe["amp"], adapter.recipe["votes"]) == (True, "flip")
    with pytest.raises(tapr.TaprError, match="expected lr of at least 0 and below inf, got -1"):
        tapr.adapt(model, "own_code:Learning", lr=-1)
    with pytest.raises(tapr.TaprError, match="did you mean 'statistics'"):
        tapr.adapt(model, "own_code:Learning", statistic="batch")
