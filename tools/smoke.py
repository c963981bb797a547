"""Try an installed tapr, without its checkout: `python tools/smoke.py` in a clean environment.

It needs nothing but the package and its required dependencies: no extra, no download, no network.
"""

import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import tapr

SHIPPED = (
    *("models/weights/cifar10-small.safetensors", "runs/specs/digits.toml"),
    *("reports/templates/report.html", "service/pages/dashboard.html", "py.typed"),
)


def command(*words: str, folder: Path) -> None:
    """Run a command of tapr in a folder; it must end well."""
    print("+ tapr", *words, flush=True)
    subprocess.run([sys.executable, "-m", "tapr.cli", *words], cwd=folder, check=True)


def main() -> None:
    """Look at the files, then use the library and the command."""
    assert "site-packages" in tapr.__file__, f"expected an installed tapr, got {tapr.__file__}"
    missing = [name for name in SHIPPED if not (files("tapr") / name).is_file()]
    assert not missing, f"expected these files in the package: {missing}"

    images = torch.rand(16, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    adapter = tapr.adapt(tapr.models.load("cifar10-small"), guard="off")
    assert adapter(images).shape == (16, 10)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "photos").mkdir()
        for number, image in enumerate((images * 255).byte().permute(0, 2, 3, 1).numpy()):
            Image.fromarray(np.asarray(image)).save(folder / "photos" / f"{number:02d}.png")
        command("--version", folder=folder)
        command("--help", folder=folder)
        command("adapt", "photos", "--model", "cifar10-small", "-o", "out.csv", folder=folder)
        rows = (folder / "out.csv").read_text("utf-8").splitlines()
        assert len(rows) == 17, f"expected a heading and 16 rows, got {len(rows)} lines"
    print(f"tapr {tapr.__version__} works on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
