"""One adapter, many threads; and processes that were forked after it was used.

`TAPR_ATTACK=N`: 8 threads make 10 N calls each, 200 at the most.
"""

import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.attack.kinds import METHODS
from torch import Tensor

import tapr
from tapr.testing import small_model

AREA = "one adapter, eight threads"
THREADS = 8
CALLS = min(200, 10 * int(os.environ.get("TAPR_ATTACK", "1")))


def batch(thread: int, call: int) -> Tensor:
    """A batch of its own for every call, of 1 to 3 images."""
    generator = torch.Generator().manual_seed(1000 * thread + call)
    return torch.rand(1 + call % 3, 3, 6, 6, generator=generator)


def make(method: str) -> tapr.Adapter:
    steps: dict[str, Any] = {"steps": 1} if method == "pest" else {}
    return tapr.adapt(small_model(), method, **steps)


def in_threads(work: Any) -> list[BaseException]:
    errors: list[BaseException] = []

    def run(thread: int) -> None:
        try:
            work(thread)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.parametrize("method", METHODS)
def test_threads_never_mix_their_batches(method: str, tally: Any, alike: Any) -> None:
    """The state is that of the same calls in the order taken, and so are all logits."""
    adapter = make(method)
    order: list[tuple[int, int]] = []
    current = threading.local()
    logits: dict[tuple[int, int], Tensor] = {}
    adapter.observe(lambda prediction: order.append((current.thread, current.call)))

    def work(thread: int) -> None:
        for call in range(CALLS):
            current.thread, current.call = thread, call
            logits[thread, call] = adapter(batch(thread, call))

    for error in in_threads(work):
        tally.count(AREA, "raw", f"{method}: {error!r}")
    assert sorted(order) == [(t, c) for t in range(THREADS) for c in range(CALLS)]
    assert order != sorted(order), "the threads took no turns: this proves nothing"
    alone = make(method)
    for place in order:
        right = torch.equal(alone(batch(*place)), logits[place])
        tally.count(AREA, "fine" if right else "wrong", f"{method}: other logits at {place}")
    same = alike(adapter.capture(), alone.capture())
    tally.count(AREA, "fine" if same else "lost", f"{method}: another state at the end")


def test_reset_save_and_load_wait_for_their_turn(tmp_path: Path, tally: Any) -> None:
    adapter = make("tent")
    adapter(batch(0, 0))
    adapter.save(tmp_path / "state")

    def work(thread: int) -> None:
        for call in range(CALLS // 2):
            kind = (thread + call) % 5
            if kind == 0:
                adapter.reset()
            elif kind == 1:
                adapter.save(tmp_path / f"state{thread}")
                tapr.load(tmp_path / f"state{thread}", small_model())
            elif kind == 2:
                adapter.load(tmp_path / "state")
            else:
                logits = adapter(batch(thread, call))
                fine = bool(logits.isfinite().all())
                tally.count(AREA, "fine" if fine else "wrong", "logits that are not finite")

    for error in in_threads(work):
        tally.count(AREA, "raw", f"{error!r}")
    adapter.reset()
    right = torch.equal(adapter(batch(0, 0)), make("tent")(batch(0, 0)))
    tally.count(AREA, "fine" if right else "lost", "reset no longer finds the source")


def test_bad_calls_of_one_thread_never_harm_the_others(tally: Any, alike: Any) -> None:
    adapter, alone = make("tent"), make("tent")

    def work(thread: int) -> None:
        for _ in range(CALLS):
            if thread % 2:
                tally.attempt(AREA, "bad images", lambda: f"predicted {adapter(batch(0, 0) * 9)}")
            else:
                adapter(batch(0, 0))

    for error in in_threads(work):
        tally.count(AREA, "raw", f"{error!r}")
    for _ in range(CALLS * THREADS // 2):
        alone(batch(0, 0))
    same = alike(adapter.capture(), alone.capture())
    tally.count(AREA, "fine" if same else "lost", "bad calls changed the state")


def in_fork(adapter: tapr.Adapter, answers: Any) -> None:
    try:
        adapter(batch(0, 0))
    except tapr.TaprError as error:
        answers.put(str(error))
    except Exception as error:
        answers.put(repr(error))
    else:
        answers.put("it worked")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("method", METHODS)
def test_a_fork_after_use_never_hangs(method: str, tally: Any) -> None:
    adapter = make(method)
    adapter(batch(0, 0))
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=in_fork, args=(adapter, answers))
    child.start()
    answer = answers.get(timeout=60)
    child.join(timeout=60)
    fine = child.exitcode == 0 and "got one in a fork" in answer
    tally.count("a fork after use", "fine" if fine else "raw", answer)
