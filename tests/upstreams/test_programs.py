"""Programs behind two replicas: they are listed and called, come back when they end, and end with their replica."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest.cluster import wait_until
from tests.children.running import alive, marker, none_alive, some_alive
from tests.upstreams.servers.recording import Recording
from tests.upstreams.site import Site, User, entry

SERVER = Path(__file__).parent / "servers" / "stdio.py"
SECRET = "of-the-upstream-alone"


def program(*options: str, **members: Any) -> dict[str, Any]:
    gateway = {name: members.pop(name) for name in list(members) if name not in ("env", "cwd")}
    return {"command": sys.executable, "args": ["-S", str(SERVER), *options], "gateway": gateway, **members}


@pytest.fixture(scope="module")
def mark() -> str:
    return marker()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, mark: str) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("programs")
    upstreams = {
        "stub": program("noisy", mark, env={"TOKEN": SECRET}, cwd=str(folder), timeout_seconds=10),
        "hangs": program("hangs", mark, timeout_seconds=2),
        "fails": program("fails", mark),
        "own": program(mark, scope="caller"),
    }
    with Site(folder, upstreams) as site:
        site.wait_listed("stub")
        yield site


@pytest.fixture
def user(programs: Site) -> User:
    return programs.user("ada")


async def test_a_program_is_listed_and_called_through_both_replicas(programs: Site, user: User) -> None:
    async with user:
        assert {"stub__echo", "stub__slow"} <= set(await user.names())
        about = [(await user.call("stub__about")).said for _ in range(4)]
    assert len({each["pid"] for each in about}) == 2, "each replica has one child"
    variables = about[0]["env"]
    assert variables["TOKEN"] == SECRET
    assert not [name for name in variables if name.startswith(("GATEWAY_", "OTEL_"))]
    assert about[0]["cwd"] == str(programs.file.parent)
    assert SECRET not in programs.logged_text()


async def test_many_calls_share_a_child(user: User) -> None:
    async with user:
        replies = await asyncio.gather(*(user.call("stub__echo", {"number": number}) for number in range(40)))
    assert [reply.said for reply in replies] == [{"number": number} for number in range(40)]


async def test_progress_and_logs_reach_the_client(user: User) -> None:
    async with user:
        reply = await user.call("own__notices", _meta={"progressToken": 7, "io.modelcontextprotocol/logLevel": "info"})
    told = [(each["method"].rpartition("/")[2], each["params"].get("data")) for each in reply.notices]
    assert told == [("progress", None), ("message", "step 0"), ("progress", None), ("message", "step 1")]


async def test_callers_have_children_of_their_own_if_the_scope_says_so(programs: Site) -> None:
    pids = set()
    for name in ("ada", "bob"):
        async with programs.user(name) as user:
            pids |= {(await user.call("own__about")).said["pid"] for _ in range(4)}
    assert len(pids) == 4, "one for each caller at each replica"


async def test_a_program_that_dies_may_have_acted_and_comes_back(programs: Site, user: User) -> None:
    async with user:
        before = {(await user.call("stub__about")).said["pid"] for _ in range(2)}
        failed = await user.call("stub__half")
        assert failed.result["isError"]
        assert "may have acted" in failed.text
        after = {(await user.call("stub__about")).said["pid"] for _ in range(2)}
        assert len(after & before) == 1
    assert "its program has ended with exit code 7" in programs.logged_text()


async def test_programs_that_hang_or_fail_harm_no_other(programs: Site, user: User) -> None:
    async with user:
        calls = [user.call(f"{name}__echo") for name in ("hangs", "fails")]
        others = [user.call("stub__echo", {"number": number}) for number in range(10)]
        replies = await asyncio.gather(*calls, *others)
    assert all(reply.result["isError"] for reply in replies[:2])
    assert not any("acted" in reply.text for reply in replies[:2])
    assert [reply.said for reply in replies[2:]] == [{"number": number} for number in range(10)]
    wait_until(lambda: "no token given" in programs.logged_text(), "the last words of the program that fails")


async def test_an_announced_change_is_noticed(programs: Site, user: User) -> None:
    def refreshed() -> float:
        return programs.metric("gateway_upstream_list_refreshes_total", upstream="stub", result="read")

    before = refreshed()
    async with user:
        await user.call("stub__change")
    wait_until(lambda: refreshed() > before, "the lists to be read again")


async def test_no_program_and_nothing_that_it_started_outlives_a_killed_replica(tmp_path: Path) -> None:
    mark = marker()
    with (
        Recording() as recording,
        Site(tmp_path, {"stub": program("stubborn", mark), "rec": entry(recording.url)}, names=("r1",)) as site,
    ):
        site.wait_listed("stub")
        await some_alive(mark, 3)
        site.replicas[0].kill()
        assert await none_alive(mark, 5) < 5


async def test_a_replica_that_stops_ends_its_programs(tmp_path: Path) -> None:
    mark = marker()
    with Site(tmp_path, {"stub": program(mark)}, names=("r1",)) as site:
        site.wait_listed("stub")
        assert alive(mark)
    await none_alive(mark, 5)


async def test_a_changed_entry_replaces_its_program(tmp_path: Path) -> None:
    old, new = marker(), marker()
    with Site(tmp_path, {"stub": program(old)}, names=("r1",)) as site:
        site.wait_listed("stub")
        site.configure({"stub": program(new)})
        await some_alive(new, 1)
        await none_alive(old, 5)
        async with site.user() as user:
            assert (await user.call("stub__echo", {"a": 1})).said == {"a": 1}


@pytest.mark.setting("max_children")
async def test_no_more_programs_run_than_the_setting_allows(tmp_path: Path) -> None:
    upstreams = {name: program(mark) for name in ("one", "two") for mark in ("many",)}
    with Site(tmp_path, upstreams, settings={"GATEWAY_MAX_CHILDREN": "1"}, names=("r1",)) as site:
        wait_until(lambda: "GATEWAY_MAX_CHILDREN allows no more" in site.logged_text(), "a program without room")
