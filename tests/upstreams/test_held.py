"""Servers in sessions that ask their user while a call runs: each answer comes to its question, over every wire."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.upstreams.client.stdio import MAX_NOTICES
from gateway.upstreams.held.calls import MAX_HELD_BY_CALLER
from loadtest.cluster import wait_until
from tests.upstreams.servers.session import InSessions
from tests.upstreams.site import Reply, Site, User, entry
from tests.upstreams.test_programs import program
from tests.upstreams.wires import WIRES, speaking
from tests.wires.draft.messages import call_params
from tests.wires.legacy.speaking import speak, text_of

every_wire = pytest.mark.parametrize("wire", WIRES)


def answer_of(question: Any) -> dict[str, Any]:
    """Return an answer that repeats the text of the question."""
    return {"action": "accept", "content": {"sure": question["params"]["message"]}}


HELD_SECONDS = 4
"""How long calls of the upstream `brief` wait for their users."""

ANSWERS = {"elicitation/create": answer_of}


async def never(_question: Any) -> dict[str, Any]:
    """Wait for an end that does not come."""
    await asyncio.Event().wait()
    return {}


NEVER = {"elicitation/create": never}
EACH_ITS_OWN = [[files, answer_of({"params": {"message": f"Delete {files} files?"}})] for files in (3, 300)]


@pytest.fixture(scope="module")
def server() -> Iterator[InSessions]:
    with InSessions() as server:
        yield server


@pytest.fixture(scope="module")
def site(server: InSessions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    upstreams = {
        "held": entry(server.url, scope="caller"),
        "narrow": entry(server.url, scope="caller", max_connections=8, timeout_seconds=5),
        "child": program(scope="caller"),
        "further": program(scope="caller"),
        "shared": program(scope="shared"),
        "brief": entry(server.url, scope="caller", held_seconds=HELD_SECONDS),
    }
    with Site(tmp_path_factory.mktemp("held"), upstreams) as site:
        yield site


@pytest.fixture
def fleet(server: InSessions, tmp_path: Path) -> Iterator[Site]:
    """Two replicas of which a test may stop one."""
    upstreams = {"held": entry(server.url, scope="caller")}
    with contextlib.ExitStack() as stack:
        runtime = stack.enter_context(tempfile.TemporaryDirectory(prefix="gw-"))  # as if on one host
        yield stack.enter_context(Site(tmp_path, upstreams, settings={"XDG_RUNTIME_DIR": runtime}))


async def asked(user: User, upstream: str = "held", **arguments: Any) -> tuple[dict[str, Any], Reply]:
    """Have the first question asked by the first replica, and return the params of the call and the reply."""
    params = {"name": f"{upstream}__delete", "arguments": arguments}
    reply = await user.send("tools/call", params)
    assert reply.result["resultType"] == "input_required", reply
    return params, reply


@every_wire
@pytest.mark.parametrize(("upstream", "on"), [("held", "call"), ("held", "session"), ("child", "")])
async def test_two_questions_get_the_answers_that_belong_to_them(site: Site, wire: str, upstream: str, on: str) -> None:
    async with speaking(wire, site, "ada") as call:
        result = await call("tools/call", call_params(f"{upstream}__delete", {"on": on}), ANSWERS)
    assert json.loads(text_of(result)) == EACH_ITS_OWN


async def test_a_call_survives_the_replicas_that_do_not_hold_it(fleet: Site, server: InSessions) -> None:
    holder, other = fleet.replicas
    before = len(server.ran)
    async with fleet.user() as user:
        params, reply = await asked(user)
        second = await user.send("tools/call", {**params, **await user.retry(reply, ANSWERS)})
        assert (reply.url, second.url) == (holder.url, other.url)
        other.kill()
        last = await user.retry(second, ANSWERS)
        user.urls = 2 * [holder.url]
        assert (await user.send("tools/call", {**params, **last})).said == EACH_ITS_OWN
    assert len(server.ran) == before + 1


async def test_a_round_that_is_sent_again_gets_the_same_event_and_acts_once(fleet: Site, server: InSessions) -> None:
    async with fleet.user() as user:
        params, reply = await asked(user)
        answer = {**params, **await user.retry(reply, ANSWERS)}
        second, again, third = [await user.send("tools/call", answer) for _ in range(3)]
        questions = [list(each.result["inputRequests"].values()) for each in (second, again, third)]
        assert questions[0] == questions[1] == questions[2]
        last = {**params, **await user.retry(second, ANSWERS)}
        results = [(await user.send("tools/call", last)).said for _ in range(3)]
        assert results == 3 * [EACH_ITS_OWN]
    assert len(server.answers) == len({each["id"] for each in server.answers})


async def test_another_answer_to_an_answered_question_changes_nothing(fleet: Site) -> None:
    async with fleet.user() as user:
        params, reply = await asked(user)
        second = await user.send("tools/call", {**params, **await user.retry(reply, ANSWERS)})
        other = {"elicitation/create": {"action": "decline"}}
        refused = await user.send("tools/call", {**params, **await user.retry(reply, other)})
        assert "has got another answer to its question before" in refused.text
        assert fleet.metric("gateway_upstream_failures_total", upstream="held", reason="held_answered") == 1
        assert (await user.send("tools/call", {**params, **await user.retry(second, ANSWERS)})).said == EACH_ITS_OWN


async def test_nobody_else_continues_a_call(fleet: Site) -> None:
    async with fleet.user("ada") as ada, fleet.user("bob") as bob:
        params, reply = await asked(ada)
        stolen = await bob.send("tools/call", {**params, **await ada.retry(reply, ANSWERS)})
        assert "error" in stolen.response
        assert (await ada.call("held__delete", answers=ANSWERS)).said == EACH_ITS_OWN


async def test_a_call_whose_holder_was_killed_ends_with_a_clear_error(fleet: Site, server: InSessions) -> None:
    holder, other = fleet.replicas
    before = len(server.ran)
    async with fleet.user() as user:
        params, reply = await asked(user)
        holder.kill()
        user.urls = 2 * [other.url]
        began = time.monotonic()
        lost = await user.send("tools/call", {**params, **await user.retry(reply, ANSWERS)})
        assert time.monotonic() - began < 5
    assert lost.result["isError"]
    assert "has been lost meanwhile" in lost.text
    assert "may have acted" in lost.text
    assert len(server.ran) == before + 1


async def test_a_holder_that_is_cut_off_for_a_while_loses_no_call(fleet: Site) -> None:
    holder, other = fleet.replicas
    async with fleet.user(seconds=60) as user:
        params, reply = await asked(user)
        answer = {**params, **await user.retry(reply, ANSWERS)}
        user.urls = 2 * [other.url]
        holder.pause()
        try:
            silent = await user.send("tools/call", answer)
        finally:
            holder.resume()
        assert (silent.status, "retry-after" in silent.headers) == (503, True)
        second = await user.send("tools/call", answer)
        assert (await user.send("tools/call", {**params, **await user.retry(second, ANSWERS)})).said == EACH_ITS_OWN


async def test_a_call_that_nobody_answers_is_ended_after_its_time(site: Site, server: InSessions) -> None:
    async with site.user("gil") as user:
        params, reply = await asked(user, "brief")
        assert site.metric("gateway_upstream_held_calls", upstream="brief") == 1
        sent = server.methods.count("notifications/cancelled")
        wait_until(lambda: server.methods.count("notifications/cancelled") > sent, "the end of the call")
        late = await user.send("tools/call", {**params, **await user.retry(reply, ANSWERS)})
    assert f"It waited for {HELD_SECONDS} seconds" in late.text
    assert "may have acted" in late.text
    assert site.metric("gateway_upstream_held_calls", upstream="brief") == 0
    assert site.metric("gateway_upstream_held_ended_total", upstream="brief", how="expired") == 1
    assert site.metric("gateway_upstream_failures_total", upstream="brief", reason="held_expired") == 1


async def test_a_caller_with_too_many_calls_is_refused_before_the_server_acts(site: Site, server: InSessions) -> None:
    async with site.user("carol", urls=site.urls[:1]) as user:
        held = [await asked(user) for _ in range(MAX_HELD_BY_CALLER)]
        before = len(server.ran)
        refused = await user.call("held__delete", answers=ANSWERS)
        assert "too many of your calls wait for an answer" in refused.text
        assert len(server.ran) == before
        assert site.metric("gateway_upstream_held_refused_total", upstream="held", limit="caller") == 1
        assert site.metric("gateway_upstream_failures_total", upstream="held", reason="held_too_many") == 1
        async with site.user("dave") as other:
            assert (await other.call("held__delete", answers=ANSWERS)).said == EACH_ITS_OWN
        for params, reply in held:
            second = await user.send("tools/call", {**params, **await user.retry(reply, ANSWERS)})
            last = await user.send("tools/call", {**params, **await user.retry(second, ANSWERS)})
            assert last.said == EACH_ITS_OWN


async def test_a_client_that_leaves_before_a_question_ends_its_call(site: Site, server: InSessions) -> None:
    sent = server.methods.count("notifications/cancelled")
    async with site.user("erin", seconds=0.5) as user:
        with pytest.raises(httpx.ReadTimeout):
            await user.call("held__slow")
    wait_until(lambda: server.methods.count("notifications/cancelled") > sent, "the end of the call")


async def test_a_client_that_cannot_be_asked_makes_the_server_say_so(site: Site) -> None:
    async with site.user("frank", capabilities={"sampling": {}}) as user:
        (first, second) = (await user.call("held__delete")).said
    assert first[1]["code"] == second[1]["code"] == -32601
    assert "does not support elicitation/create" in first[1]["message"]


async def test_a_client_of_a_session_that_leaves_while_it_is_asked_ends_its_call(
    site: Site, server: InSessions
) -> None:
    sent = server.methods.count("notifications/cancelled")
    async with site.client("hal") as client:
        await speak(client)
        leaving = asyncio.create_task(client.complete("tools/call", call_params("held__delete"), answers=NEVER))
        await asyncio.to_thread(wait_until, lambda: site.metric("gateway_calls_waiting") > 0, "the question")
        leaving.cancel()
        await asyncio.wait({leaving})
    await asyncio.to_thread(
        wait_until, lambda: server.methods.count("notifications/cancelled") > sent, "the end of the call"
    )


@pytest.mark.parametrize("upstream", ["held", "child"])
async def test_calls_of_one_caller_at_once_each_get_their_own_question(site: Site, upstream: str) -> None:
    async with site.user("ivy", urls=site.urls[:1], seconds=60) as user:

        async def deleted(files: int) -> Any:
            reply = await user.call(f"{upstream}__delete", {"files": [files], "on": "session"}, ANSWERS)
            return reply.said

        await deleted(0)  # from now on the gateway knows that the server asks so
        files = range(1, 7)
        said = await asyncio.gather(*(deleted(number) for number in files))
    assert said == [[[number, answer_of({"params": {"message": f"Delete {number} files?"}})]] for number in files]


async def test_a_call_takes_a_further_program_while_others_wait_for_their_users(site: Site) -> None:
    async with site.user("jo", urls=site.urls[:1]) as user:
        params, reply = await asked(user, "further", files=[1])
        assert (await user.call("further__echo", {"a": 1})).said == {"a": 1}
        assert (await user.call("further__delete", {"files": [2]}, ANSWERS)).said[0][0] == 2
        other, second = await asked(user, "further", files=[3])
        refused = await user.call("further__echo", {"a": 1})
        assert "accepts no further requests at the moment" in refused.text, "half of the connections are one caller's"
        for again, asks, number in ((params, reply, 1), (other, second, 3)):
            (question,) = asks.result["inputRequests"].values()
            assert question["params"]["message"] == f"Delete {number} files?"
            last = await user.send("tools/call", {**again, **await user.retry(asks, ANSWERS)})
            assert last.said[0][0] == number


async def test_a_question_on_a_connection_of_all_callers_is_refused_in_words(site: Site) -> None:
    async with site.user("kim") as user:
        (first, second) = (await user.call("shared__delete", answers=ANSWERS)).said
    for refused in (first[1], second[1]):
        assert refused["code"] == -32601
        assert 'the option "scope" of the upstream, set to caller' in refused["message"]


async def test_the_audit_log_says_that_an_answer_came_too_late_for_the_server(
    server: InSessions, tmp_path: Path
) -> None:
    audit = tmp_path / "audit.log"
    with contextlib.ExitStack() as stack:
        runtime = stack.enter_context(tempfile.TemporaryDirectory(prefix="gw-"))
        settings = {"XDG_RUNTIME_DIR": runtime, "GATEWAY_AUDIT_LOG": str(audit), "GATEWAY_LOG_FORMAT": "json"}
        upstreams = {"held": entry(server.url, scope="caller")}
        site = stack.enter_context(Site(tmp_path / "site", upstreams, settings=settings))
        async with site.user() as user:
            params, reply = await asked(user, patience=0.2)
            wait_until(lambda: not site.metric("gateway_upstream_held_calls", upstream="held"), "the server to give up")
            late = {**params, **await user.retry(reply, ANSWERS)}
            replies = [await user.send("tools/call", late) for _ in range(2)]
    assert [each.url for each in replies] == [site.urls[1], site.urls[0]]
    assert [each.said for each in replies] == 2 * [[[3, "no answer"]]]
    legs = [json.loads(line) for line in audit.read_text().splitlines() if '"leg"' in line]
    assert [leg.get("late_answer", False) for leg in legs] == [False, True, True]


async def test_a_question_that_is_withdrawn_at_once_is_not_asked(site: Site) -> None:
    async with site.user("lee") as user:
        reply = await user.call("child__delete", {"withdraws": True})
    assert reply.said == [[3, "withdrawn"], [300, "withdrawn"]]


async def test_a_question_may_have_the_id_of_one_that_was_withdrawn(site: Site) -> None:
    async with site.user("sam") as user:
        assert (await user.call("child__delete", {"again": True}, ANSWERS)).said == EACH_ITS_OWN


async def test_a_question_that_comes_again_while_it_is_open_is_asked_once(site: Site) -> None:
    async with site.user("uma") as user:
        params, reply = await asked(user, "child", files=[3], repeats=True)
        assert len(reply.result["inputRequests"]) == 1
        last = await user.send("tools/call", {**params, **await user.retry(reply, ANSWERS)})
        assert last.said == EACH_ITS_OWN[:1]


async def test_a_late_question_of_a_call_that_was_left_is_not_shown_as_one_of_the_next(site: Site) -> None:
    async with site.user("mo", urls=site.urls[:1], seconds=0.5) as user:
        with pytest.raises(httpx.ReadTimeout):
            await user.call("child__hang")
    async with site.user("mo", urls=site.urls[:1]) as user:
        assert (await user.call("child__delete", answers=ANSWERS)).said == EACH_ITS_OWN


async def test_calls_that_wait_take_no_connection_from_answers_and_other_calls(site: Site) -> None:
    """Four callers have eight calls held, as many as there are connections."""
    async with contextlib.AsyncExitStack() as stack:
        users = [await stack.enter_async_context(site.user(f"n{n}", urls=site.urls[:1])) for n in range(4)]
        held = [(user, *await asked(user, "narrow", files=[3])) for user in users for _ in range(2)]
        async with site.user("other", urls=site.urls[:1]) as other:
            assert (await other.call("narrow__echo", {"text": "hi"})).text == "hi"
        for user, params, reply in held:
            last = await user.send("tools/call", {**params, **await user.retry(reply, ANSWERS)})
            assert last.said == EACH_ITS_OWN[:1]


async def test_a_question_that_no_state_can_carry_is_refused_and_holds_nothing(site: Site) -> None:
    async with site.user("pat") as user:
        reply = await user.call("held__delete", {"more": "x" * 30_000})
        assert [answer["code"] for _, answer in reply.said] == [-32602, -32602]
        assert "its open questions have more than 24576 bytes" in reply.said[0][1]["message"]


async def test_a_question_of_a_call_that_has_sent_too_much_is_not_shown_as_one_of_the_next(site: Site) -> None:
    async with site.user("quin", urls=site.urls[:1], meta={"progressToken": "p"}) as user:
        flood = await user.call("further__notices", {"steps": MAX_NOTICES})
        assert "sent more than this gateway accepts" in flood.text
        assert (await user.call("further__delete", {"files": [3]}, ANSWERS)).said == EACH_ITS_OWN[:1]


async def test_a_large_result_is_given_again_too(site: Site) -> None:
    async with site.user("rae", seconds=60) as user:
        params, reply = await asked(user, files=[3], long=300_000)
        last = {**params, **await user.retry(reply, ANSWERS)}
        results = [(await user.send("tools/call", last)).said for _ in range(4)]
    assert results == 4 * [[[3, EACH_ITS_OWN[0][1]], "x" * 300_000]]


async def test_a_call_that_may_not_ask_takes_no_question_from_one_that_may(site: Site) -> None:
    async with site.user("tess", urls=site.urls[:1]) as user, site.user("tess", urls=site.urls[:1]) as mute:
        mute.capabilities = {}
        slow = asyncio.create_task(mute.call("child__slow", {"seconds": 1}))
        assert (await user.call("child__delete", answers=ANSWERS)).said == EACH_ITS_OWN
        assert (await slow).said == {"seconds": 1}
