"""`tapr adapt`: any list of images, rows as it goes, resuming after every kind of stop."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from typer.testing import CliRunner, Result

import tapr
from tapr.cli import app

MODEL = """
import os, pathlib, signal, torch
from torch import nn

class Net(nn.Sequential):
    stop = None  # (lines of out.csv, forwards after that)
    def forward(self, images):
        if self.written() == int(os.environ.get("KILL_AT", -1)):
            os.kill(os.getpid(), signal.SIGKILL)
        if Net.stop and self.written() >= Net.stop[0]:
            Net.stop = Net.stop[0], Net.stop[1] - 1
            if Net.stop[1] < 0:
                raise KeyboardInterrupt
        return super().forward(images)

    def written(self):
        path = pathlib.Path("out.csv")
        return path.read_bytes().count(10) if path.exists() else 0

def build():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 6, 3, 2), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten()
        return Net(*layers, nn.Linear(54, 3))

def sure():
    return nn.Sequential(build(), nn.Softmax(1))

def stuck():
    model = build()
    with torch.no_grad():
        model[4].bias[1] = 100
    return model
"""
IMAGES = 22


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with 22 images of 8 x 8 and a module with a model."""
    generator = np.random.default_rng(0)
    for number in range(IMAGES):
        path = tmp_path / "photos" / ("ant", "bee", "cat")[number % 3] / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (8, 8, 3), np.uint8)).save(path)
    (tmp_path / "photo_model.py").write_text(MODEL)
    (tmp_path / "names.txt").write_text("ant\nbee\ncat\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "photo_model", raising=False)
    return tmp_path


def adapt(source: str, *more: str, out: str = "out.csv", given: str | None = None) -> Result:
    command = ["adapt", source, "--model", "photo_model:build", "--size", "8", "-o", out]
    command += ["--batch-size", "5", "--method", "pest"]
    command += ["--option", "steps=2", "--option", "lr=0.01"]
    return CliRunner().invoke(app, [*command, *more], input=given)


def good(*arguments: str, **more: Any) -> str:
    done = adapt(*arguments, **more)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def rows(path: str = "out.csv") -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def tensor(names: list[str]) -> Tensor:
    pixels = np.stack([np.asarray(Image.open(Path("photos") / name)) for name in names])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255


def model() -> Any:
    import photo_model  # type: ignore[import-not-found]

    return photo_model.build().eval()


def test_every_image_gets_the_row_that_the_library_gives() -> None:
    output = good("photos", "--labels", "names.txt", "--seed", "3")
    found = rows()
    names = sorted(str(p.relative_to("photos")) for p in Path("photos").rglob("*.png"))
    assert [row["path"] for row in found] == names
    adapter = tapr.adapt(model(), "pest", steps=2, lr=0.01, seed=3)
    for start in range(0, IMAGES, 5):
        part = slice(start, start + 5)
        images = tensor(names[part])
        before, after = model()(images).softmax(1), adapter(images).softmax(1)
        for row, old, new in zip(found[part], before, after, strict=True):
            assert int(row["predicted"]) == new.argmax()
            assert int(row["source_predicted"]) == old.argmax()
            assert float(row["confidence"]) == pytest.approx(new.max().item(), abs=6e-5)
            assert float(row["source_confidence"]) == pytest.approx(old.max().item(), abs=6e-5)
            entropy = -(new * new.log()).sum().item()
            assert float(row["entropy"]) == pytest.approx(entropy, abs=6e-5)
            assert row["name"] == ("ant", "bee", "cat")[int(new.argmax())]
            assert row["error"] == ""
    right = sum(row["label"] == row["predicted"] for row in found) / IMAGES
    assert f"-> {right:.1%} of 22 images" in output
    assert "22 images predicted" in output
    assert sorted(os.listdir("out.csv.run")) in (["run.json"], [".lock", "run.json"])


def test_a_list_and_stdin_give_the_rows_of_the_folder() -> None:
    good("photos")
    names = [f"photos/{row['path']}" for row in rows()]
    Path("list.txt").write_text("\n".join(names) + "\n\n")
    good("list.txt", out="list.csv")
    good("-", out="stdin.csv", given="\n".join(names))
    assert [row["path"] for row in rows("list.csv")] == names
    assert Path("list.csv").read_bytes() == Path("stdin.csv").read_bytes()
    assert Path("out.csv").read_text() == Path("list.csv").read_text().replace("photos/", "")


def test_stopped_anywhere_it_goes_on_to_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    good("photos", out="whole.csv")
    import photo_model

    for stop in ((0, 1), (6, 0), (6, 2), (11, 3), (16, 1)):
        monkeypatch.setattr(photo_model.Net, "stop", stop)
        done = adapt("photos")
        assert done.exit_code == 130
        assert "the same command resumes where this one stopped" in done.output
        if stop[0]:
            with Path("out.csv").open("ab") as file:
                file.write(b'cat/99.png,1,"to')  # torn by a crash
    monkeypatch.setattr(photo_model.Net, "stop", None)
    assert "resuming after 15 images" in good("photos")
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()


@pytest.mark.slow
def test_killed_it_goes_on_to_the_same_rows(place: Path) -> None:
    good("photos", out="whole.csv")
    command = [sys.executable, "-m", "tapr.cli", "adapt", "photos", "-o", "out.csv"]
    command += ["--model", "photo_model:build", "--size", "8", "--batch-size", "5"]
    command += ["--method", "pest", "--option", "steps=2", "--option", "lr=0.01"]
    environment = {**os.environ, "KILL_AT": "11", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    assert len(rows()) == 10
    assert re.search("resuming after (5|10) images", good("photos"))
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()


def test_without_its_state_a_run_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    good("photos", out="whole.csv")
    import photo_model

    monkeypatch.setattr(photo_model.Net, "stop", (11, 0))
    assert adapt("photos").exit_code == 130
    for state in Path("out.csv.run").glob("*.state"):
        state.unlink()
    monkeypatch.setattr(photo_model.Net, "stop", None)
    good("photos")
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--batch-size", "4"], "started with batch_size = 5, now 4"),
        (["--option", "lr=0.1"], "started with lr = 0.01, now 0.1"),
        (["--method", "pest", "--option", "views=1"], "started with views = 2, now 1"),
        (["--model", "photo_model:stuck"], "started with model = photo_model:build, now photo_mod"),
        (["--size", "3x8x9"], "started with preprocessing = "),
        (["--no-compare"], "started with compare = True, now False"),
        (["--labels", "names.txt"], r"started with labels = \[\], now \['ant', 'bee', 'cat'\]"),
        (["--shuffle"], "started with another list: image 1 was ant/00.png, now .*--no-resume"),
    ],
)
def test_another_command_is_refused(more: list[str], message: str) -> None:
    good("photos")
    before = Path("out.csv").read_bytes()
    with pytest.raises(tapr.TaprError, match=message):
        raise adapt("photos", *more).exception or AssertionError
    assert Path("out.csv").read_bytes() == before


def test_starting_anew_and_files_of_others() -> None:
    good("photos")
    before = rows()
    good("photos", "--no-resume", "--option", "lr=0.3")
    assert [row["path"] for row in rows()] == [row["path"] for row in before]
    assert rows() != before
    Path("mine.csv").write_text("precious\n")
    for more in ([], ["--no-resume"]):
        with pytest.raises(tapr.TaprError, match=r"mine\.csv already exists and was not written"):
            raise adapt("photos", *more, out="mine.csv").exception or AssertionError
    assert Path("mine.csv").read_text() == "precious\n"


def test_a_finished_run_says_its_summary_again_and_takes_no_more() -> None:
    first = json.loads(good("photos", "--json").splitlines()[-1])
    again = json.loads(good("photos", "--json").splitlines()[-1])
    assert first == again
    assert (first["images"], first["predictions"]) == (IMAGES, "out.csv")
    with pytest.raises(tapr.TaprError, match="its adapted state was not kept"):
        raise adapt("photos", "--save-state", "late.state").exception or AssertionError
    Path("photos/zoo.png").write_bytes(Path("photos/ant/00.png").read_bytes())
    with pytest.raises(tapr.TaprError, match="finished with 22 images, and the list has more"):
        raise adapt("photos").exception or AssertionError


def test_states_are_kept_and_begun_with() -> None:
    names = sorted(str(path) for path in Path("photos").rglob("*.png"))
    good("-", "--save-state", "half.state", out="a.csv", given="\n".join(names[:10]))
    good("-", "--load-state", "half.state", out="b.csv", given="\n".join(names[10:]))
    good("-", out="both.csv", given="\n".join(names))
    assert rows("a.csv") + rows("b.csv") == rows("both.csv")
    assert tapr.load("half.state", model()).recipe["lr"] == 0.01


def test_images_that_cannot_be_read_are_named_and_the_others_done() -> None:
    Path("photos/ant/torn.png").write_bytes(b"no image")
    Path("photos/ant/gone.png").symlink_to("nowhere")
    output = good("photos")
    assert "not predicted: ant/torn.png: it is not an image" in output
    assert "22 images predicted, 2 could not be read or predicted" in output
    errors = {row["path"]: row["error"] for row in rows() if row["error"]}
    assert errors["ant/gone.png"] == "No such file or directory"
    assert len(rows()) == IMAGES + 2
    with pytest.raises(tapr.TaprError, match=r"cannot read the image ant/gone\.png: No such file"):
        raise adapt("photos", "--strict", out="strict.csv").exception or AssertionError


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--size", "9"], "the model failed on images of shape .*before anything was written"),
        (["--size", "1x8x8"], "expected images with 3 channels.* got 1"),
        (["--model", "photo_model:sure"], "probabilities, not logits"),
        (["--labels", "two.txt"], "expected 3 class names, .* got 2"),
        (["--mean", "123.7", "--std", "58.4"], "expected mean from 0 to 1, got 123.7; divide"),
        (["--mean", "0.5"], "expected mean and deviation"),
        (["--option", "lr"], "expected an option as name=value, got 'lr'"),
        (["--option", "lrr=1"], "unknown option 'lrr'.*did you mean 'lr'"),
        (["--size", "big"], "expected a size like 224 or 3x224x224, got 'big'"),
        (["--std", "a,b"], "expected --std as numbers"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_written(more: list[str], message: str) -> None:
    Path("two.txt").write_text("ant\nbee\n")
    with pytest.raises(tapr.TaprError, match=message):
        raise adapt("photos", *more).exception or AssertionError
    assert not Path("out.csv").exists()
    assert not Path("out.csv.run").exists()


def test_suspicious_beginnings_are_noted() -> None:
    alike = good("photos", "--model", "photo_model:stuck", "--batch-size", "16", out="a.csv")
    assert "predicts class 1 for all 16 images of the first batch: if that is wrong" in alike
    names = "\n".join(["photos/ant/00.png"] * 20)
    arguments = ["--labels", "names.txt", "--batch-size", "20"]
    sorted_by_class = good("-", *arguments, out="b.csv", given=names)
    assert "the first batch is all of one class" in sorted_by_class
    assert "--shuffle mixes them" in sorted_by_class


def test_normalisation_and_crop_are_done_as_asked() -> None:
    good("photos", "--mean", "0.5,0.4,0.3", "--std", "0.2")
    names = [row["path"] for row in rows()]
    mean = torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)
    logits = model()((tensor(names) - mean) / 0.2)
    assert [int(row["source_predicted"]) for row in rows()] == logits.argmax(1).tolist()


def test_only_errors_when_quiet_and_less_without_comparison() -> None:
    assert good("photos", "--quiet", "--no-compare") == ""
    assert {row["source_predicted"] for row in rows()} == {""}
    assert "unadapted" not in good("photos", "--no-compare")


def test_true_labels_from_a_csv() -> None:
    Path("truth.csv").write_text("path,label\nant/00.png,bee\nbee/01.png,2\n")
    summary = json.loads(
        good("photos", "--labels", "names.txt", "--truth", "truth.csv", "--json").splitlines()[-1]
    )
    assert summary["known"] == 2
    assert [row["label"] for row in rows() if row["label"]] == ["1", "2"]


def test_two_at_once_are_refused() -> None:
    from tapr.runs.predictions import Predictions

    with Predictions(Path("out.csv")).locked():
        assert "another tapr is writing" in str(adapt("photos").exception)
