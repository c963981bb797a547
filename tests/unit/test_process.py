"""The allocator and thread settings: done by the command at its start, never on import."""

import os
import subprocess
import sys

import pytest

from tapr import process

# Page faults of taking and freeing 64 MiB ten times, after the process is warm.
CHURN = """
import resource
def churn():
    for _ in range(10):
        block = bytearray(64 * 2**20)
        del block
churn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
churn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
MAIN = """
import sys, tapr.cli, tapr.process
tapr.process.keep_memory = lambda: print("kept")
sys.argv = ["tapr", "--version"]
try: tapr.cli.main()
except SystemExit: pass
import os; print(os.environ["OMP_WAIT_POLICY"], "torch" in sys.modules)
"""


def run(code: str, **variables: str) -> list[str]:
    clean = {k: v for k, v in os.environ.items() if k not in (process.VARIABLE, "OMP_WAIT_POLICY")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**clean, **variables}
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(not process._glibc(), reason="only glibc has this setting")
def test_kept_memory_is_used_again_and_import_changes_nothing() -> None:
    kept = "import tapr.process\nassert tapr.process.keep_memory()\n"
    plain = int(run("import tapr.process\n" + CHURN)[-1])
    assert int(run(kept + CHURN)[-1]) < plain / 10


@pytest.mark.parametrize("answer", ["musl 1.2", None, ValueError("unknown name")])
def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    def confstr(name: str) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("os.confstr", confstr)
    assert process.keep_memory() is False


def test_the_command_settles_it_before_torch_is_loaded() -> None:
    first, *_, last = run(MAIN)
    assert (first, last) == ("kept", "PASSIVE False")


def test_the_user_decides() -> None:
    lines = run(MAIN, TAPR_ALLOCATOR="default", OMP_WAIT_POLICY="ACTIVE")
    assert "kept" not in lines
    assert lines[-1] == "ACTIVE False"
