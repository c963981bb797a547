"""The dashboard's script under node, against a real server with real traffic."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tapr import service
from tapr.client import Client

NODE = shutil.which("node")
PAGES = Path(service.__file__).parent / "pages"
TOKEN = "all-of-it-0123456789"


@pytest.mark.skipif(NODE is None, reason="no node on this machine")
def test_the_script_shows_what_the_server_tells(listen: Callable[..., str], tmp_path: Path) -> None:
    assert NODE is not None
    (tmp_path / "tokens").write_text(f"all predict,control {TOKEN}\n")
    names = ("plane", "car", "bird", "cat", "deer")
    url = listen(tokens=tmp_path / "tokens", names=names)
    with Client(url, TOKEN) as client:
        for seed, stream in enumerate(("a", "a", "b")):
            noise = np.random.default_rng(seed).random((8, 10, 9, 3))
            client.predict(stream, (noise.cumsum(2) / 9 * 255).astype(np.uint8))
        client.freeze("a")
    words = [
        NODE,
        str(Path(__file__).with_name("page.js")),
        url,
        str(PAGES / "dashboard.js"),
        TOKEN,
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    shown = found["shown"]
    assert found["asked"]  # without a token the page asks for one
    assert found["rows"] == 2
    assert shown["served"] == "small with steady"
    assert shown["h-one"] == "Stream a"
    assert "frozen" in shown["verdict"]
    assert "16" in shown["streams"].split()  # images of stream a
    assert any(name in shown["classes"] for name in names)
    assert "freeze: requested by all" in shown["acts"]
    assert found["images"][0].startswith("data:image/png;base64,")
    assert len(found["lines"]) == 2
    assert found["lines"][0].count(",") == 2  # two batches


def test_the_pages_load_nothing_from_elsewhere() -> None:
    for path in PAGES.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, path.name
        if path.suffix == ".html":  # the Content-Security-Policy lets neither run
            assert "<style" not in text
            assert "onclick" not in text
            assert text.count("<script") == text.count("<script src=")
