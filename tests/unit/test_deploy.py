"""The files in deploy/ name options, metrics and files that exist."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tapr.cli import app
from tools.try_dockerfile import inside, instructions

DEPLOY = Path(__file__).parents[2] / "deploy"
COMMAND: Any = get_command(app)
OPTIONS = {name for each in COMMAND.commands["serve"].params for name in each.opts}
yaml = pytest.importorskip("yaml")


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def test_every_option_exists() -> None:
    said = dict(instructions())
    compose = documents("compose.yaml")[0]["services"]["tapr"]["command"]
    pod = documents("kubernetes.yaml")[1]["spec"]["template"]["spec"]["containers"][0]
    for words in (
        json.loads(said["ENTRYPOINT"])[2:],
        json.loads(said["CMD"]),
        compose,
        pod["args"],
    ):
        assert {word for word in words if word.startswith("--")} <= OPTIONS


def test_every_metric_is_served() -> None:
    board = (DEPLOY / "grafana" / "tapr.json").read_text()
    asked = set(re.findall(r"tapr_\w+", " ".join(
        target["expr"] for panel in json.loads(board)["panels"] for target in panel["targets"]
    )))  # fmt: skip
    source = (DEPLOY.parent / "src" / "tapr" / "service" / "metrics.py").read_text()
    known = set(re.findall(r'"(tapr_\w+)"', source))
    for name in asked:
        assert re.sub(r"_(total|bucket)$", "", name) in known, name


def test_nobody_is_root_and_the_root_is_read_only() -> None:
    words = [word for word, _ in instructions()]
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert documents("compose.yaml")[0]["services"]["tapr"]["read_only"]
    pod = documents("kubernetes.yaml")[1]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
    probes = {pod["containers"][0][f"{kind}Probe"]["httpGet"]["path"] for kind in
              ("startup", "readiness", "liveness")}  # fmt: skip
    assert probes == {"/readyz", "/healthz"}


def test_every_copied_file_is_there() -> None:
    root = DEPLOY.parent
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from"):
            assert all((root / name).exists() for name in rest.split()[:-1])
    assert inside(Path("/x"), "/opt/tapr /state a/opt") == "/x/opt/tapr /x/state a/opt"
