"""A busy upstream is killed and restarted again and again: a stateless server, one with sessions, or a child process.

Every call ends in a result, or in an error that says whether the upstream may have acted, and the upstream's own count
agrees. The long form of the test: `CALLS=100000 KILL_SECONDS=10 make chaos CHAOS="-k upstreams"`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

from loadtest.cluster import REPOSITORY, Replica, free_port, wait_until
from tests.children.running import alive, below, marker
from tests.upstreams.site import Site, User, entry
from tests.wires.draft.messages import accept, call_params

CALLS = int(os.environ.get("CALLS", "8000"))
"""How many calls get a result."""
KILL_SECONDS = float(os.environ.get("KILL_SECONDS", "3"))
FEWEST_KILLS = 4
"""How often the upstream is killed at least, however fast the calls are."""
WARM_CALLS = 1000
CALLERS = 32
TIMEOUT_SECONDS = 4.0
PLACE_SECONDS = 2.0
"""How long a call may wait for a place at the upstream."""
SLACK_SECONDS = 2.0
PAUSE_SECONDS = 0.05
"""How long a caller waits after an error, as clients do."""
MOST_GROWTH = 1.05

SERVER = REPOSITORY / "tests/upstreams/servers/stdio.py"
MAY_HAVE_ACTED = "may have acted"
NOT_SENT = ("Nothing was sent", "should not have acted")


class Killed(Protocol):
    """An upstream that is killed. The `asking` one has a tool that asks before it acts."""

    effects: Path
    kills: int
    asking: bool

    def entry(self) -> dict[str, Any]:
        """Return its entry in the file of upstreams."""
        ...

    def restart(self) -> None:
        """Kill it without a warning. It starts again."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Upstream:
    """A server as a process that is killed and restarted at the same address: the recording one, or another module."""

    def __init__(self, directory: Path, module: str = "tests.upstreams.servers.recording") -> None:
        self.asking = module == "tests.upstreams.servers.recording"
        self.port = free_port()
        self.effects = directory / "effects"
        self._module = module
        self._log = (directory / "upstream.log").open("ab")
        self.kills = 0
        self._start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def entry(self) -> dict[str, Any]:
        return entry(self.url, timeout_seconds=TIMEOUT_SECONDS)

    def _start(self) -> None:
        command = [sys.executable, "-m", self._module, str(self.port), str(self.effects)]
        self._process = subprocess.Popen(command, cwd=REPOSITORY, stdout=self._log, stderr=self._log)

    def restart(self) -> None:
        """Kill it without a warning, and start it again."""
        self._process.kill()
        self._process.wait()
        self.kills += 1
        self._start()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def acted(self) -> Counter[str]:
        """Return how often each key had its effect, over all restarts."""
        return acted(self)


class Child:
    """A program, of which each replica runs one and starts it again."""

    asking = False

    def __init__(self, directory: Path) -> None:
        self.effects = directory / "effects"
        self.mark = marker()
        self.kills = 0

    def entry(self) -> dict[str, Any]:
        options = {"timeout_seconds": TIMEOUT_SECONDS}
        args, env = ["-S", str(SERVER), self.mark], {"EFFECTS": str(self.effects)}
        return {"command": sys.executable, "args": args, "env": env, "gateway": options}

    def restart(self) -> None:
        """Kill all that run. A replica that has none waits until it starts one."""
        running = alive(self.mark)
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.kills += bool(running)

    def close(self) -> None:
        wait_until(lambda: not alive(self.mark), "the end of all programs")


def acted(upstream: Killed) -> Counter[str]:
    """Return how often each key had its effect, over all restarts."""
    return Counter(upstream.effects.read_text().split())


MAKE: dict[str, Callable[[Path], Killed]] = {
    "stateless": Upstream,
    "session": lambda directory: Upstream(directory, "tests.chaos.acting"),
    "child": Child,
}


@pytest.fixture(params=MAKE)
def upstream(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Killed]:
    upstream = MAKE[request.param](tmp_path)
    yield upstream
    upstream.close()


@dataclass
class Outcomes:
    """How calls ended, by key."""

    completed: list[str] = field(default_factory=list)
    maybe: list[str] = field(default_factory=list)
    not_sent: list[str] = field(default_factory=list)
    longest: float = 0.0


class Caller:
    """A client with a connection of its own to one replica, as fast as plain sockets are."""

    def __init__(self, user: User, replica: Replica, outcomes: Outcomes, *, asking: bool) -> None:
        self._user = user
        self._asking = asking
        self._replica = replica
        self._outcomes = outcomes
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, key: str, number: int) -> None:
        """Make a call to its end, and note how it ended."""
        begun = time.monotonic()
        params = call_params("up__act", {"key": key, "seconds": number % 4 * 0.003})
        if self._asking and number % 5 == 0:
            params = call_params("up__ask_then_act", {"key": key})
        answer = await self._send(params)
        if answer.get("result", {}).get("resultType") == "input_required":
            responses = dict.fromkeys(answer["result"]["inputRequests"], accept(name="yes"))
            state = answer["result"]["requestState"]
            answer = await self._send({**params, "inputResponses": responses, "requestState": state})
        self._outcomes.longest = max(self._outcomes.longest, time.monotonic() - begun)
        await self._note(key, answer)

    async def _note(self, key: str, answer: dict[str, dict[str, Any]]) -> None:
        if "error" in answer:
            assert answer["error"]["code"] == -31001, answer  # no place became free: nothing was sent
            self._outcomes.not_sent.append(key)
        elif not answer["result"].get("isError"):
            assert answer["result"]["content"] == [{"type": "text", "text": key}]
            self._outcomes.completed.append(key)
            return
        else:
            said = json.dumps(answer["result"])
            may_have, not_sent = MAY_HAVE_ACTED in said, any(words in said for words in NOT_SENT)
            assert may_have != not_sent, said
            (self._outcomes.maybe if may_have else self._outcomes.not_sent).append(key)
        await asyncio.sleep(PAUSE_SECONDS)

    async def _send(self, params: dict[str, object]) -> dict[str, dict[str, Any]]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._replica.address)
        reader, writer = self._streams
        body, headers = self._user.request("tools/call", params)
        lines = [f"{name}: {value}" for name, value in headers.items()]
        head = ["POST /mcp HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}", *lines, "", ""]
        writer.write("\r\n".join(head).encode() + body)
        async with asyncio.timeout(TIMEOUT_SECONDS + PLACE_SECONDS + SLACK_SECONDS):
            answered = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(answered.split("content-length: ", 1)[1].split("\r\n", 1)[0])
            answer: dict[str, dict[str, Any]] = msgspec.json.decode(await reader.readexactly(length))
        return answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def run_calls(
    site: Site, outcomes: Outcomes, keys: Iterator[int], is_enough: Callable[[], bool], *, asking: bool
) -> None:
    """Call from many callers at once, at both replicas, until it is enough."""

    async def call(number: int) -> None:
        caller = Caller(user, site.replicas[number % len(site.replicas)], outcomes, asking=asking)
        while not is_enough():
            key = next(keys)
            await caller.call(f"key-{key}", key)
        caller.close()

    async with site.user() as user:
        await asyncio.gather(*(call(number) for number in range(CALLERS)))


async def kill_again_and_again(upstream: Killed) -> None:
    while True:
        await asyncio.sleep(KILL_SECONDS)
        await asyncio.to_thread(upstream.restart)


def descriptors(replica: Replica) -> int:
    return len(list(Path(f"/proc/{replica.pid}/fd").iterdir()))


def resident_pages(replica: Replica) -> int:
    return int(Path(f"/proc/{replica.pid}/statm").read_text().split()[1])


@pytest.mark.timeout(60 + CALLS / 25)
def test_every_call_ends_in_time_and_says_whether_the_upstream_may_have_acted(upstream: Killed, tmp_path: Path) -> None:
    with Site(tmp_path / "site", {"up": upstream.entry()}, None, {"GATEWAY_AUDIT_LOG": "off"}) as site:
        site.wait_listed()
        outcomes, keys, asking = Outcomes(), itertools.count(), upstream.asking
        asyncio.run(run_calls(site, outcomes, keys, lambda: len(outcomes.completed) >= WARM_CALLS, asking=asking))
        before = [(descriptors(each), len(below(each.pid)), resident_pages(each)) for each in site.replicas]

        async def busy() -> None:
            killing = asyncio.create_task(kill_again_and_again(upstream))
            await run_calls(
                site,
                outcomes,
                keys,
                lambda: len(outcomes.completed) >= CALLS and upstream.kills >= FEWEST_KILLS,
                asking=asking,
            )
            killing.cancel()

        begun = time.monotonic()
        asyncio.run(busy())
        after = [resident_pages(each) for each in site.replicas]
        print(  # noqa: T201
            f"{len(outcomes.completed)} completed, {len(outcomes.maybe)} may have acted, {len(outcomes.not_sent)} not, "
            f"{upstream.kills} kills in {time.monotonic() - begun:.0f} s; longest {outcomes.longest:.2f} s; "
            f"descriptors, children and pages {before}, then pages {after}"
        )
        check_accounts(outcomes, acted(upstream))
        for replica, (opened, children, pages) in zip(site.replicas, before, strict=True):
            wait_until(lambda r=replica, n=opened: descriptors(r) <= n * MOST_GROWTH, "descriptors as before")  # type: ignore[misc]
            wait_until(lambda r=replica, n=children: len(below(r.pid)) <= n, "children as before")  # type: ignore[misc]
            assert resident_pages(replica) <= pages * MOST_GROWTH
            assert "Traceback (most recent call last)" not in replica.log_text()


def check_accounts(outcomes: Outcomes, acted: Counter[str]) -> None:
    """Compare how calls ended with what the upstream has done."""
    assert outcomes.longest < TIMEOUT_SECONDS + PLACE_SECONDS + SLACK_SECONDS
    assert {key: acted[key] for key in outcomes.completed if acted[key] != 1} == {}
    assert {key: acted[key] for key in outcomes.maybe if acted[key] > 1} == {}
    assert {key: acted[key] for key in outcomes.not_sent if acted[key] != 0} == {}
    assert 0 <= acted.total() - len(outcomes.completed) <= len(outcomes.maybe)
    assert outcomes.maybe, "calls were under way when it was killed"
    assert outcomes.not_sent, "calls came while it was down"
