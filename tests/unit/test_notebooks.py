"""Every notebook runs from top to bottom, and says something."""

import json
import runpy
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "notebooks"
SAYS = {
    "first-steps.ipynb": "the model is unchanged: True",
    "own-method.ipynb": "it keeps every promise of a method",
    "own-model.ipynb": "unadapted, in bright light:",
}


def test_all_of_them_are_looked_at() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.ipynb")) == sorted(SAYS)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAYS)
def test_it_runs(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its cells as a script: they are plain Python, and a kernel would start torch once more."""
    cells = json.loads((FOLDER / name).read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    script = tmp_path / "notebook.py"
    script.write_text("\n\n".join(code), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        runpy.run_path(str(script), run_name="__main__")
    assert SAYS[name] in capsys.readouterr().out
