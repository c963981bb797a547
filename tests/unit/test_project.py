"""What holds for the project as a whole: layers, lazy imports, public names."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import tapr
from tapr import names
from tapr.methods import own

SOURCE = Path(tapr.__file__).parent
BASE = {"errors", "files", "names", "registry", "rng", "sync", "types"}
# Package or module -> what of tapr it may import, besides itself: docs/design.md.
LAYERS = {
    "errors": set(),
    "names": set(),
    "types": set(),
    "registry": {"errors"},
    "rng": {"errors"},
    "sync": {"errors"},
    "files": {"errors"},
    "cache": {"errors", "files"},
    "process": set(),
    "with_ray": {"errors", "process"},
    "older_records": {"names"},
    "records": {"errors", "frames", "names", "older_records"},
    "frames": {"errors", "files", "records"},
    "datasets": {*BASE, "cache"},
    "corruptions": {*BASE, "cache"},
    "augment": BASE,
    "models": BASE,
    "objectives": BASE,
    "streams": {*BASE, "datasets", "corruptions"},
    "adapters": {*BASE, "augment", "models", "objectives"},
    "methods": {*BASE, "datasets", "augment", "models", "objectives", "adapters"},
    "reports": {"errors", "names", "records", "registry"},
}
LAYERS["runs"] = set(LAYERS) - {"reports"}
LAYERS["testing"] = {"adapters", "errors", "types"}
LAYERS["client"] = {"errors"}
LAYERS["service"] = set(LAYERS) - {"client", "reports", "testing"}
LAYERS["cli"] = set(LAYERS)
LAYERS["__main__"] = {"cli"}


def imports(path: Path) -> Iterator[str]:
    """The parts of tapr that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "tapr":
            names = [f"tapr.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("tapr."))


def test_every_import_keeps_to_the_layers() -> None:
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if part != "__init__":
            wrong += [(str(path), each) for each in set(imports(path)) - LAYERS[part] - {part}]
    assert wrong == []


def test_no_method_subclasses_another_and_none_compares_a_name() -> None:
    """A method's name stands in its own file and in one table."""
    for name in names.METHODS:
        found = own.method(name)
        bases = [base for base in found.__mro__[1:] if base.__module__.startswith("tapr.methods")]
        assert bases == [], name
    words = names.METHODS.keys() - {"note"}  # a finding of `tapr doctor` may be a note, too
    compared = re.compile(rf"""[!=]= ["']({"|".join(words)})["']""")
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    assert [str(path) for path, text in texts.items() if compared.search(text)] == []


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize(
    "code",
    [
        "import tapr; dir(tapr)",
        "import tapr.cli",
        "import sys; sys.argv = ['tapr', '--help']\nfrom tapr.cli import main\n"
        "try: main()\nexcept SystemExit as stop: assert not stop.code",
        "import tapr.reports",
    ],
)
def test_torch_is_not_imported_before_it_is_needed(code: str) -> None:
    assert run(code + "\nimport sys; print('torch' in sys.modules)").split()[-1] == "False"


def test_every_public_name_resolves_and_is_documented() -> None:
    for name in tapr.__all__:
        assert getattr(tapr, name).__doc__, name
    assert set(tapr.__all__) == tapr._PACKAGES | set(tapr._EXPORTS)
    assert dir(tapr) == tapr.__all__


def test_the_distribution_has_one_version_and_one_name() -> None:
    root = SOURCE.parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == "torch-tapr"
    assert f"\nversion: {tapr.__version__}\n" in (root / "CITATION.cff").read_text("utf-8")
    texts = [path.read_text("utf-8") for path in SOURCE.rglob("*.py")]
    hints = [hint for text in texts for hint in re.findall(r"pip install '([\w-]+)\[(\w+)", text)]
    assert {name for name, _ in hints} == {"torch-tapr"}
    assert {extra for _, extra in hints} <= project["optional-dependencies"].keys()


def test_a_wrong_name_of_the_package_gets_a_suggestion() -> None:
    with pytest.raises(AttributeError, match="did you mean 'adapt'"):
        getattr(tapr, "adpat")  # noqa: B009
