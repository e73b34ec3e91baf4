"""An upstream that breaks a rule has one clear outcome for the caller, one metric, and no effect on other upstreams."""

from __future__ import annotations

import asyncio
import json
import resource
import time
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from loadtest.cluster import Replica, wait_until
from tests.upstreams.servers import hostile
from tests.upstreams.servers.hostile import (
    BROKEN_DISCOVERIES,
    CALLS,
    CONTROL,
    FAILURES,
    LISTS,
    SECRET,
    SILENT,
    UNSENT,
    Hostile,
)
from tests.upstreams.servers.recording import Recording
from tests.upstreams.site import META, Reply, Site, User, entry
from tests.wires.draft.messages import call_params

pytestmark = pytest.mark.slow

TIMEOUT_SECONDS = 1.0
MAX_RESULT_BYTES = 1 << 20
MAX_GROWTH_MIB = 60
"""How much a replica may grow while it reads answers of a gigabyte."""


@dataclass(frozen=True)
class Fails:
    """The caller gets a tool error with a sentence of ours.

    Attributes:
        reason: the label of the metric.
        may_have_acted: whether the sentence must say that the upstream may have acted.
        requests: how often the upstream is asked.
        dropped: the label of the metric that counts what was dropped.
    """

    reason: str
    may_have_acted: bool = True
    requests: int = 1
    dropped: str = ""


@dataclass(frozen=True)
class Passes:
    """The caller gets a result, or an error of the upstream's own, without what breaks the rules."""

    text: str = ""
    code: int | None = None
    dropped: str = ""


OUTCOMES: Mapping[str, Fails | Passes] = {
    **{fault: Fails(reason) for fault, reason in FAILURES.items()},
    **{fault: Fails("timed_out") for fault in SILENT},
    **{fault: Fails(reason, may_have_acted=False) for fault, reason in UNSENT.items()},
    "echo": Passes("fine"),
    "endless_head": Fails("malformed"),
    "endless_notices": Fails("timed_out", dropped="log"),
    "lone_surrogate": Passes("a\ufffdb"),
    "reserved_meta": Passes("fine", dropped="meta"),
    "asks_nothing": Fails("malformed"),
    "asks_no_object": Fails("malformed"),
    "asks_no_request": Fails("malformed"),
    "asks_too_much": Fails("unasked", dropped="question"),
    "asks_script": Fails("malformed"),
    "asks_file": Fails("malformed"),
    "state_no_text": Fails("malformed"),
    "state_huge": Fails("too_large"),
    "asks_thousands": Fails("malformed"),
    "error_long": Passes(code=5),
    "error_control": Passes(code=5),
    "error_ours": Passes(code=-32603),
    "error_of_a_state": Passes(code=-32602),
    "error_reserved": Passes(code=-32603),
    "error_no_code": Passes(code=-32603),
    "error_no_object": Passes(code=-32603),
    "error_version": Fails("malformed", may_have_acted=False),
    "error_consent_script": Fails("malformed"),
    "error_consent_no_host": Fails("malformed"),
    "error_consent_form": Fails("malformed"),
    "error_consent_nothing": Fails("malformed"),
    "error_consent_thousands": Fails("malformed"),
    "error_consent_endless": Fails("malformed"),
    "error_consent_long": Fails("too_large"),
    "request_on_stream": Fails("unasked", dropped="question"),
    "two_responses": Passes("the first"),
}
LIST_FAILURES: Mapping[str, str] = {
    "asks_on_a_list": "unasked",
    "many_tools": "too_large",
    "list_duplicate_names": "malformed",
    "list_no_array": "malformed",
    "list_huge": "too_large",
    "list_silent": "timed_out",
    "list_redirects": "redirect",
    "list_unauthorized": "unauthorized",
    "list_fails": "server_error",
    "list_wrong_id": "wrong_id",
    "discovery_fails": "server_error",
    "discovery_not_json": "malformed",
    "discovery_silent": "timed_out",
    "discovery_asks": "unasked",
}
"""Mode → why its lists cannot be read."""
SESSION_ONLY = ("discovery_missing", "discovery_no_versions", "discovery_other_version")
"""Modes of servers that do not say that they speak 2026-07-28."""
DROPS: Mapping[str, str] = {
    "cursor_loop": "",
    "endless_cursors": "",
    "cursor_no_text": "",
    "cursor_huge": "",
    "long_name": "tool",
    "control_characters": "",
    "huge_description": "",
    "huge_schema": "tool",
    "entries_of_other_kinds": "tool",
    "one_name_twice": "collision",
    "invalid_param_header": "tool",
    "schema_that_does_not_compile": "tool",
    "reserved_meta_in_an_entry": "meta",
}
"""Mode → what is counted as dropped, while everything else of the list is served."""


@pytest.fixture(scope="module")
def good() -> Iterator[Recording]:
    with Recording() as good:
        yield good


@pytest.fixture(scope="module")
def calls() -> Iterator[Hostile]:
    """The upstream whose calls break rules."""
    with Hostile() as server:
        yield server


@pytest.fixture(scope="module")
def lists() -> Iterator[Mapping[str, Hostile]]:
    """Upstreams whose lists or discovery break rules, by mode."""
    with ExitStack() as stack:
        yield {mode: stack.enter_context(Hostile(mode)) for mode in hostile.MODES}


def _patience(mode: str) -> dict[str, float]:
    """Return a long time limit for an upstream that answers: a busy machine may need more time for a large list."""
    return {} if "silent" in mode else {"timeout_seconds": 20}


@pytest.fixture(scope="module")
def site(
    good: Recording, calls: Hostile, lists: Mapping[str, Hostile], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    limits = {"timeout_seconds": TIMEOUT_SECONDS, "max_result_bytes": MAX_RESULT_BYTES}
    upstreams = {
        "good": entry(good.url),
        "bad": entry(calls.url, **limits),
        **{mode.replace("_", "-"): entry(server.url, **(limits | _patience(mode))) for mode, server in lists.items()},
    }
    with Site(tmp_path_factory.mktemp("hostile"), upstreams, None, names=["r1"]) as site:
        site.wait_listed("good", "bad")
        yield site


@pytest.fixture
def replica(site: Site) -> Replica:
    return site.replicas[0]


def resident_mib(replica: Replica) -> float:
    with open(f"/proc/{replica.pid}/statm") as statm:  # noqa: PTH123
        return int(statm.read().split()[1]) * resource.getpagesize() / 2**20


def test_every_mode_has_an_expected_outcome() -> None:
    assert OUTCOMES.keys() | {"asks_endlessly", "error_consent"} == CALLS.keys()
    assert LIST_FAILURES.keys() | DROPS.keys() | {*SESSION_ONLY} == LISTS.keys() | BROKEN_DISCOVERIES.keys()


@pytest.mark.parametrize("tool", OUTCOMES)
async def test_a_call_has_one_outcome_one_metric_and_no_effect_elsewhere(
    site: Site, replica: Replica, calls: Hostile, good: Recording, tool: str
) -> None:
    async with site.user() as user:
        assert (await user.call("bad__echo")).text == "fine"  # the breaker is closed
        before = counted(replica, "bad")
        asked, memory, begun = len(calls.asked), resident_mib(replica), time.monotonic()
        reply, other = await asyncio.gather(
            user.call(f"bad__{tool}"), user.call("good__echo", {"text": "not affected"})
        )
        assert other.text == "not affected"
        assert time.monotonic() - begun < TIMEOUT_SECONDS + 2
        after = counted(replica, "bad")
        assert resident_mib(replica) - memory < MAX_GROWTH_MIB
        assert SECRET not in json.dumps(reply.response)
        changed = {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)}
        outcome = OUTCOMES[tool]
        if isinstance(outcome, Fails):
            check_failure(reply, outcome, "bad")
            assert changed[("failures", outcome.reason)] == 1
            assert calls.asked[asked:].count(f"tools/call {tool}") == outcome.requests
        else:
            check_result(reply, outcome)
        kinds = {("dropped", outcome.dropped)} if outcome.dropped else set()
        kinds |= {("failures", outcome.reason)} if isinstance(outcome, Fails) else set()
        assert changed.keys() == kinds, "nothing else is counted"
        assert (await user.call("bad__echo")).text == "fine"
        assert (await user.call("good__echo", {"text": "still there"})).text == "still there"
    assert calls.followed == 0


def check_failure(reply: Reply, outcome: Fails, upstream: str) -> None:
    assert reply.status == 200
    assert reply.result["isError"]
    assert upstream in reply.text, "it names the upstream"
    assert ("may have" in reply.text) == outcome.may_have_acted, reply.text
    assert len(reply.text) < 1000


def check_result(reply: Reply, outcome: Passes) -> None:
    if outcome.code is not None:
        assert reply.error["code"] == outcome.code
        assert reply.status < 500, "it is not the gateway that failed"
        assert len(reply.error["message"]) <= 16_384
        assert not _controls(reply.error["message"])
        assert {"reason", "retryAfterSeconds", "elicitations"}.isdisjoint(reply.error.get("data") or {})
        return
    assert reply.text == outcome.text
    assert not reply.result.get("isError")
    meta = reply.result["_meta"]
    assert meta.get(f"{META}/serverInfo", {}).get("name") != SECRET
    assert "dev.mcp/own" not in meta
    assert meta.get("example.com/kept", 1) == 1


def _controls(text: str) -> list[str]:
    return [character for character in text if unicodedata.category(character) == "Cc" and character not in "\t\n"]


def counted(replica: Replica, upstream: str) -> dict[tuple[str, str], float]:
    """Return failures and dropped things of an upstream."""
    return {
        (kind, labels[label]): value
        for kind, label in (("failures", "reason"), ("dropped", "what"))
        for labels, value in replica.samples(f"gateway_upstream_{kind}_total")
        if labels["upstream"] == upstream
    }


async def test_an_upstream_that_hands_back_states_endlessly_keeps_no_leg(site: Site, calls: Hostile) -> None:
    async with site.user() as user:
        asked = calls.asked.count("tools/call asks_endlessly")
        reply = await user.send("tools/call", call_params("bad__asks_endlessly"))
    assert calls.asked.count("tools/call asks_endlessly") == asked + 4
    result = reply.result
    assert result["resultType"] == "input_required" or result["isError"]


async def test_an_upstream_that_sends_its_user_away_endlessly_is_called_four_times(site: Site, calls: Hostile) -> None:
    async with site.user() as user:
        asked = calls.asked.count("tools/call error_consent")
        reply = await user.call("bad__error_consent", answers={"elicitation/create": {"action": "accept"}})
    assert calls.asked.count("tools/call error_consent") == asked + 4
    assert reply.result["isError"]
    assert "after 3 visits" in reply.text


@pytest.mark.parametrize("mode", LIST_FAILURES)
async def test_a_list_that_cannot_be_read_is_counted_and_the_others_are_served(
    site: Site, replica: Replica, mode: str
) -> None:
    name = mode.replace("_", "-")
    reason = LIST_FAILURES[mode]
    await asyncio.to_thread(
        wait_until,
        lambda: replica.metric("gateway_upstream_failures_total", upstream=name, reason=reason) >= 1,
        f"{reason} of {name}",
    )
    assert replica.metric("gateway_upstream_list_refreshes_total", upstream=name, result="failed") >= 1
    failures = [labels for labels, _ in replica.samples("gateway_upstream_failures_total")]
    assert {labels["reason"] for labels in failures if labels["upstream"] == name} == {reason}
    async with site.user() as user:
        names = await user.names()
    assert f"{name}__echo" not in names
    assert "good__echo" in names


@pytest.mark.parametrize("mode", SESSION_ONLY)
async def test_a_server_that_does_not_speak_our_version_is_not_served(
    site: Site, replica: Replica, lists: Mapping[str, Hostile], mode: str
) -> None:
    name = mode.replace("_", "-")
    await asyncio.to_thread(
        wait_until,
        lambda: any(name in json.dumps(line) for line in replica.log_lines()),
        f"a log line about {name}",
    )
    async with site.user() as user:
        assert not [tool for tool in await user.names() if tool.startswith(f"{name}__")]
    assert "tools/list" not in lists[mode].asked


@pytest.mark.parametrize("mode", DROPS)
async def test_what_is_wrong_in_a_list_is_left_out_and_the_rest_is_served(
    site: Site, replica: Replica, mode: str
) -> None:
    name = mode.replace("_", "-")
    site.wait_listed(name)
    async with site.user() as user:
        tools = {tool["name"]: tool for tool in await user.list() if tool["name"].startswith(f"{name}__")}
        assert f"{name}__echo" in tools
        await _check_entries(mode, name, tools, user)
    if DROPS[mode]:
        assert replica.metric("gateway_upstream_dropped_total", upstream=name, what=DROPS[mode]) >= 1


async def _check_entries(mode: str, name: str, tools: Mapping[str, Mapping[str, Any]], user: User) -> None:
    for tool, listed in tools.items():
        assert len(tool) <= len(name) + 2 + 64
        assert len(listed.get("description", "").encode()) <= 16_384
        assert len(json.dumps(listed["inputSchema"])) <= 65_536
        assert SECRET not in json.dumps(listed)
        for word in ("name", "title", "description"):
            assert not _controls(listed.get(word, ""))
    count = {
        "long_name": 1,
        "control_characters": 2,
        "huge_description": 1,
        "huge_schema": 1,
        "one_name_twice": 1,
        "invalid_param_header": 1,
        "schema_that_does_not_compile": 1,
        "reserved_meta_in_an_entry": 1,
    }
    assert len(tools) == count.get(mode, len(tools))
    if mode == "control_characters":
        (renamed,) = tools.keys() - {f"{name}__echo"}
        assert (await user.call(renamed)).text == "fine"
    if mode == "reserved_meta_in_an_entry":
        assert tools[f"{name}__echo"]["_meta"] == {"example.com/kept": 1}


async def test_a_tool_with_another_name_here_is_called_by_its_own(site: Site, lists: Mapping[str, Hostile]) -> None:
    async with site.user() as user:
        (renamed,) = [name for name in await user.names() if name.startswith("control-characters__a")]
        await user.call(renamed)
    assert f"tools/call {CONTROL}" in lists["control_characters"].asked


async def test_nothing_that_failed_follows_a_redirect_or_ends_the_replica(
    site: Site, replica: Replica, lists: Mapping[str, Hostile]
) -> None:
    assert replica.alive
    assert replica.is_ready()
    assert all(server.followed == 0 for server in lists.values())
    assert "Traceback (most recent call last)" not in replica.log_text()
    assert SECRET not in replica.log_text()
