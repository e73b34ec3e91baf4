"""A server with sessions, or a program, that breaks a rule: one clear outcome in time, and no effect on others."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from loadtest.cluster import REPOSITORY, Replica
from tests.upstreams.servers.hostile import SECRET
from tests.upstreams.servers.hostile_sessions import HTTP_ALONE, SESSION_CALLS, HostileSession
from tests.upstreams.servers.recording import Recording
from tests.upstreams.site import Site, User, entry
from tests.upstreams.test_hostile import (
    MAX_GROWTH_MIB,
    MAX_RESULT_BYTES,
    OUTCOMES,
    TIMEOUT_SECONDS,
    Fails,
    Passes,
    check_failure,
    check_result,
    counted,
    resident_mib,
)

pytestmark = pytest.mark.slow

START_SECONDS = 20.0
"""How long a program that has ended may take until it runs again: each time, it is started a little later."""

ASKING = (
    *("asks_nothing", "asks_no_object", "asks_no_request", "asks_too_much", "asks_script", "asks_file"),
    *("state_no_text", "state_huge", "asks_thousands"),
)
"""Tools whose result asks, as only one of 2026-07-28 may."""
SESSION: Mapping[str, Fails | Passes] = {
    **OUTCOMES,
    **dict.fromkeys(ASKING, Fails("unasked", dropped="question")),
    "missing": Fails("malformed"),  # a ping shows that the session is there
    "request_on_stream": Passes("asked anyway", dropped="question"),
    "question_first": Passes("asked anyway", dropped="question"),
    "question_later": Passes("the answer"),
    "next_answer_too": Passes("the answer"),
    "bad_utf8_alone": Fails("malformed"),
}
SKIPPED = ("null_id", "no_id", "not_json", "array", "neither")
"""Tools of which a program writes a line that may be anything."""
CHILD: Mapping[str, Fails | Passes] = {
    **{tool: outcome for tool, outcome in SESSION.items() if tool not in HTTP_ALONE},
    **dict.fromkeys(SKIPPED, Fails("timed_out", dropped="noise")),
    "wrong_id": Fails("timed_out", dropped="answer"),
    "empty": Fails("timed_out"),
    "other_response_first": Passes("the right one", dropped="noise"),
    "two_responses": Passes("the first", dropped="answer"),
    "not_http": Fails("cut", dropped="noise"),
    "huge_body": Fails("cut"),
    "question_later": Passes("the answer", dropped="question"),
    "next_answer_too": Passes("the answer", dropped="answer"),
    "bad_utf8_alone": Fails("cut", dropped="noise"),
}
COUNTED_TOO = {("child", "huge_body"): {("failures", "too_large")}}
"""What ended the program, besides why the call failed."""


@pytest.fixture(scope="module")
def good() -> Iterator[Recording]:
    with Recording() as good:
        yield good


@pytest.fixture(scope="module")
def site(good: Recording, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    limits: dict[str, Any] = {"max_result_bytes": MAX_RESULT_BYTES, "timeout_seconds": TIMEOUT_SECONDS}
    with HostileSession() as server:
        upstreams = {
            "good": entry(good.url),
            "session": entry(server.url, **limits),
            "child": {
                "command": sys.executable,
                "args": ["-m", "tests.upstreams.servers.hostile_sessions"],
                "env": {"PYTHONPATH": str(REPOSITORY)},
                "gateway": limits,
            },
        }
        with Site(tmp_path_factory.mktemp("hostile"), upstreams, None, names=["r1"]) as site:
            site.wait_listed()
            yield site


@pytest.fixture
def replica(site: Site) -> Replica:
    return site.replicas[0]


async def ready(user: User, upstream: str) -> None:
    """Wait until the upstream serves, as it did before."""
    async with asyncio.timeout(START_SECONDS):
        while (await user.call(f"{upstream}__echo")).result.get("isError"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # nothing announces it


def test_every_tool_has_an_expected_outcome() -> None:
    assert SESSION.keys() | {"asks_endlessly", "error_consent"} == SESSION_CALLS.keys()
    assert CHILD.keys() | HTTP_ALONE == SESSION.keys()


@pytest.mark.parametrize(
    ("upstream", "tool"), [("session", tool) for tool in SESSION] + [("child", tool) for tool in CHILD]
)
async def test_a_call_has_one_outcome_and_no_effect_elsewhere(
    site: Site, replica: Replica, upstream: str, tool: str
) -> None:
    outcome = {"session": SESSION, "child": CHILD}[upstream][tool]
    async with site.user() as user:
        await ready(user, upstream)
        before, memory, begun = counted(replica, upstream), resident_mib(replica), time.monotonic()
        reply, other = await asyncio.gather(
            user.call(f"{upstream}__{tool}"), user.call("good__echo", {"text": "not affected"})
        )
        assert other.text == "not affected"
        assert time.monotonic() - begun < TIMEOUT_SECONDS + 2
        assert resident_mib(replica) - memory < MAX_GROWTH_MIB
        assert SECRET not in json.dumps(reply.response)
        after = counted(replica, upstream)
        changed = {key for key in after if after[key] != before.get(key, 0)}
        kinds = {("dropped", outcome.dropped)} if outcome.dropped else set()
        if isinstance(outcome, Fails):
            check_failure(reply, outcome, upstream)
            kinds.add(("failures", outcome.reason))
        else:
            check_result(reply, outcome)
        assert changed == kinds | COUNTED_TOO.get((upstream, tool), set()), "nothing else is counted"
        await ready(user, upstream)
        assert (await user.call("good__echo", {"text": "still there"})).text == "still there"


def test_nothing_of_it_ended_the_replica_or_reached_its_log(replica: Replica) -> None:
    assert replica.is_ready()
    assert "Traceback (most recent call last)" not in replica.log_text()
    lines = [line for line in replica.log_text().splitlines() if "that are not messages" not in line]
    assert SECRET not in "\n".join(lines), "the log has only the first line that is not a message"
