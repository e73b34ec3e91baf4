"""Relays to a real stateless upstream: what it gets, what our client gets, and what is said when it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from gateway.engine.outcomes import NeedsInput, Shed
from gateway.engine.questions import Answer
from gateway.errors import (
    CannotContinue,
    InvalidRequest,
    InvalidRequestState,
    MissingCapability,
    Overloaded,
    Refused,
    ResourceNotFound,
)
from gateway.protocol.headers import Headers
from gateway.protocol.upstream.results import PORTION_ITEMS
from gateway.registry.relayed import Relayed
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from tests.upstreams.relay.calling import Call, Replica, accept, replica_of, said, text_of
from tests.upstreams.servers.recording import ODD_KEYS, Recording

ADA = {"name": accept(name="Ada")}

ASKS = {
    "name": {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}},
}


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


async def asking(served: Relayed, arguments: dict[str, Any] | None = None, **options: Any) -> Call:
    """Return a call that has asked."""
    call = Call(served, arguments, **options)
    await call.asked()
    return call


async def error_with(client: Any, **options: Any) -> Exception:
    """Return the error of a call that such a client forwards."""
    async with replica_of("http://127.0.0.1:1/mcp", client=client) as replica:
        return await Call(replica.tool("echo"), **options).error()


def why(error: Exception) -> str:
    """Return the sentence with which a call ends."""
    assert isinstance(error, CannotContinue)
    return str(error)


# --- plain calls -------------------------------------------------------------------------------------


async def test_a_call_reaches_the_upstream_under_its_own_name_and_its_result_passes(
    replica: Replica, upstream: Recording
) -> None:
    result = await Call(replica.tool("structured"), {"numbers": [1, 2.5]}).result()
    assert result["structuredContent"] == {"sum": 3.5, "unknown": [None, {"deep": 1.5}]}
    assert result["_meta"] == {"example.com/kept": {"a": 1}}
    assert result["extra"] == {"member": True}
    assert "resultType" not in result
    (call,) = upstream.of("structured")
    assert call.arguments == {"numbers": [1, 2.5]}
    assert call.params.keys() == {"name", "arguments", "_meta"}


async def test_resources_in_results_get_the_prefix(replica: Replica) -> None:
    content = (await Call(replica.tool("media")).result())["content"]
    assert content[2]["resource"]["uri"] == "up+note://embedded"
    assert content[3]["uri"] == "up+note://today"
    assert content[4] == {"type": "text", "text": '{"type":"hologram","unknown":{"kind":"kept"}}'}
    assert replica.telemetry.heals["block"] >= 1


async def test_a_failed_result_passes_as_it_is(replica: Replica) -> None:
    result = await Call(replica.tool("fail")).result()
    assert result == {"content": [{"type": "text", "text": "It failed, in the upstream's words"}], "isError": True}


async def test_an_error_of_the_upstreams_own_passes_with_its_data(replica: Replica) -> None:
    error = await Call(replica.tool("rpc_error")).error()
    assert isinstance(error, UpstreamError)
    assert (error.code, error.message, error.data) == (1234, "An error of the upstream's own", {"kept": [1, 2]})


async def test_the_clients_own_meta_reaches_the_upstream_without_reserved_names(
    replica: Replica, upstream: Recording
) -> None:
    meta = {"example.com/a": 1, "io.modelcontextprotocol/clientInfo": {"name": "client"}, "traceparent": "00-a-b-00"}
    await Call(replica.tool("echo"), {"text": "a"}, meta=meta).result()
    (call,) = upstream.of("echo")
    assert call.meta["example.com/a"] == 1
    assert call.meta["io.modelcontextprotocol/clientInfo"]["name"] == "gateway"
    assert "traceparent" not in call.meta


async def test_arguments_in_headers_are_sent_in_headers(replica: Replica) -> None:
    tool = replica.tool("regional", region={"type": "string", "x-mcp-header": "Region"})
    assert text_of(await Call(tool, {"region": "eu"}).result()) == "eu by header eu"


async def test_only_the_named_headers_of_the_caller_are_forwarded(upstream: Recording) -> None:
    async with replica_of(upstream.url, forward_headers=("x-token",)) as replica:
        headers = Headers([(b"x-token", b"t1"), (b"authorization", b"Bearer canary"), (b"x-other", b"o")])
        await Call(replica.tool("echo"), {"text": "a"}, headers=headers).result()
    (call,) = upstream.of("echo")
    assert call.header("x-token") == "t1"
    assert call.header("x-other") is call.header("authorization") is None


@pytest.mark.parametrize("values", [[b"evil", b"good"], [b"same", b"same"], [b"a\xff"], [b"a\x7f"]])
async def test_a_header_that_cannot_be_forwarded_as_it_is_refuses_the_call(
    values: list[bytes], upstream: Recording
) -> None:
    headers = Headers([(b"accept", b"a"), *((b"x-token", value) for value in values), (b"accept", b"b")])
    async with replica_of(upstream.url, forward_headers=("x-token",)) as replica:
        error = await Call(replica.tool("echo"), {"text": "a"}, headers=headers).error()
    assert isinstance(error, InvalidRequest)
    assert str(error).startswith("Header x-token must")
    assert upstream.of("echo") == []


async def test_the_place_in_flight_is_given_back_before_the_upstream_works(
    replica: Replica, upstream: Recording
) -> None:
    left: list[int] = []
    await Call(replica.tool("echo"), {"text": "a"}, step_aside=lambda: left.append(len(upstream.calls))).result()
    assert left == [0]


async def test_progress_and_logs_are_relayed(replica: Replica) -> None:
    call = Call(replica.tool("progress"), {"steps": 2}, wants_progress=True)
    await call.result()
    assert call.notes.progressed == [(1, 2, "step 1"), (2, 2, "step 2")]
    call = Call(replica.tool("logs"), log_level="debug")
    await call.result()
    assert call.notes.logged == [
        ("info", {"said": "first"}),
        ("warning", "second"),
        ("info", "of a level that does not exist"),
    ]


async def test_logs_and_progress_go_on_in_the_next_leg(replica: Replica) -> None:
    call = await asking(replica.tool("talk_and_ask"), wants_progress=True, log_level="info")
    await call.result(ADA)
    assert call.notes.logged == [("info", "before"), ("info", "after")]
    assert [done for done, _, _ in call.notes.progressed] == [1, 2]


# --- prompts and resources ---------------------------------------------------------------------------


async def test_a_prompt_is_relayed(replica: Replica, upstream: Recording) -> None:
    prompt = replica.serve("prompts", {"name": "greeting"})
    result = await Call(prompt, {"name": "Ada"}).result()
    assert [message["content"].get("text") for message in result["messages"]] == ["Hello, Ada", None]
    assert result["messages"][1]["content"]["uri"] == "up+note://today"
    assert upstream.of("greeting", "prompts/get")[0].arguments == {"name": "Ada"}


async def test_a_resource_is_read_by_the_upstreams_uri(replica: Replica, upstream: Recording) -> None:
    resource = replica.serve("resources", {"uri": "note://today", "name": "today"})
    result = await Call(resource, target="UP+note://today").result()
    assert result == {"contents": [{"uri": "up+note://today", "mimeType": "text/plain", "text": "a note"}]}
    assert len(upstream.of("note://today", "resources/read")) == 1


async def test_a_resource_is_read_by_the_text_of_the_upstream_however_a_client_writes_its_uri(replica: Replica) -> None:
    item = replica.serve("resources", {"uri": "item://7", "name": "item"})
    result = await Call(item, target="UP+ITEM://%37").result()
    assert (result["contents"][0]["uri"], result["contents"][0]["text"]) == ("up+item://7", "item 7")


async def test_a_resource_that_the_upstream_lacks_is_not_found_under_our_uri(replica: Replica) -> None:
    nothing = replica.serve("resources", {"uri": "nope://1", "name": "nothing"})
    error = await Call(nothing, target="up+nope://1").error()
    assert isinstance(error, ResourceNotFound)
    assert error.uri == "up+nope://1"


@pytest.mark.parametrize(
    ("kind", "raw", "member"),
    [
        ("prompts", {"name": "asking"}, "messages"),
        ("resources", {"uri": "note://asking", "name": "asking"}, "contents"),
    ],
)
async def test_a_prompt_or_resource_may_ask_too(replica: Replica, kind: Any, raw: dict[str, Any], member: str) -> None:
    served = replica.serve(kind, raw)
    call = Call(served, target=getattr(served, "uri", ""))
    assert list(await call.asked()) == ["name"]
    assert '"Ada"' in str((await call.result(ADA))[member])


# --- questions ---------------------------------------------------------------------------------------


async def test_an_upstream_that_asks_goes_on_from_any_replica_with_answer_and_state(
    replica: Replica, other: Replica, upstream: Recording
) -> None:
    call = Call(replica.tool("two_rounds"))
    first = await call.asked()
    assert first["answer"].params["message"] == "What is your name?"
    second = await call.asked({"answer": accept(name="Ada")}, on=other.tool("two_rounds"))
    assert second["answer"].params["message"] == "A colour, Ada?"
    result = await call.result({"answer": accept(colour="red")})
    assert said(result) == {"first": accept(name="Ada")["result"], "second": accept(colour="red")["result"]}
    assert [made.ended for made in upstream.of("two_rounds")] == ["input_required", "input_required", "complete"]


async def test_the_journal_keeps_nothing_of_earlier_rounds(replica: Replica) -> None:
    call = await asking(replica.tool("two_rounds"))
    await call.asked({"answer": accept(name="Secret Ada")})
    journal = call.journal
    assert list(journal.pending) == ["2:answer"]
    assert journal.answers == {}


@pytest.mark.parametrize(
    ("tool", "key", "answer"),
    [
        ("ask_name", "name", {"action": "decline", "_meta": {"own": 1}, "future": [1]}),
        ("ask_name", "name", {"action": "cancel"}),
        ("consent", "consent", {"action": "accept"}),
        ("sample", "title", {"role": "assistant", "model": "m", "content": {"type": "text", "text": "T"}}),
        ("roots", "roots", {"roots": [{"uri": "file:///home", "name": "home"}]}),
    ],
)
async def test_an_answer_reaches_the_upstream_as_it_came(
    replica: Replica, tool: str, key: str, answer: dict[str, Any]
) -> None:
    call = Call(replica.tool(tool))
    assert list(await call.asked()) == [key]
    assert said(await call.result({key: {"result": answer}})) == {key: answer}


async def test_reserved_members_of_an_answers_meta_stay_here(replica: Replica) -> None:
    call = await asking(replica.tool("ask_name"))
    answer = {"action": "decline", "_meta": {"io.modelcontextprotocol/x": 1}}
    assert said(await call.result({"name": {"result": answer}})) == {"name": {"action": "decline"}}


async def test_each_of_several_questions_is_answered_by_itself(replica: Replica, upstream: Recording) -> None:
    call = Call(replica.tool("several"))
    assert list(await call.asked()) == ["name", "title", "roots"]
    roots: Answer = {"result": {"roots": []}}
    assert list(await call.asked({"name": {"result": {"action": "decline"}}, "roots": roots})) == ["title"]
    title = {"result": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "T"}}}
    result = said(await call.result({"title": title}))
    assert result == {"name": {"action": "decline"}, "title": title["result"], "roots": {"roots": []}}
    assert len(upstream.of("several")) == 2


async def test_keys_that_clients_cannot_have_are_replaced_and_the_upstream_gets_its_own_back(replica: Replica) -> None:
    call = Call(replica.tool("odd_keys"))
    questions = await call.asked()
    assert list(questions) == ["k1", "k2", "k3", "plain"]
    answers = {key: accept(name=question.params["message"]) for key, question in questions.items()}
    result = said(await call.result(answers))
    assert {key: answer["content"]["name"] for key, answer in result.items()} == {
        key: f"Question {number}?" for number, key in enumerate(ODD_KEYS)
    }


async def test_an_upstream_without_a_state_gets_none_back(replica: Replica, upstream: Recording) -> None:
    call = await asking(replica.tool("no_state"))
    assert said(await call.result(ADA)) == {"name": ADA["name"]["result"]}
    assert "requestState" not in upstream.of("no_state")[1].params


async def test_a_missing_or_misfitting_answer_is_asked_for_again_without_the_upstream(
    replica: Replica, other: Replica, upstream: Recording
) -> None:
    call = await asking(replica.tool("ask_name"))
    assert list(await call.asked({"unknown": accept(name="x")})) == ["name"]
    again = await call.asked({"name": accept(name=7)}, on=other.tool("ask_name"))
    assert "not accepted" in again["name"].params["message"]
    assert len(upstream.of("ask_name")) == 1
    assert said(await call.result(ADA)) == {"name": ADA["name"]["result"]}


async def test_answers_to_the_very_first_request_are_for_the_upstream_to_judge(
    replica: Replica, upstream: Recording
) -> None:
    """Such a request is complete in itself, as it is when a client calls the upstream directly."""
    call = Call(replica.tool("two_rounds"))
    assert list(await call.asked(ADA)) == ["answer"]
    (made,) = upstream.of("two_rounds")
    assert made.answers == {"name": ADA["name"]["result"]}


async def test_a_leg_that_is_sent_twice_sends_its_round_twice(replica: Replica, upstream: Recording) -> None:
    call = await asking(replica.tool("two_rounds"))
    before = call.rest
    await call.asked({"answer": accept(name="Ada")})
    call.rest = before
    await call.asked({"answer": accept(name="Ada")})
    sent = upstream.of("two_rounds")
    assert sent[1].params["requestState"] == sent[2].params["requestState"]
    assert sent[1].answers == sent[2].answers


async def test_a_clients_error_ends_the_call_as_for_local_tools(replica: Replica, upstream: Recording) -> None:
    call = await asking(replica.tool("ask_name"))
    error = await call.error({"name": {"error": {"code": -1, "message": "no window"}}})
    assert isinstance(error, Refused)
    assert str(error) == "The client could not answer 'name': no window"
    assert len(upstream.of("ask_name")) == 1


async def test_what_this_client_cannot_be_asked_is_refused_as_for_local_tools(replica: Replica) -> None:
    error = await Call(replica.tool("sample"), can={"elicitation": {}}).error()
    assert isinstance(error, MissingCapability)
    assert error.data == {"requiredCapabilities": {"sampling": {}}}


async def test_a_question_of_another_method_is_refused_and_counted(replica: Replica) -> None:
    error = await Call(replica.tool("forbidden_question")).error()
    assert "something that servers may not ask" in why(error)
    assert replica.telemetry.drops == {"question": 1}
    assert replica.telemetry.failures == {"unasked": 1}


async def test_a_large_state_passes_to_its_limit_and_is_refused_beyond(replica: Replica) -> None:
    call = await asking(replica.tool("big_state"), {"bytes": 24_000})
    assert text_of(await call.result(ADA)) == "24000 bytes came back"
    error = await Call(replica.tool("big_state"), {"bytes": 25_000}).error()
    assert "the limit is 24576" in why(error)
    assert replica.telemetry.failures == {"too_large": 1}


async def test_a_task_may_carry_a_larger_state(replica: Replica) -> None:
    call = await asking(replica.tool("big_state"), {"bytes": 100_000}, in_task=True)
    call.answer_in_store(ADA)
    assert text_of(await call.result()) == "100000 bytes came back"


# --- bare states -------------------------------------------------------------------------------------


async def test_a_bare_state_is_sent_back_at_once(replica: Replica, upstream: Recording) -> None:
    assert text_of(await Call(replica.tool("only_state"), {"times": 3}).result()) == "3 times"
    assert replica.pauses.seconds == [0.1, 0.5, 2.0]
    assert len(upstream.of("only_state")) == 4


async def test_after_three_bare_states_the_leg_is_shed_and_another_replica_goes_on(
    replica: Replica, other: Replica
) -> None:
    call = Call(replica.tool("only_state"), {"times": 6})
    assert isinstance(await call.leg(may_shed=True), Shed)
    assert text_of(await call.result(on=other.tool("only_state"))) == "6 times"
    assert other.pauses.seconds == [0.1, 0.5]


async def test_where_no_leg_can_be_shed_bare_states_end_the_call(replica: Replica) -> None:
    error = await Call(replica.tool("only_state"), {"times": 4}).error()
    assert "again and again" in why(error)


# --- identity, time and places -----------------------------------------------------------------------


async def test_a_state_of_another_upstream_is_rejected_like_any_other(replica: Replica, upstream: Recording) -> None:
    call = await asking(replica.tool("ask_name"))
    async with replica_of(upstream.url + "?moved") as moved:
        assert isinstance(await call.error(ADA, on=moved.tool("ask_name")), InvalidRequestState)
        assert moved.telemetry.failures == {"changed": 1}
    assert len(upstream.of("ask_name")) == 1


async def test_a_task_of_another_upstream_ends_with_a_sentence(replica: Replica, upstream: Recording) -> None:
    call = await asking(replica.tool("ask_name"), in_task=True)
    call.answer_in_store(ADA)
    async with replica_of(upstream.url + "?moved") as moved:
        error = await call.error(on=moved.tool("ask_name"))
    assert "reconfigured" in why(error)


async def test_a_slot_of_another_era_is_rejected(replica: Replica) -> None:
    call = await asking(replica.tool("ask_name"))
    call.rest["slot"]["era"] = "another"
    assert isinstance(await call.error(ADA), InvalidRequestState)


async def test_the_time_limit_counts_the_upstreams_work_over_all_legs(upstream: Recording) -> None:
    async with replica_of(upstream.url, timeout_seconds=0.4) as replica:
        call = await asking(replica.tool("slow_then_ask"), {"seconds": 0.25})
        error = await call.error(ADA)
        assert isinstance(error, CannotContinue)
        assert str(error).startswith("The server 'up' did not finish within 0.4 seconds of work. It may have acted")
        assert replica.telemetry.failures == {"timed_out": 1}


async def test_a_call_whose_time_is_used_up_sends_nothing_more(replica: Replica, upstream: Recording) -> None:
    call = await asking(replica.tool("ask_name"))
    call.rest["slot"]["spent"] = 60_000
    assert "did not finish within 60 seconds" in str(await call.error(ADA))
    assert len(upstream.of("ask_name")) == 1


async def test_the_time_of_each_leg_is_added_to_that_of_the_legs_before(replica: Replica) -> None:
    call = await asking(replica.tool("two_rounds"))
    call.rest["slot"]["spent"] = 5000
    await call.asked({"answer": accept(name="Ada")})
    assert 5000 <= call.rest["slot"]["spent"] < 10_000


async def test_an_upstream_that_is_down_says_that_nothing_was_sent() -> None:
    async with replica_of("http://127.0.0.1:1/mcp") as replica:
        error = await Call(replica.tool("echo"), {"text": "a"}).error()
        assert isinstance(error, CannotContinue)
        assert str(error) == ("The server 'up' could not be reached. Nothing was sent to it, so you can try again.")


class Busy:
    """A client that fails so many times: by default, its places are taken."""

    def __init__(self, times: int, problem: Exception | None = None) -> None:
        self.times = times
        self.problem = problem or Overloaded()
        self.asked = 0

    async def request(self, _method: str, _params: Any, **_options: Any) -> dict[str, Any]:
        self.asked += 1
        if self.asked <= self.times:
            raise self.problem
        return {"resultType": "complete", "content": []}


async def test_taken_places_are_for_the_client_to_wait_for_except_in_a_task(upstream: Recording) -> None:
    async with replica_of(upstream.url, client=Busy(3)) as replica:
        assert isinstance(await Call(replica.tool("echo")).error(), Overloaded)
        assert await Call(replica.tool("echo"), in_task=True).result() == {"content": []}
        assert replica.pauses.seconds == [1.0, 1.0]


async def test_a_task_waits_for_a_connection_too_and_a_call_does_not(upstream: Recording) -> None:
    full = UpstreamFailure("up", Reason.BUSY, sent=False)
    async with replica_of(upstream.url, client=Busy(3, full)) as replica:
        assert "Nothing was sent" in str(await Call(replica.tool("echo")).error())
        assert await Call(replica.tool("echo"), in_task=True).result() == {"content": []}
        assert replica.pauses.seconds == [1.0, 1.0]


@pytest.mark.parametrize(("sent", "refused"), [(True, False), (False, True)])
async def test_a_task_does_not_send_again_what_the_upstream_has_received(sent: bool, refused: bool) -> None:
    received = UpstreamFailure("up", Reason.BUSY, sent=sent, refused=refused)
    client = Busy(1, received)
    async with replica_of("http://127.0.0.1:1/mcp", client=client) as replica:
        assert isinstance(await Call(replica.tool("echo"), in_task=True).error(), CannotContinue)
    assert client.asked == 1


class Scripted:
    """A client that returns these results, one after the other, and keeps what it was asked."""

    def __init__(self, *results: dict[str, Any]) -> None:
        self.results = list(results)
        self.asked: list[dict[str, Any]] = []
        self.options: list[dict[str, Any]] = []

    async def request(self, _method: str, params: Any, **options: Any) -> dict[str, Any]:
        self.asked.append(dict(params))
        self.options.append(options)
        return self.results[len(self.asked) - 1]


async def test_the_wait_for_a_place_does_not_count_as_work_of_the_upstream() -> None:
    now = [0.0]

    class Crowded(Scripted):
        async def request(self, _method: str, params: Any, **_options: Any) -> dict[str, Any]:
            now[0] += 2
            if now[0] < 5:
                raise Overloaded
            return await super().request(_method, params)

    script = Crowded({"resultType": "input_required", "requestState": "x", "inputRequests": ASKS})
    async with replica_of("http://127.0.0.1:1/mcp", client=script, clock=lambda: now[0]) as replica:
        call = await asking(replica.tool("echo"), in_task=True)
    assert now == [6.0]
    assert call.rest["slot"]["spent"] == 2000


async def test_a_long_result_is_rewritten_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[Any] = []
    links = [{"type": "resource_link", "uri": f"a:{number}", "name": "a"} for number in range(2 * PORTION_ITEMS + 1)]

    async def resume(group: Any) -> None:
        groups.append(group)

    async with replica_of("http://127.0.0.1:1/mcp", client=Scripted({"content": links})) as replica:
        monkeypatch.setattr(replica.relay.turns, "resume", resume)
        result = await Call(replica.tool("echo")).result()
    assert len(result["content"]) == len(links)
    assert groups == [replica.relay.definition.name] * 2


async def test_an_empty_state_is_sent_back_as_an_empty_state() -> None:
    script = Scripted({"resultType": "input_required", "inputRequests": ASKS, "requestState": ""}, {"content": []})
    async with replica_of("http://127.0.0.1:1/mcp", client=script) as replica:
        call = await asking(replica.tool("echo"))
        await call.result(ADA)
    assert script.asked[1]["requestState"] == ""


@pytest.mark.parametrize(
    "result", [{"content": 7}, {"content": [], "isError": 7}, {"taskId": "t", "status": "working"}]
)
async def test_a_result_that_no_client_could_read_is_a_failure(result: dict[str, Any]) -> None:
    async with replica_of("http://127.0.0.1:1/mcp", client=Scripted(result)) as replica:
        error = await Call(replica.tool("echo")).error()
        assert replica.telemetry.failures == {"malformed": 1}
    assert "may have acted" in why(error)


class Failing:
    """A client whose requests fail in one way."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked = 0

    async def request(self, _method: str, _params: Any, **_options: Any) -> dict[str, Any]:
        self.asked += 1
        raise self.error


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("sent", [True, False])
async def test_every_failure_is_one_sentence_about_the_upstream_and_what_to_do(reason: Reason, sent: bool) -> None:
    failure = UpstreamFailure("up", reason, sent=sent, detail="internal detail")
    error = await error_with(Failing(failure))
    assert isinstance(error, CannotContinue)
    told = str(error)
    assert "'up'" in told
    assert "internal detail" not in told
    assert told.endswith(".")
    if not sent:
        assert "It may have acted on the request" not in told


@pytest.mark.parametrize("reason", [Reason.SERVER_ERROR, Reason.BUSY, Reason.MALFORMED])
async def test_a_request_that_was_refused_is_not_said_to_be_unsent(reason: Reason) -> None:
    failure = UpstreamFailure("up", reason, sent=False, refused=True)
    async with replica_of("http://127.0.0.1:1/mcp", client=Failing(failure)) as replica:
        told = str(await Call(replica.tool("echo")).error())
    assert told.endswith("It refused the request, so it should not have acted.")
    assert "Nothing was sent" not in told


@pytest.mark.parametrize(
    ("annotations", "repeatable"),
    [
        (None, False),
        ({}, False),
        ({"readOnlyHint": False, "idempotentHint": False}, False),
        ({"readOnlyHint": "true", "destructiveHint": False}, False),
        ({"readOnlyHint": True}, True),
        ({"readOnlyHint": False, "idempotentHint": True}, True),
    ],
)
async def test_a_tool_may_be_called_twice_if_its_upstream_says_that_this_does_no_harm(
    annotations: dict[str, Any] | None, repeatable: bool
) -> None:
    scripted = Scripted({"content": []})
    async with replica_of("http://127.0.0.1:1/mcp", client=scripted) as replica:
        raw = {"name": "pay", "inputSchema": {"type": "object"}}
        served = replica.serve("tools", raw if annotations is None else {**raw, "annotations": annotations})
        await Call(served).result()
    assert [options["repeatable"] for options in scripted.options] == [repeatable]


@pytest.mark.parametrize("promises", [True, False])
async def test_a_tool_with_a_schema_of_its_output_returns_structured_content(promises: bool) -> None:
    scripted = Scripted({"content": [{"type": "text", "text": '{"total": 3}'}]})
    promise = {"outputSchema": {"type": "object"}} if promises else {}
    async with replica_of("http://127.0.0.1:1/mcp", client=scripted) as replica:
        served = replica.serve("tools", {"name": "add", "inputSchema": {"type": "object"}, **promise})
        result = await Call(served).result()
    assert result.get("structuredContent") == ({"total": 3} if promises else None)
    assert replica.telemetry.heals == ({"structured_missing": 1} if promises else {})


async def test_a_prompt_promises_no_structured_content_whatever_its_entry_has() -> None:
    scripted = Scripted({"messages": []})
    async with replica_of("http://127.0.0.1:1/mcp", client=scripted) as replica:
        served = replica.serve("prompts", {"name": "greet", "outputSchema": {"type": "object"}})
        assert await Call(served).result() == {"messages": []}


@pytest.mark.parametrize("code", [-32700, -32600, -32601, -32020, -32022])
async def test_an_error_about_our_own_request_is_not_the_clients_to_act_on(code: int) -> None:
    failing = Failing(UpstreamError("up", code, "Unsupported protocol version", {"supported": []}))
    error = await error_with(failing)
    assert f"error {code}" in why(error)
    assert ("may have acted" in str(error)) == (code == -32600)


async def test_a_capability_that_the_upstream_misses_is_reported_as_our_own_error() -> None:
    needed: dict[str, Any] = {"requiredCapabilities": {"elicitation": {"url": {}}, "sampling": {}}}
    async with replica_of(
        "http://127.0.0.1:1/mcp", client=Failing(UpstreamError("up", -32021, "x", needed))
    ) as replica:
        error = await Call(replica.tool("echo"), can={}).error()
        declares_one = await Call(replica.tool("echo"), can={"sampling": {}}).error()
    assert isinstance(error, MissingCapability)
    assert error.data == needed
    assert isinstance(declares_one, MissingCapability)
    assert declares_one.data == {"requiredCapabilities": {"elicitation": {"url": {}}}}


@pytest.mark.parametrize(
    ("required", "can"),
    [
        ({"roots": {}}, {"roots": {}}),
        ({"elicitation": {}}, {"elicitation": {}}),
        ({"elicitation": {"form": {}}, "sampling": {"tools": {}}}, {"elicitation": {}, "sampling": {"tools": {}}}),
    ],
)
async def test_an_upstream_that_misses_what_the_client_declared_fails_for_a_reason_of_its_own(
    required: dict[str, Any], can: dict[str, Any]
) -> None:
    failing = Failing(UpstreamError("up", -32021, "x", {"requiredCapabilities": required}))
    error = await error_with(failing, can=can)
    assert "error -32021" in why(error)


@pytest.mark.parametrize("more", [{}, {"sampling": {}}])
async def test_a_capability_that_is_not_passed_on_is_not_asked_of_the_client(more: dict[str, Any]) -> None:
    tasks: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    needed: dict[str, Any] = {"requiredCapabilities": {**tasks, **more}}
    async with replica_of(
        "http://127.0.0.1:1/mcp", client=Failing(UpstreamError("up", -32021, "x", needed))
    ) as replica:
        error = await Call(replica.tool("echo")).error()
    assert "does not pass on" in why(error)


# --- tasks -------------------------------------------------------------------------------------------


async def test_a_task_says_that_it_sends_before_it_does_and_what_it_was_asked_after(
    replica: Replica, upstream: Recording
) -> None:
    call = await asking(replica.tool("ask_then_act"), {"key": "a"}, in_task=True)
    call.answer_in_store(ADA)
    await call.result()
    assert [(slot["round"], slot.get("sent", False)) for slot in call.keeper.slots] == [
        (0, True),
        (1, False),
        (1, True),
    ]
    assert upstream.noted == ["a"]


async def test_a_task_that_was_lost_while_it_sent_ends_with_the_error_that_it_may_have_acted(
    replica: Replica, upstream: Recording
) -> None:
    call = await asking(replica.tool("ask_then_act"), {"key": "a"}, in_task=True)
    call.answer_in_store(ADA)
    call.rest["slot"] = {**call.rest["slot"], "sent": True}
    error = await call.error()
    assert "may have acted" in why(error)
    assert upstream.noted == []
    assert len(upstream.of("ask_then_act")) == 1


class KeepsToken:
    """Credentials with a token that only the caller can get."""

    async def headers(self, caller: Any) -> list[tuple[bytes, bytes]]:
        return [(b"authorization", f"Bearer {caller.token}".encode())]

    async def renew(self, _caller: Any, _refused: Any) -> bool:
        return False

    async def token_to_keep(self, caller: Any) -> str | None:
        if caller.exchange is None:
            raise UpstreamFailure("up", Reason.CREDENTIALS, sent=False)
        return "kept"


async def test_a_task_keeps_the_token_that_its_caller_got(upstream: Recording) -> None:
    async with replica_of(upstream.url, credentials=KeepsToken()) as replica:
        call = Call(replica.tool("ask_name"), in_task=True, exchange=object())
        journal = call.journal
        await call.prepare_task(journal)
        call.rest = journal.to_map()
        await call.asked()
        call.answer_in_store(ADA)
        await call.result()
    assert [made.header("authorization") for made in upstream.of("ask_name")] == ["Bearer kept"] * 2


async def test_a_call_whose_caller_can_get_no_token_does_not_become_a_task(upstream: Recording) -> None:
    async with replica_of(upstream.url, credentials=KeepsToken()) as replica:
        call = Call(replica.tool("ask_name"))
        with pytest.raises(CannotContinue, match="no credential"):
            await call.prepare_task(call.journal)


async def test_a_call_that_becomes_a_task_between_two_rounds_keeps_its_place(replica: Replica) -> None:
    call = Call(replica.tool("ask_name"))
    assert isinstance(await call.leg(), NeedsInput)
    journal = call.journal
    await call.prepare_task(journal)
    assert journal.slot == call.rest["slot"]
