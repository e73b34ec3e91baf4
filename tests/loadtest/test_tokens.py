"""The sources of users' tokens, and when tokens are replaced."""

from __future__ import annotations

import base64
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loadtest.tokens import TokenError, Tokens

WAIT_SECONDS = 40.0


def jwt(number: int, ends: float) -> str:
    payload = base64.urlsafe_b64encode(json.dumps({"exp": ends, "jti": number}).encode()).rstrip(b"=").decode()
    return f"e30.{payload}.c2ln"


def test_without_a_source_there_is_none() -> None:
    assert Tokens.from_environment({"LOADTEST_TOKEN": ""}).current() == ""


def test_a_token_comes_from_the_environment_a_file_or_a_command(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("from-file\n")
    command = f"{sys.executable} -c 'print(\"from command\")'"
    sources = {"LOADTEST_TOKEN": "given", "LOADTEST_TOKEN_FILE": str(path), "LOADTEST_TOKEN_COMMAND": command}
    tokens = [Tokens.from_environment({name: value}).current() for name, value in sources.items()]
    assert tokens == ["given", "from-file", "from command"]


def test_two_sources_are_a_mistake() -> None:
    with pytest.raises(TokenError, match="LOADTEST_TOKEN and LOADTEST_TOKEN_FILE"):
        Tokens.from_environment({"LOADTEST_TOKEN": "secret", "LOADTEST_TOKEN_FILE": "path"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOADTEST_TOKEN_FILE", "missing/token"),
        ("LOADTEST_TOKEN_COMMAND", f"{sys.executable} -c 'raise SystemExit(\"secret\")'"),
        ("LOADTEST_TOKEN_COMMAND", "no-such-program"),
    ],
)
def test_a_source_without_a_token_is_named_and_nothing_secret_shown(name: str, value: str) -> None:
    with pytest.raises(TokenError, match=name) as error:
        Tokens.from_environment({name: value}).current()
    assert error.value.__cause__ is None


def test_a_token_is_replaced_before_it_ends() -> None:
    now = 1000.0
    given = iter([jwt(1, 1300.0), jwt(2, 1600.0)])
    tokens = Tokens(lambda: next(given), lambda: now)
    first = tokens.current()
    now = 1269.0
    assert tokens.current() == first
    now = 1270.0
    second = tokens.current()
    assert second != first
    now = 1500.0
    assert tokens.current() == second


@pytest.mark.parametrize("token", ["opaque", "a.b.c", "e30.e30.e30", "e30.bnVsbA.e30"])
def test_a_token_that_does_not_say_when_it_ends_is_kept(token: str) -> None:
    reads: list[None] = []

    def read() -> str:
        reads.append(None)
        return token

    now = 0.0
    tokens = Tokens(read, lambda: now)
    tokens.current()
    now = 1e9
    assert (tokens.current(), len(reads)) == (token, 1)


def test_a_token_that_has_ended_already_is_asked_for_once_a_second_at_most() -> None:
    now = 1000.0
    reads: list[None] = []

    def read() -> str:
        reads.append(None)
        return jwt(1, 500.0)

    tokens = Tokens(read, lambda: now)
    for _ in range(10):
        tokens.current()
    assert len(reads) == 1
    now = 1002.0
    tokens.current()
    assert len(reads) == 2


def test_users_wait_for_the_first_token_and_use_the_old_one_while_it_is_renewed() -> None:
    now = 1000.0
    asked, may_answer = threading.Event(), threading.Event()
    given = iter([jwt(1, 1300.0), jwt(2, 1600.0)])

    def read() -> str:
        asked.set()
        assert may_answer.wait(WAIT_SECONDS)
        return next(given)

    tokens = Tokens(read, lambda: now)
    with ThreadPoolExecutor(3) as pool:
        first = [pool.submit(tokens.current) for _ in range(3)]
        may_answer.set()
        assert [one.result(WAIT_SECONDS) for one in first] == [jwt(1, 1300.0)] * 3

        now = 1290.0
        asked.clear()
        may_answer.clear()
        renewing = pool.submit(tokens.current)
        assert asked.wait(WAIT_SECONDS)
        assert tokens.current() == jwt(1, 1300.0)
        may_answer.set()
        assert renewing.result(WAIT_SECONDS) == tokens.current() == jwt(2, 1600.0)
