"""Upstreams that ask: every kind of question, over two replicas in turn, for clients of all three wires."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.upstreams.conftest import UserOf
from tests.upstreams.servers.recording import ODD_KEYS, Recording
from tests.upstreams.site import CAPABILITIES, META, TASKS, WITHOUT_TASKS, Reply, Site, User
from tests.upstreams.wires import RELEASED, WIRES, said, speaking
from tests.wires.draft.messages import accept, call_params
from tests.wires.legacy.speaking import LEGACY, text_of

ADA = accept(name='Ada ü"\\ \U0001f511')
RED = accept(colour="red")
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "A Title"}, "model": "m", "stopReason": "endTurn"}
ROOTS = {"roots": [{"uri": "file:///projects/ada", "name": "home"}]}
ANSWERS: dict[str, Any] = {
    "name": ADA,
    "colour": RED,
    "sampling/createMessage": SAMPLED,
    "roots/list": ROOTS,
    "elicitation/create": accept(),
}
every_wire = pytest.mark.parametrize("wire", WIRES)


@every_wire
async def test_a_form_is_asked_and_its_answer_reaches_the_upstream(
    site: Site, upstream: Recording, principal: str, wire: str
) -> None:
    async with speaking(wire, site, principal) as call:
        assert await said(call, "rec__ask_name", ANSWERS) == {"name": ADA}
    first, second = upstream.of("ask_name")
    assert (first.answers, second.answers) == (None, {"name": ADA})
    assert (first.ended, second.ended) == ("input_required", "complete")


@every_wire
async def test_two_rounds_under_one_key_get_their_own_answers(
    site: Site, upstream: Recording, principal: str, wire: str
) -> None:
    async with speaking(wire, site, principal) as call:
        assert await said(call, "rec__two_rounds", ANSWERS) == {"first": ADA, "second": RED}
    assert [call.answers for call in upstream.of("two_rounds")] == [None, {"answer": ADA}, {"answer": RED}]


@every_wire
@pytest.mark.parametrize(
    "question",
    [("sample", "title", SAMPLED), ("roots", "roots", ROOTS), ("consent", "consent", {"action": "accept"})],
    ids=["sampling", "roots", "url"],
)
async def test_sampling_roots_and_addresses_are_asked_like_forms(
    site: Site, upstream: Recording, wire: str, question: tuple[str, str, dict[str, Any]]
) -> None:
    tool, key, answer = question
    answers = {**ANSWERS, "elicitation/create": answer}
    async with speaking(wire, site, "ada") as call:
        assert await said(call, f"rec__{tool}", answers) == {key: answer}
    assert [call.answers for call in upstream.of(tool)] == [None, {key: answer}]


@every_wire
async def test_several_questions_at_once_get_the_answer_that_belongs_to_each(
    site: Site, upstream: Recording, principal: str, wire: str
) -> None:
    async with speaking(wire, site, principal) as call:
        expected = {"name": ADA, "title": SAMPLED, "roots": ROOTS}
        assert await said(call, "rec__several", ANSWERS) == expected
    assert [call.answers for call in upstream.of("several")] == [None, expected]


@every_wire
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_refusal_reaches_the_upstream_as_it_came(
    site: Site, upstream: Recording, principal: str, wire: str, action: str
) -> None:
    refused = {"action": action, "_meta": {"example.com/why": "kept"}, "unknown": [1]}
    async with speaking(wire, site, principal) as call:
        assert await said(call, "rec__ask_name", {"name": refused}) == {"name": refused}


@every_wire
async def test_an_answer_that_does_not_fit_its_form_is_asked_again_and_not_passed_on(
    site: Site, upstream: Recording, principal: str, wire: str
) -> None:
    given = iter([accept(name=7), ADA])
    async with speaking(wire, site, principal) as call:
        assert await said(call, "rec__ask_name", {"name": lambda _question: next(given)}) == {"name": ADA}
    assert [call.answers for call in upstream.of("ask_name")] == [None, {"name": ADA}]


@every_wire
async def test_prompts_and_resources_ask_too(site: Site, upstream: Recording, principal: str, wire: str) -> None:
    async with speaking(wire, site, principal) as call:
        prompt = await call("prompts/get", {"name": "rec__asking", "arguments": {}}, ANSWERS)
        assert json.loads(prompt["messages"][0]["content"]["text"]) == {"name": ADA}
        resource = await call("resources/read", {"uri": "rec+note://asking"}, ANSWERS)
        assert json.loads(resource["contents"][0]["text"]) == {"name": ADA}
    assert [call.answers for call in upstream.of("note://asking", "resources/read")] == [None, {"name": ADA}]


@every_wire
async def test_an_upstream_gets_back_the_keys_that_it_asked_under(
    site: Site, upstream: Recording, principal: str, wire: str
) -> None:
    """Keys that the wire cannot have are replaced there, and the upstream does not notice."""
    numbers = iter(range(100))

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        next(numbers)
        return accept(name=question["params"]["message"])

    async with speaking(wire, site, principal) as call:
        answers = await said(call, "rec__odd_keys", {"elicitation/create": answer, "name": answer})
    assert answers == {key: accept(name=f"Question {n}?") for n, key in enumerate(ODD_KEYS)}


async def test_keys_on_the_wire_are_short_and_printable(user: User) -> None:
    asked = await user.send("tools/call", call_params("rec__odd_keys"))
    keys = asked.result["inputRequests"].keys()
    assert "plain" in keys
    assert all(key.isprintable() and "~" not in key and len(key) <= 200 for key in keys)


async def test_an_upstream_without_a_state_gets_none(user: User, upstream: Recording) -> None:
    assert (await user.call("rec__no_state", {}, ANSWERS)).said == {"name": ADA}
    assert ["requestState" in call.params for call in upstream.of("no_state")] == [False, False]


async def test_each_leg_goes_to_the_other_replica_and_repeats_the_arguments(user: User, upstream: Recording) -> None:
    assert (await user.call("rec__two_rounds", {"kept": [1.5, None, "ü"]}, ANSWERS)).said["second"] == RED
    assert len({reply.url for reply in user.replies[:2]}) == 2
    assert [call.arguments for call in upstream.of("two_rounds")] == [{"kept": [1.5, None, "ü"]}] * 3


@every_wire
async def test_each_round_repeats_the_arguments(site: Site, upstream: Recording, principal: str, wire: str) -> None:
    kept = [1.5, None, "ü", {"deep": [1e300, 2**70]}]
    async with speaking(wire, site, principal) as call:
        assert (await said(call, "rec__two_rounds", ANSWERS, kept=kept))["second"] == RED
    assert [call.arguments for call in upstream.of("two_rounds")] == [{"kept": kept}] * 3


async def test_a_leg_that_is_sent_again_sends_its_round_again_and_nothing_else(user: User, upstream: Recording) -> None:
    params = call_params("rec__two_rounds")
    first = await user.send("tools/call", params)
    again = {**params, **await user.retry(first, {"name": ADA})}
    asked = [await user.send("tools/call", again) for _ in range(2)]
    assert [reply.result["inputRequests"]["answer"]["params"]["message"] for reply in asked] == [
        f"A colour, {ADA['content']['name']}?"
    ] * 2
    last = await user.send("tools/call", {**params, **await user.retry(asked[0], {"colour": RED})})
    assert last.said == {"first": ADA, "second": RED}
    assert [call.answers for call in upstream.of("two_rounds")] == [
        None,
        {"answer": ADA},
        {"answer": ADA},
        {"answer": RED},
    ]


async def test_answers_before_any_question_are_for_the_upstream_to_judge(user: User, upstream: Recording) -> None:
    """A request that has answers and no state is complete in itself."""
    early = {"name": ADA, "unknown": accept(other=1)}
    reply = await user.send("tools/call", {**call_params("rec__ask_name"), "inputResponses": early})
    assert reply.said == early
    asked = await user.send("tools/call", {**call_params("rec__two_rounds"), "inputResponses": early})
    assert asked.result["inputRequests"].keys() == {"answer"}
    last = await user.complete(
        "tools/call", {**call_params("rec__two_rounds"), **await user.retry(asked, ANSWERS)}, ANSWERS
    )
    assert last.said == {"first": ADA, "second": RED}
    assert [call.answers for call in upstream.of("two_rounds")] == [early, {"answer": ADA}, {"answer": RED}]


async def test_answers_that_nobody_asked_for_do_not_reach_the_upstream(user: User, upstream: Recording) -> None:
    params = call_params("rec__ask_name")
    first = await user.send("tools/call", params)
    more = await user.retry(first, {"name": ADA})
    more["inputResponses"]["other"] = accept(name="Eve")
    assert (await user.send("tools/call", {**params, **more})).said == {"name": ADA}
    assert [call.answers for call in upstream.of("ask_name")] == [None, {"name": ADA}]


async def test_missing_answers_are_asked_again_without_calling_the_upstream(user: User, upstream: Recording) -> None:
    params = call_params("rec__several")
    first = await user.send("tools/call", params)
    given = (await user.retry(first, ANSWERS))["inputResponses"]
    missing = {**params, "requestState": first.result["requestState"], "inputResponses": {"name": given.pop("name")}}
    second = await user.send("tools/call", missing)
    assert second.result["inputRequests"].keys() == given.keys()
    last = await user.send("tools/call", {**params, **await user.retry(second, ANSWERS)})
    assert last.said == {"name": ADA, "title": SAMPLED, "roots": ROOTS}
    assert len(upstream.of("several")) == 2


async def test_an_upstream_learns_what_the_client_can_be_asked_and_nothing_more(
    user_of: UserOf, upstream: Recording
) -> None:
    odd = {"elicitation": {"form": {"x": 1}}, "experimental": {"a": {}}, "extensions": {TASKS: {}}, "unknown": {}}
    await user_of(capabilities=odd).call("rec__echo", {"text": "a"})
    (call,) = upstream.of("echo")
    assert call.meta[f"{META}/clientCapabilities"] == {"elicitation": {"form": {}}}
    await user_of(capabilities=CAPABILITIES).call("rec__echo", {"text": "a"})
    assert upstream.of("echo")[1].meta[f"{META}/clientCapabilities"] == WITHOUT_TASKS


@pytest.mark.parametrize(
    ("tool", "capabilities", "needed"),
    [
        ("ask_name", {}, {"elicitation": {"form": {}}}),
        ("consent", {"elicitation": {}}, {"elicitation": {"url": {}}}),
        ("sample", {"elicitation": {}}, {"sampling": {}}),
        ("roots", {"elicitation": {}}, {"roots": {}}),
    ],
)
async def test_a_client_that_cannot_be_asked_is_told_what_it_lacks(
    user_of: UserOf, tool: str, capabilities: dict[str, Any], needed: dict[str, Any]
) -> None:
    reply = await user_of(capabilities=capabilities).send("tools/call", call_params(f"rec__{tool}"))
    assert reply.error["code"] == -32021
    required = reply.error["data"]["requiredCapabilities"]
    (name,) = needed
    assert required.keys() == {name}


async def test_a_state_of_24_kib_is_carried_and_a_larger_one_is_refused(user: User, upstream: Recording) -> None:
    carried = await user.call("rec__big_state", {"bytes": 20_000}, ANSWERS)
    assert carried.text == "20000 bytes came back"
    refused = await user.call("rec__big_state", {"bytes": 30_000}, ANSWERS)
    assert refused.result["isError"]
    assert "24576" in refused.text
    assert len(upstream.of("big_state")) == 3


@every_wire
async def test_a_state_without_questions_is_sent_back_at_once(
    site: Site, upstream: Recording, principal: str, wire: str
) -> None:
    async with speaking(wire, site, principal) as call:
        result = await call("tools/call", call_params("rec__only_state", {"times": 2}))
    assert text_of(result) == "2 times"
    assert len(upstream.of("only_state")) == 3


async def test_after_three_such_states_the_leg_is_handed_back(user: User, upstream: Recording) -> None:
    first = await user.send("tools/call", call_params("rec__only_state", {"times": 5}))
    assert first.result["resultType"] == "input_required"
    assert not first.result.get("inputRequests")
    assert len(upstream.of("only_state")) == 4
    more = {**call_params("rec__only_state", {"times": 5}), "requestState": first.result["requestState"]}
    assert (await user.send("tools/call", more)).text == "5 times"
    assert len(upstream.of("only_state")) == 6


async def test_a_client_that_cannot_carry_such_a_state_gets_an_error(
    site: Site, upstream: Recording, principal: str
) -> None:
    async with speaking(LEGACY, site, principal) as call:
        result = await call("tools/call", call_params("rec__only_state", {"times": 5}))
    assert result["isError"]
    assert len(upstream.of("only_state")) == 4


async def test_a_question_that_nobody_may_ask_does_not_reach_the_client(
    user: User, site: Site, upstream: Recording
) -> None:
    before = site.metric("gateway_upstream_dropped_total", upstream="rec", what="question")
    reply = await user.call("rec__forbidden_question", {}, ANSWERS)
    assert reply.response.get("result", {}).get("resultType") != "input_required"
    assert all("inputRequests" not in reply.response.get("result", {}) for reply in user.replies)
    assert site.metric("gateway_upstream_dropped_total", upstream="rec", what="question") > before


async def test_logs_and_progress_continue_over_legs(user: User) -> None:
    meta = {f"{META}/logLevel": "debug", "progressToken": "p1"}
    reply = await user.call("rec__talk_and_ask", {}, ANSWERS, _meta=meta)
    assert reply.said == {"name": ADA}
    first, second = (_notices(reply) for reply in user.replies)
    assert first == [("log", "before"), ("progress", 1)]
    assert second == [("log", "after"), ("progress", 2)]


def _notices(reply: Reply) -> list[tuple[str, Any]]:
    return [
        ("progress", notice["params"]["progress"])
        if notice["method"] == "notifications/progress"
        else ("log", notice["params"]["data"])
        for notice in reply.notices
    ]


# In tasks


async def test_every_kind_of_question_is_asked_in_a_task(user: User, upstream: Recording) -> None:
    for tool, expected in {
        "two_rounds": {"first": ADA, "second": RED},
        "several": {"name": ADA, "title": SAMPLED, "roots": ROOTS},
        "consent": {"consent": accept()},
    }.items():
        task = await user.finish(await user.task(f"tasks__{tool}"), ANSWERS)
        assert task["status"] == "completed", task
        assert json.loads(text_of(task["result"])) == expected
    assert [call.answers for call in upstream.of("two_rounds")] == [None, {"answer": ADA}, {"answer": RED}]


async def test_a_task_carries_a_larger_state(user: User) -> None:
    task = await user.finish(await user.task("tasks__big_state", {"bytes": 200_000}), ANSWERS)
    assert text_of(task["result"]) == "200000 bytes came back"
    too_large = await user.finish(await user.task("tasks__big_state", {"bytes": 300_000}), ANSWERS)
    assert "262144" in json.dumps(too_large)


@pytest.mark.parametrize("wire", [LEGACY, "draft"])
async def test_older_clients_answer_in_their_tasks_too(
    site: Site, upstream: Recording, principal: str, wire: str
) -> None:
    async with site.client(principal) as client:
        if wire == LEGACY:
            client.transport.headers["MCP-Protocol-Version"] = LEGACY
            await client.initialize(LEGACY)
        created = await client.create_task("tasks__two_rounds", answers=ANSWERS)
        if wire == LEGACY:
            result = (await client.task_result(created["taskId"], answers=ANSWERS)).result
        else:
            result = (await client.finish_task(created["taskId"], ANSWERS)).result or {}
    assert json.loads(text_of(result)) == {"first": ADA, "second": RED}
    assert len(upstream.of("two_rounds")) == 3


async def test_a_call_that_ends_soon_is_a_plain_result_and_a_longer_one_becomes_a_task(
    user: User, upstream: Recording
) -> None:
    assert (await user.call("soon__echo", {"text": "quick"})).text == "quick"
    slow = await user.send("tools/call", call_params("soon__slow"))
    assert slow.result["resultType"] == "task", slow
    upstream.open()
    task = await user.finish(slow.result["taskId"])
    assert text_of(task["result"]) == "finally"
    assert len(upstream.of("slow")) == 1, "nothing runs twice"


async def test_a_call_that_asks_and_may_become_a_task_asks_there(user: User, upstream: Recording) -> None:
    asked = await user.send("tools/call", call_params("soon__two_rounds"))
    assert asked.result["resultType"] == "task"
    task = await user.finish(asked.result["taskId"], ANSWERS)
    assert json.loads(text_of(task["result"])) == {"first": ADA, "second": RED}
    assert len(upstream.of("two_rounds")) == 3


async def test_a_client_without_tasks_waits_for_the_result(user_of: UserOf, upstream: Recording) -> None:
    user = user_of(capabilities=WITHOUT_TASKS)
    assert (await user.call("soon__slow", {"seconds": 0.6})).text == "finally"
    assert (await user.call("soon__ask_name", {}, ANSWERS)).said == {"name": ADA}


# Killed between legs


@pytest.mark.parametrize("wire", [RELEASED, "draft"])
async def test_a_replica_that_is_killed_between_legs_loses_nothing(
    site: Site, upstream: Recording, principal: str, wire: str
) -> None:
    first, second = site.replicas
    seen: list[str] = []

    async def answer(question: dict[str, Any]) -> dict[str, Any]:
        """Kill the replica that asked the first question before the second leg goes to the other one."""
        seen.append(question["params"]["message"])
        if len(seen) == 1:
            await asyncio.to_thread(first.kill)
        return ADA

    class FirstThenSecond:
        def __call__(self, message: Any, urls: Any, after: str | None) -> str:
            return second.url if after is not None or seen else first.url

    try:
        if wire == RELEASED:
            async with site.user(principal, urls=[first.url, second.url, second.url]) as user:
                reply = await user.call("rec__two_rounds", {}, {"name": answer, "colour": RED})
                result = reply.result
        else:
            async with site.client(principal, policy=FirstThenSecond()) as client:
                result = await client.call_tool("rec__two_rounds", answers={"name": answer, "colour": RED})
    finally:
        if not first.alive:
            await asyncio.to_thread(first.restart)
    assert json.loads(text_of(result)) == {"first": ADA, "second": RED}
    assert len(upstream.of("two_rounds")) == 3


async def test_a_worker_that_is_killed_while_a_task_asks_loses_nothing(
    site: Site, user: User, upstream: Recording
) -> None:
    task_id = await user.task("tasks__two_rounds")
    await user.asked_in_task(task_id)
    worker = site.worker("w1")
    await asyncio.to_thread(worker.kill)
    await asyncio.to_thread(worker.restart)
    task = await user.finish(task_id, ANSWERS)
    assert json.loads(text_of(task["result"])) == {"first": ADA, "second": RED}
    assert [call.answers for call in upstream.of("two_rounds")] == [None, {"answer": ADA}, {"answer": RED}]
