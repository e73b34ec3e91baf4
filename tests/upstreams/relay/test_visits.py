"""Relays of upstreams that send their user to URLs before they act, as servers of 2025-11-25 do by an error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from gateway.engine.questions import Answer
from gateway.errors import CannotContinue, InvalidRequestState, MissingCapability, Refused
from gateway.upstreams.config.definition import ByGlob
from gateway.upstreams.failures import UpstreamError
from gateway.upstreams.relay import MAX_VISITS
from tests.upstreams.relay.calling import Call, Replica, accept, replica_of, said
from tests.upstreams.servers.recording import Recording, visit

GONE: Answer = {"result": {"action": "accept"}}
ALL_GONE = {"url1": GONE}
ADA = {"name": accept(name="Ada")}
SIGNED_IN: dict[str, Any] = {"answers": {}, "state": None}


@pytest.fixture(scope="module")
def serving() -> Iterator[Recording]:
    with Recording() as server:
        yield server


@pytest.fixture
def upstream(serving: Recording) -> Recording:
    serving.clear()
    return serving


@pytest.fixture
async def replica(upstream: Recording) -> AsyncIterator[Replica]:
    async with replica_of(upstream.url) as made:
        yield made


@pytest.fixture
async def other(upstream: Recording) -> AsyncIterator[Replica]:
    async with replica_of(upstream.url) as made:
        yield made


def signing(replica: Replica, *steps: str, **options: Any) -> Call:
    """Return a call of a tool that takes these steps."""
    return Call(replica.tool("sign_in"), {"steps": list(steps)}, **options)


def why(error: Exception) -> str:
    assert isinstance(error, CannotContinue)
    return str(error)


@pytest.mark.parametrize("in_task", [False, True])
async def test_the_user_is_asked_to_visit_and_the_same_request_is_sent_again(
    replica: Replica, other: Replica, upstream: Recording, in_task: bool
) -> None:
    call = signing(replica, "visit", in_task=in_task)
    (question,) = (await call.asked()).values()
    assert (question.method, question.capabilities) == ("elicitation/create", (("elicitation", "url"),))
    assert question.params == {name: value for name, value in visit(1).items() if name != "elicitationId"}
    assert said(await call.result(ALL_GONE, on=other.tool("sign_in"))) == SIGNED_IN
    first, second = upstream.of("sign_in")
    assert first.params["arguments"] == second.params["arguments"] == {"steps": ["visit"]}
    assert second.params.keys() == {"name", "arguments", "_meta"}
    assert upstream.noted == ["signed in"]


async def test_the_id_of_the_upstream_stays_in_the_slot(replica: Replica) -> None:
    call = signing(replica, "visit")
    await call.asked()
    slot = call.rest["slot"]
    assert [(key, wire_key) for key, wire_key, *_ in slot["asked"]] == [("e1", "url1")]
    assert (slot["era"], slot["visits"]) == ("visiting", 1)


async def test_each_refusal_asks_anew_and_an_earlier_answer_does_not_count(
    replica: Replica, upstream: Recording
) -> None:
    call = signing(replica, "visit", "visit")
    await call.asked()
    (question,) = (await call.asked(ALL_GONE)).values()
    assert question.params["url"] == visit(2)["url"]
    assert call.journal.answers == {}
    assert list(await call.asked()) == ["url1"]
    assert len(upstream.of("sign_in")) == 2
    assert said(await call.result(ALL_GONE)) == SIGNED_IN


@pytest.mark.parametrize("in_task", [False, True])
async def test_after_three_visits_the_next_refusal_ends_the_call(
    replica: Replica, upstream: Recording, in_task: bool
) -> None:
    call = signing(replica, *["visit"] * (MAX_VISITS + 1), in_task=in_task)
    await call.asked()
    for _ in range(MAX_VISITS - 1):
        await call.asked(ALL_GONE)
    assert why(await call.error(ALL_GONE)) == (
        "The server 'up' still needs its user to visit a web page, after 3 visits were accepted. It refused the "
        "request, so it should not have acted. Try again once that is done."
    )
    assert len(upstream.of("sign_in")) == MAX_VISITS + 1


@pytest.mark.parametrize("result", [{"action": "decline"}, {"action": "cancel"}, {}, {"action": ["accept"]}])
async def test_a_user_who_does_not_accept_ends_the_call_without_another_request(
    replica: Replica, upstream: Recording, result: dict[str, Any]
) -> None:
    call = signing(replica, "visit")
    await call.asked()
    assert why(await call.error({"url1": {"result": result}})) == (
        "The server 'up' needs its user to visit a web page first, which was not accepted. It refused the request, so "
        "it should not have acted."
    )
    assert len(upstream.of("sign_in")) == 1


async def test_a_client_that_answers_with_an_error_ends_the_call(replica: Replica, upstream: Recording) -> None:
    call = signing(replica, "visit")
    await call.asked()
    error = await call.error({"url1": {"error": {"code": -1, "message": "no browser"}}})
    assert isinstance(error, Refused)
    assert len(upstream.of("sign_in")) == 1


async def test_one_url_of_several_that_is_declined_ends_the_call() -> None:
    data = {"elicitations": [visit(1), visit(2)]}
    async with replica_of("http://127.0.0.1:1/mcp", client=Refusing(data)) as refusing:
        call = Call(refusing.tool("sign_in"))
        assert list(await call.asked()) == ["url1", "url2"]
        assert list(await call.asked(ALL_GONE)) == ["url2"]
        assert "not accepted" in why(await call.error({"url2": {"result": {"action": "decline"}}}))


class Refusing:
    """A client whose upstream sends its user to URLs at each request."""

    def __init__(self, data: Any) -> None:
        self.data = data

    async def request(self, _method: str, _params: Any, **_options: Any) -> dict[str, Any]:
        raise UpstreamError("up", -32042, "Sign in first", self.data)


async def test_a_client_that_cannot_be_sent_to_urls_is_told_what_it_lacks(
    replica: Replica, upstream: Recording
) -> None:
    error = await signing(replica, "visit", can={"elicitation": {}}).error()
    assert isinstance(error, MissingCapability)
    assert error.data == {"requiredCapabilities": {"elicitation": {"url": {}}}}
    assert len(upstream.of("sign_in")) == 1


async def test_a_tool_may_ask_its_own_questions_after_the_visit(replica: Replica, upstream: Recording) -> None:
    call = signing(replica, "visit", "ask")
    await call.asked()
    assert list(await call.asked(ALL_GONE)) == ["name"]
    assert call.rest["slot"]["era"] == "stateless", "an older release may take the call from here"
    assert said(await call.result(ADA))["answers"] == {"name": ADA["name"]["result"]}
    assert len(upstream.of("sign_in")) == 3


@pytest.mark.parametrize("steps", [("ask", "visit"), ("visit", "ask", "visit")])
async def test_a_tool_that_asked_before_may_have_acted_so_its_error_is_passed_on(
    replica: Replica, upstream: Recording, steps: tuple[str, ...]
) -> None:
    call = signing(replica, *steps)
    await call.asked()
    for _ in steps[2:]:
        await call.asked(ALL_GONE)
    error = await call.error(ADA)
    assert isinstance(error, UpstreamError)
    assert (error.code, error.data) == (-32042, {"elicitations": [visit(len(steps))]})
    assert len(upstream.of("sign_in")) == len(steps)


async def test_answers_that_came_with_the_first_request_are_not_sent_again(
    replica: Replica, upstream: Recording
) -> None:
    call = signing(replica, "visit")
    await call.asked(ADA)
    await call.result(ALL_GONE)
    first, second = upstream.of("sign_in")
    assert (first.answers, second.answers) == ({"name": ADA["name"]["result"]}, None)


@pytest.mark.parametrize(("steps", "acted"), [(["visit"], False), (["ask", "visit"], True)])
async def test_an_operator_can_refuse_visits(upstream: Recording, steps: list[str], acted: bool) -> None:
    ask = ByGlob("hold", (("sign_*", "refuse"),))
    async with replica_of(upstream.url, ask=ask) as replica:
        call = signing(replica, *steps)
        if acted:
            await call.asked()
        error = why(await call.error(ADA if acted else None))
    assert error.startswith(
        "up__sign_in sends its user to a web page first, which the option \"ask\" of the upstream 'up' refuses."
    )
    assert ("may have acted" in error) == acted
    assert len(upstream.of("sign_in")) == len(steps)


async def test_an_operator_can_refuse_the_visits_of_other_tools_alone(upstream: Recording) -> None:
    async with replica_of(upstream.url, ask=ByGlob("replay", (("other", "refuse"),))) as replica:
        assert list(await signing(replica, "visit").asked()) == ["url1"]


@pytest.mark.parametrize(
    ("kind", "entry", "target"),
    [("prompts", {"name": "signing"}, ""), ("resources", {"uri": "note://signing", "name": "s"}, "up+note://signing")],
)
async def test_prompts_and_resources_send_their_user_away_like_tools(
    replica: Replica, upstream: Recording, kind: Any, entry: dict[str, Any], target: str
) -> None:
    call = Call(replica.serve(kind, entry), target=target)
    assert list(await call.asked()) == ["url1"]
    await call.result(ALL_GONE)
    assert upstream.noted == ["signed in"]


async def test_the_time_of_a_call_is_that_of_all_its_requests(replica: Replica, upstream: Recording) -> None:
    call = signing(replica, "visit")
    await call.asked()
    call.rest["slot"]["spent"] = 60_000
    assert "Nothing was sent" in why(await call.error(ALL_GONE)), "it has not acted in an earlier round either"
    assert len(upstream.of("sign_in")) == 1


async def test_a_task_that_was_interrupted_while_it_sent_the_request_again_ends(
    replica: Replica, upstream: Recording
) -> None:
    call = signing(replica, "visit", in_task=True)
    await call.asked()
    await call.result(ALL_GONE)
    sent = next(slot for slot in reversed(call.keeper.slots) if slot.get("sent"))
    assert (sent["era"], sent["visits"]) == ("visiting", 1)
    call.rest["slot"] = sent
    assert "interrupted" in why(await call.error())
    assert len(upstream.of("sign_in")) == 2


async def test_a_release_that_does_not_know_visits_refuses_the_call(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = signing(replica, "visit")
    await call.asked()
    monkeypatch.setattr("gateway.upstreams.slot.VISITING", "unknown")
    assert isinstance(await call.error(ALL_GONE), InvalidRequestState)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "malformed"),
        ({"elicitations": [{**visit(1), "url": "javascript:alert(1)"}]}, "malformed"),
        ({"elicitations": [visit(1)] * 1000}, "malformed"),
        ({"elicitations": [{**visit(1), "message": "x" * 30_000}]}, "too_large"),
    ],
)
async def test_urls_that_no_client_may_show_end_the_call(data: Any, reason: str) -> None:
    async with replica_of("http://127.0.0.1:1/mcp", client=Refusing(data)) as replica:
        assert "needs an answer, but" in why(await Call(replica.tool("sign_in")).error())
        assert replica.telemetry.failures == {reason: 1}
