"""Every notebook runs from top to bottom, and says something."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
SAYS = {
    "first-steps.ipynb": "the model is unchanged: True",
    "own-method.ipynb": "it keeps every promise of a method",
    "own-model.ipynb": "unadapted, in bright light:",
}


def test_all_of_them_are_looked_at() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.ipynb")) == sorted(SAYS)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # what Jupyter warns of is not about us
@pytest.mark.parametrize("name", SAYS)
def test_it_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(FOLDER / name, as_version=4)
    for cell in notebook.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell["outputs"] = []
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert SAYS[name] in "".join(output.get("text", "") for output in outputs)
