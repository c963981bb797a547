"""The documentation is true: generated pages are fresh, snippets run, commands exist."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.main import get_command

import tapr
from tapr.cli import app
from tools import check_links, cli_reference
from tools.docstrings import Docstrings

COMMAND = get_command(app)
ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = ["docs/index.md", "docs/getting-started.md", "docs/methods.md", "docs/faq.md"]


def test_the_command_reference_is_fresh() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert page == cli_reference.page(), "run `make docs` and commit docs/cli.md"
    words = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert words == cli_reference.glossary_page(), "run `make docs` and commit docs/glossary.md"


def test_the_leaderboard_is_the_committed_one() -> None:
    page = (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8")
    for name in ("table.md", "streams.md"):
        made = (ROOT / "results" / "leaderboard" / name).read_text(encoding="utf-8")
        assert made in page, "run `python tools/leaderboard.py` and commit docs/leaderboard.md"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = sorted(re.findall(r"[\w./-]+\.md", navigation))
    committed = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:]]
    assert listed == sorted(committed)


def _commands(text: str) -> Iterator[list[str]]:
    """The words behind `tapr` in code blocks and between backticks."""
    text = text.replace("\\\n", " ")
    lines = re.findall(r"^(?: {4}|\$ )(tapr [a-z].*)", text, re.MULTILINE)
    for line in lines + re.findall(r"`(tapr [a-z][^`|]*)`", text):
        yield shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_in_the_page_exists_with_its_options(page: Path) -> None:
    for words in _commands(page.read_text(encoding="utf-8")):
        command: Any = COMMAND
        rest = list(words)
        while rest and hasattr(command, "commands"):
            assert rest[0] in command.commands, f"tapr {' '.join(words)}"
            command = command.commands[rest.pop(0)]
        names = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
        used = {word.split("=")[0] for word in rest if re.match("-[a-z-]", word)}
        assert used <= names | {"--help"}, f"tapr {' '.join(words)}"


@pytest.mark.parametrize("name", RUN)
def test_the_snippets_run(
    name: str, model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    images = torch.rand(4, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    given: dict[str, Any] = {"torch": torch, "model": model, "images": images, "stream": [images]}
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text("utf-8"), re.DOTALL)
    for block in blocks:
        exec(compile(block, name, "exec"), given)  # each goes on where the one before ended
    assert blocks


# The classes of the first 100 test images of CIFAR-10.
LABELS = (
    "38806616310957985786704952409665459241954656093976"
    "98038877467363621237268802933881172527890386466007"
)


def test_the_readme_snippet_prints_a_gain(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As pasted, but on the 100 photographs that the tests have."""
    tiles = np.asarray(Image.open(ROOT / "tests" / "reference" / "cifar10_first_100.webp"))
    photographs = tiles.reshape(10, 32, 10, 32, 3).swapaxes(1, 2).reshape(100, 32, 32, 3)
    labels = np.array(list(LABELS), np.int64)
    data = tapr.datasets.Dataset("cifar10", photographs, labels, ("?",) * 10)
    monkeypatch.setattr(tapr.datasets, "load", lambda name: data)
    (block,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL
    )
    assert len(block.splitlines()) <= 15
    exec(compile(block, "README.md", "exec"), {})
    found = re.findall(r"(\w+): ([\d.]+)%", capsys.readouterr().out)
    assert [name for name, _ in found] == ["before", "after"]
    assert float(found[1][1]) > float(found[0][1]) + 10


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_no_page_has_both_sides_of_a_merge(page: Path) -> None:
    assert not re.search(r"^(<{7}|>{7}) ", page.read_text("utf-8"), re.MULTILINE)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


def test_links_of_the_readme_lead_somewhere() -> None:
    for page in ("README.md", "CONTRIBUTING.md"):
        targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text("utf-8"))
        assert [target for target in targets if not (ROOT / target).exists()] == []


def test_every_exported_name_is_in_the_api() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"tapr\.(?:errors\.)?(\w+)", page))
    assert set(tapr.__all__) - named == set()
    for package in tapr._PACKAGES:
        assert f"::: tapr.{package}\n" in page
        tables = [name for name in getattr(tapr, package).__all__ if name.isupper()]
        assert [name for name in tables if f"`{name}`" not in page] == []


def test_every_figure_has_its_finding_as_its_caption() -> None:
    for page in PAGES[1:]:
        text = page.read_text(encoding="utf-8")
        figures = re.findall(r"^!\[[^\]]*\]\(([^)]+)\)\n+(.)", text, re.MULTILINE)
        assert [name for name, first in figures if first != "*"] == [], page.name


GOOD = (
    '<link rel="stylesheet" href="a.css"><h2 id="here"></h2><a href="#here"></a><a href="b.html#x">'
)
BAD = {
    '<a href="c.html">': "index.html links to c.html: no such file",
    '<a href="#there">': "index.html links to #there: no place 'there' in it",
    '<a href="b.html#y">': "index.html links to b.html#y: no place 'y' in it",
    '<img src="c.png">': "index.html links to c.png: no such file",
    '<a href="folder/">': "index.html links to folder/: no such file",
    '<script src="https://cdn.example/a.js"></script>': (
        "index.html loads https://cdn.example/a.js from elsewhere"
    ),
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "a.css").touch()
    (tmp_path / "b.html").write_text('<p id="x"><a href="https://example.org/#any">')
    (tmp_path / "index.html").write_text(GOOD)
    return tmp_path


def test_a_site_without_dead_links(site: Path) -> None:
    assert check_links.problems(site) == []


@pytest.mark.parametrize("html", BAD)
def test_a_dead_link_is_named(html: str, site: Path) -> None:
    (site / "index.html").write_text(GOOD + html)
    assert check_links.problems(site) == [BAD[html]]


def test_dead_links_fail_the_build(site: Path) -> None:
    def code() -> int:
        return subprocess.run([sys.executable, check_links.__file__, site]).returncode

    assert code() == 0
    (site / "b.html").unlink()
    assert code() == 1
    (site / "index.html").unlink()
    assert code() == 1


MODULE = '''
class Found:
    """What was found.

    >>> Found().size
    3

    That is all.
    """

    size: int  # in pixels
    name: str
'''


def test_doctests_become_code_and_comments_become_words(tmp_path: Path) -> None:
    (tmp_path / "found.py").write_text(MODULE)
    extensions = griffe.load_extensions(Docstrings)
    module = griffe.load("found", search_paths=[tmp_path], extensions=extensions)
    words = {name: module[name].docstring for name in ("Found", "Found.size", "Found.name")}
    assert words["Found"].value == (
        "What was found.\n\n```pycon\n>>> Found().size\n3\n```\n\nThat is all."
    )
    assert words["Found.size"].value == "in pixels"
    assert words["Found.name"] is None
