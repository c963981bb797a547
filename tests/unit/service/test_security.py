"""Tokens, rates, and where a request may come from."""

from pathlib import Path

import pytest

from tapr.errors import DataError, InputError
from tapr.service import security
from tapr.service.security import Rates, Tokens

LONG = "0123456789abcdef"


def written(folder: Path, text: str) -> Path:
    (folder / "tokens").write_text(text)
    return folder / "tokens"


def test_tokens_have_scopes(tmp_path: Path) -> None:
    tokens = Tokens(
        written(tmp_path, f"# who\ncamera predict {LONG}1\n\nboss predict,control {LONG}2\n")
    )
    camera, boss = (tokens.caller(f"Bearer {LONG}{n}", "") for n in (1, 2))
    assert camera is not None
    assert boss is not None
    assert camera.name == "camera"
    assert camera.scopes == {"predict"}
    assert boss.scopes == {"predict", "watch", "control"}
    wrong = (
        None,
        "",
        "Bearer",
        f"Bearer {LONG}",
        f"Basic {LONG}1",
        f"{LONG}1",
        "Bearer \udcff\x00",
    )
    for header in wrong:
        assert tokens.caller(header, "") is None


def test_without_tokens_everyone_on_the_machine_may(tmp_path: Path) -> None:
    caller = Tokens(None).caller(None, "127.0.0.1")
    assert caller is not None
    assert caller.scopes == set(security.SCOPES)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "found none"),
        (f"camera {LONG}", "expected NAME SCOPES TOKEN"),
        (f"camera predicts {LONG}", "expected scopes among predict, watch, control"),
        ("camera predict short", "16 letters or more"),
    ],
)
def test_files_of_tokens_that_are_refused(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=sentence):
        Tokens(written(tmp_path, text))
    with pytest.raises(DataError, match="cannot read the tokens"):
        Tokens(tmp_path / "none")


def test_other_machines_need_tokens(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", ""):
        with pytest.raises(InputError, match="expected --tokens"):
            security.check_host(host, None)
        security.check_host(host, tmp_path)
    for host in ("127.0.0.1", "::1", "localhost", "127.3.2.1"):
        security.check_host(host, None)


def test_rates_are_counted_for_each_caller() -> None:
    now = [0.0]
    rates = Rates(2.0)
    rates.clock = lambda: now[0]
    assert [rates.wait("a") for _ in range(5)] == [0, 0, 0, 0, 1]
    assert rates.wait("b") == 0
    now[0] = 0.5
    assert [rates.wait("a") for _ in range(2)] == [0, 1]
    assert Rates(0.0).wait("a") == 0


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"host": "127.0.0.1:8000"}, True),
        ({"host": "localhost"}, True),
        ({"host": "[::1]:8000"}, True),
        ({"host": "evil.example"}, False),
        ({"host": "127.0.0.1.evil.example"}, False),
        ({"host": ""}, False),
        ({"host": "[::1"}, False),
        ({}, False),
        ({"host": "localhost:1", "origin": "http://localhost:1"}, True),
        ({"host": "localhost:1", "origin": "http://localhost:2"}, False),
        ({"host": "localhost:1", "origin": "null"}, False),
        ({"host": "localhost", "sec-fetch-site": "cross-site"}, False),
        ({"host": "localhost", "sec-fetch-site": "same-origin"}, True),
    ],
)
def test_where_requests_may_come_from(headers: dict[str, str], allowed: bool) -> None:
    why = security.refusal(headers, open_to_all=True)
    assert (why is None) == allowed


def test_with_tokens_the_host_is_free_and_the_origin_is_not() -> None:
    assert security.refusal({"host": "any.example"}, open_to_all=False) is None
    crossed = {"host": "any.example", "origin": "https://evil.example"}
    assert security.refusal(crossed, open_to_all=False) is not None
