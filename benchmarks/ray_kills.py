"""The small leaderboard by local processes, by Ray, and by Ray with workers killed: equal records?

    python -m benchmarks.ray_kills [--kills 10] [--json FILE] [--folder FOLDER] [-- FLAGS]

All three are `tapr bench leaderboard --size small FLAGS`, the latter two on a Ray of this machine.
During the last one, a worker in the middle of a cell is killed (SIGKILL) every few seconds. The
records must be equal but for clocks, memory and the machine's facts, none lost and none twice.
"""

import argparse
import json
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


def compared(expected: dict[str, Any], folder: Path) -> dict[str, Any]:
    found = essence(folder)
    return {
        "equal": sum(found.get(name) == run for name, run in expected.items()),
        "differ": sum(name in found and found[name] != run for name, run in expected.items()),
        "missing": len(expected.keys() - found.keys()),
        "too many": len(found.keys() - expected.keys()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--pause", type=float, default=5, help="seconds between kills, on average")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the workers")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--json", type=Path)
    parser.add_argument("flags", nargs="*")
    given = parser.parse_args()
    random.seed(given.seed)
    folder = given.folder or Path(tempfile.mkdtemp())
    flags = [*given.flags, "--quiet", "--out"]
    began = time.monotonic()
    subprocess.run([*COMMAND, *flags, str(folder / "processes")], check=True)
    result: dict[str, Any] = {
        "flags": given.flags,
        "processes": {"seconds": round(time.monotonic() - began)},
    }
    expected = essence(folder / "processes")
    result["cells"] = len(expected)
    result["images"] = sum(len(batch["predicted"]) for run in expected.values() for batch in run[1])
    for name, kills in (("ray", 0), ("ray, with kills", given.kills)):
        began, out = time.monotonic(), folder / name
        killed = disturbed([*COMMAND, *flags, str(out), "--on", "ray"], kills, given.pause)
        seconds = round(time.monotonic() - began)
        result[name] = {"killed": killed, "seconds": seconds, **compared(expected, out)}
        print(name, result[name], flush=True)
        if result[name]["equal"] != len(expected) or result[name]["too many"] or killed < kills:
            sys.exit(1)
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
