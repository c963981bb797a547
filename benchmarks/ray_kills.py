"""The small leaderboard by local processes and by Ray with workers killed at random: equal records?

    python -m benchmarks.ray_kills [--kills 10] [--folder FOLDER] [-- FLAGS OF tapr bench]

Both runs are `tapr bench leaderboard --size small FLAGS`. While the second one runs, on a Ray of
this machine, a worker in the middle of a cell is killed (SIGKILL) every few seconds. The records
must be equal but for clocks, memory and the machine's facts, with no cell lost and none twice.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tapr import records

COMMAND = [sys.executable, "-m", "tapr.cli", "bench", "leaderboard", "--size", "small"]


def essence(folder: Path) -> dict[str, Any]:
    """File -> what must not depend on where and how often a cell ran."""
    found = {}
    for path in sorted(folder.glob("*.jsonl")):
        run, problems = records.read(path)
        assert not problems, problems
        batches = [{**vars(batch), "seconds": None} for batch in run.batches]
        found[path.name] = (dict(run.cell), batches, run.end is not None)
    return found


def workers(driver: int) -> list[int]:
    """The processes below `driver` that are running a cell now."""
    parents, running = {}, []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text().rpartition(")")[2].split()
                title = (entry / "cmdline").read_bytes()
            except OSError:  # it has just ended
                continue
            parents[int(entry.name)] = int(status[1])
            if title.startswith(b"ray::_finish"):
                running.append(int(entry.name))
    return [pid for pid in running if driver in _above(pid, parents)]


def _above(pid: int, parents: dict[int, int]) -> list[int]:
    found = []
    while pid in parents:
        pid = parents[pid]
        found.append(pid)
    return found


def disturbed(command: list[str], kills: int, pause: float) -> int:
    """Run a command and kill workers below it; return how many were."""
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    done = 0
    while driver.poll() is None:
        time.sleep(random.uniform(0, 2 * pause))
        busy = workers(driver.pid)
        if busy and done < kills:
            os.kill(random.choice(busy), signal.SIGKILL)
            done += 1
    assert driver.returncode == 0, f"exit code {driver.returncode}"
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--pause", type=float, default=5, help="seconds between kills, on average")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("flags", nargs="*")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp())
    local, spread = folder / "processes", folder / "ray"
    subprocess.run([*COMMAND, *given.flags, "--out", str(local), "--quiet"], check=True)
    on_ray = [*COMMAND, *given.flags, "--out", str(spread), "--quiet", "--on", "ray"]
    killed = disturbed(on_ray, given.kills, given.pause)
    expected, found = essence(local), essence(spread)
    differing = [name for name in expected if found.get(name) != expected[name]]
    more = found.keys() - expected.keys()
    print(
        f"{len(expected)} cells; {killed} workers killed; {len(differing)} cells differ or are"
        f" missing, {len(more)} are there that should not"
    )
    if differing or more or killed < given.kills:
        sys.exit(1)


if __name__ == "__main__":
    main()
