"""Do what the Dockerfile does, without Docker: `python tools/try_dockerfile.py FOLDER`.

Its steps run in order in an empty folder that stands for the image's root: the project is copied,
a fresh environment is made, the package is installed by the very `pip` line, and the entry point is
started with what it needs, as a process whose only writable places are /state and /tmp by
convention. What it cannot do without Docker: another user, and a root that is read-only.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOKEN = "predict-and-watch-0123456789"


def instructions() -> list[tuple[str, str]]:
    """The lines of the Dockerfile: instruction, rest."""
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def inside(image: Path, text: str) -> str:
    """A command with the image's absolute paths below the folder."""
    return re.sub(r"(?<![\w.])/(opt|src|state|run)\b", rf"{image}/\1", text)


def build(image: Path) -> tuple[dict[str, str], list[str]]:
    """Do the steps; the variables that are set, and the command to start."""
    variables: dict[str, str] = {}
    entry: list[str] = []
    here = image
    for word, rest in instructions():
        if word == "WORKDIR":
            here = Path(inside(image, rest))
            here.mkdir(parents=True, exist_ok=True)
        elif word == "COPY" and not rest.startswith("--from"):
            *sources, target = rest.split()
            for source in sources:
                place = here / (target if len(sources) == 1 else source)
                kind = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                kind(ROOT / source, place)
        elif word == "RUN" and rest.startswith("useradd"):
            (image / "state").mkdir()
        elif word == "RUN":
            command = inside(image, rest).replace("python -m venv", f"{sys.executable} -m venv")
            environment = {**os.environ, "PIP_ARGS": os.environ.get("PIP_ARGS", "")}
            environment.pop("PYTHONPATH", None)
            print("+", rest, flush=True)
            subprocess.run(command, shell=True, check=True, cwd=here, env=environment)
        elif word == "ENV":
            pairs = (pair.partition("=") for pair in shlex.split(rest))
            variables |= {name: inside(image, value) for name, _, value in pairs}
        elif word in ("ENTRYPOINT", "CMD"):
            entry += [inside(image, part) for part in json.loads(rest)]
    return variables, entry


def main() -> None:
    image = Path(sys.argv[1]).resolve()
    image.mkdir(parents=True)
    variables, entry = build(image)
    secrets = image / "run" / "secrets"
    secrets.mkdir(parents=True)
    (secrets / "tokens").write_text(f"all predict,watch {TOKEN}\n")
    environment = {"PATH": os.environ["PATH"], **variables}
    command = [*entry, "--port", "8765"]
    print("+", " ".join(command), flush=True)
    process = subprocess.Popen(command, env=environment, cwd=image / "state")
    try:
        for _ in range(600):
            try:
                with urllib.request.urlopen("http://127.0.0.1:8765/readyz", timeout=5) as answer:
                    print("ready:", answer.read().decode())
                break
            except OSError:
                assert process.poll() is None, "the server ended"
                time.sleep(0.2)
        request = urllib.request.Request(
            "http://127.0.0.1:8765/v1/server", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            print("serves:", json.load(answer)["model"])
    finally:
        process.terminate()
        assert process.wait(60) == 143, process.returncode
    written = [path for path in image.rglob("__pycache__") if "opt" not in path.parts]
    assert not [path for path in written if "src" not in path.parts]
    print("done")


if __name__ == "__main__":
    main()
