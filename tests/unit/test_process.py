"""What the command sets for its process, at its start and never on import: memory and signals."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

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


@pytest.mark.skipif(not process._glibc(), reason="only glibc has this setting")
def test_what_keeping_memory_would_save_is_measured() -> None:
    measure = """
from tapr import process
churn = lambda: [bytearray(1 << 24) for _ in range(20)] and None
before = process.fresh_memory(churn)
process.keep_memory()
print(before.taken >> 20, before.share, process.fresh_memory(churn))
"""
    taken, share, kept = run(measure)[-1].split()
    assert 16 <= int(taken) <= 400  # MiB; twenty blocks of 16, of which some may be used again
    assert 0 < float(share) <= 1
    assert kept == "None"


@pytest.mark.parametrize("answer", ["musl 1.2", None, ValueError("unknown name")])
def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    def confstr(name: str) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("os.confstr", confstr)
    assert process.keep_memory() is False
    assert process.fresh_memory(lambda: None) is None


def test_the_command_settles_it_before_torch_is_loaded() -> None:
    first, *_, last = run(MAIN)
    assert (first, last) == ("kept", "PASSIVE False")


def test_the_user_decides() -> None:
    lines = run(MAIN, TAPR_ALLOCATOR="default", OMP_WAIT_POLICY="ACTIVE")
    assert "kept" not in lines
    assert lines[-1] == "ACTIVE False"


@pytest.fixture
def _heard() -> Iterator[None]:
    """Whoever runs the tests in the background of a script has told them to ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_heard")
@pytest.mark.parametrize(
    ("number", "kind"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, process.Terminated)],
)
def test_a_signal_unwinds_once_and_the_handlers_are_put_back(
    number: signal.Signals, kind: type[BaseException]
) -> None:
    before = signal.getsignal(number)
    with process.listening() as listener:
        with pytest.raises(KeyboardInterrupt) as caught:
            signal.raise_signal(number)
        assert caught.type is kind
        signal.raise_signal(number)  # at once: the same request
        assert listener.first == number
    assert signal.getsignal(number) == before


@pytest.mark.usefixtures("_heard")
def test_a_signal_waits_for_the_end_of_what_must_not_be_torn() -> None:
    done = []

    def write() -> None:
        with process.Uninterrupted(), process.Uninterrupted():
            signal.raise_signal(signal.SIGTERM)
            done.append("written")
        done.append("not reached")

    with process.listening(), pytest.raises(process.Terminated):
        write()
    assert done == ["written"]


@pytest.mark.usefixtures("_heard")
def test_an_error_in_what_must_not_be_torn_is_not_hidden_by_a_signal() -> None:
    def write() -> None:
        with process.Uninterrupted():
            signal.raise_signal(signal.SIGTERM)
            raise OSError("disk full")

    with process.listening(), pytest.raises(OSError, match="disk full"):
        write()


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with process.listening():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_elsewhere_than_in_the_main_thread_nothing_is_handled() -> None:
    def work() -> None:
        with process.listening(), process.Uninterrupted():
            found.append(signal.getsignal(signal.SIGTERM))

    found: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGTERM)]


def test_what_must_not_be_torn_waits_under_any_handler() -> None:
    done: list[object] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: done.append(number))
    try:
        with process.Uninterrupted():
            signal.raise_signal(signal.SIGTERM)
            done.append("written")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert done == ["written", signal.SIGTERM]
