"""Multi round-trip requests: calls that end incomplete and are sent again, each time to another replica."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.wires.draft import plays
from tests.wires.draft.client import DraftClient
from tests.wires.draft.conftest import ClientOf
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.messages import Answers, Refusal, accept, is_incomplete, retry_params
from tests.wires.draft.transport import RpcError
from tests.wires.draft.written import Example, brought, call, say, text_of

pytestmark = pytest.mark.slow

ASKED: Answers = {
    "form": accept(name="ada"),
    "other_form": accept(name="bob"),
    "url": accept(),
    "sampling": {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"},
    "roots": {"roots": [{"uri": "file:///home"}]},
}
WEATHER = {"name": "get_weather", "arguments": {"location": "New York"}}


async def refusal_of(client: DraftClient, method: str, params: Mapping[str, Any]) -> RpcError:
    """Send a request that is refused, and return the error."""
    with pytest.raises(RpcError) as refused:
        await client.request(method, params)
    return refused.value


async def test_example_flow_for_ephemeral_tools(fleet: Deployment, user: DraftClient) -> None:
    asked, answered = await plays.get_weather(user)
    assert [asked.url, answered.url] == fleet.urls
    assert "octocat" in text_of(answered.response["result"])


async def test_real_world_example_for_ephemeral_workflow(releases: Deployment) -> None:
    """There is no store behind these replicas, so nothing can be kept between two rounds."""
    async with releases.client("ada") as user:
        said = await plays.update_work_item(user)
    assert [one.url for one in said] == [*releases.urls, releases.urls[0]]
    assert text_of(said[-1].response["result"]) == (
        "Bug #4522 resolved as Duplicate of Bug #4301. State set to Resolved and duplicate link created."
    )


async def test_use_case_1_rolling_upgrades(releases: Deployment) -> None:
    wanted = call("link_accounts")
    answers = {f"{site}_login": accept(name=f"{site}-ada") for site in ("github", "google", "microsoft")}
    async with releases.client("ada", urls=[releases["old"].url]) as before:
        first = await before.request("tools/call", wanted)
    assert set(first["inputRequests"]) == {"github_login", "google_login"}
    async with releases.client("ada", urls=[releases["new"].url]) as after:
        second = await after.request("tools/call", wanted | await retry_params(first, answers))
        assert set(second["inputRequests"]) == {"microsoft_login"}
        third = await after.request("tools/call", wanted | await retry_params(second, answers))
    assert text_of(third) == "Linked GitHub account github-ada and Microsoft account microsoft-ada."


async def test_use_case_2_load_shedding(releases: Deployment) -> None:
    """Others call the same replica all the time, and one of the long calls there is handed on in its middle."""
    wanted = call("crunch", units=30, unitMs=5)

    async def keep_busy() -> None:
        async with releases.client("bob", urls=[releases["old"].url]) as busy:
            while True:
                await busy.request("tools/call", WEATHER)

    async def handed_on(user: DraftClient) -> dict[str, int]:
        """Call until a call is handed on; return who did how many units of it."""
        shed: dict[str, Any] = {}
        while not is_incomplete(shed):
            shed = await user.request("tools/call", wanted)
        assert set(shed) == {"requestState"}
        async with releases.client("ada", urls=[releases["new"].url]) as elsewhere:
            text = text_of(await elsewhere.request("tools/call", wanted | {"requestState": shed["requestState"]}))
        return {replica: int(units) for units, replica in re.findall(r"(\d+) on (\w+)", text)}

    async with releases.client("ada", urls=[releases["old"].url]) as user, asyncio.timeout(60):
        others = [asyncio.create_task(keep_busy()) for _ in range(4)]
        try:
            shares: dict[str, int] = {}
            while set(shares) != {"old", "new"}:  # a call that moves with its last unit leaves no work
                shares = await handed_on(user)
                assert sum(shares.values()) == 30
        finally:
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)


async def test_prompts_and_resources_may_be_incomplete_too(fleet: Deployment, user: DraftClient) -> None:
    for method, params, text in (
        ("prompts/get", {"name": "greeting", "arguments": {"tone": "warmly"}}, "Greet ada, warmly."),
        ("resources/read", {"uri": "draft://notes"}, "Notes of ada"),
    ):
        asked = await user.send(method, params)
        assert set(asked.result) == {"inputRequests", "requestState"}
        answered = await user.send(method, params | await retry_params(asked.result, ASKED))
        assert text in str(answered.result)
        assert {asked.url, answered.url} == set(fleet.urls)


async def test_an_incomplete_result_is_the_last_message_of_its_stream(user: DraftClient, name: str) -> None:
    params = call("ask_after_progress") | {"_meta": {"progressToken": name}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    told = await say(user, message)
    assert told.headers["content-type"] == "text/event-stream"
    assert [one["method"] for one in told.before] == ["notifications/progress"]
    assert is_incomplete(told.response["result"])
    assert [seen.kind for seen in user.log] == ["sent", "head", "received", "received", "ended"]

    del params["_meta"]
    plain = await say(user, message)
    assert plain.headers["content-type"] == "application/json"
    assert is_incomplete(plain.response["result"])


async def test_every_incomplete_result_carries_a_state_and_no_result_type(user: DraftClient, name: str) -> None:
    first = await user.request("tools/call", call("ask_in_turn", kinds=["form", "other_form"]))
    second = await user.request(
        "tools/call", call("ask_in_turn", kinds=["form", "other_form"]) | await retry_params(first, ASKED)
    )
    without_a_state = await user.request(
        "tools/call", call("ask_in_turn", kinds=["form", "other_form"]) | brought({"form": ASKED["form"]})
    )
    several = await user.request("tools/call", call("ask", call=name, kinds=["form", "sampling", "roots"]))
    prompt = await user.request("prompts/get", {"name": "greeting", "arguments": {"tone": "warmly"}})
    resource = await user.request("resources/read", {"uri": "draft://notes"})
    for result in (first, second, without_a_state, several, prompt, resource):
        assert set(result) == {"inputRequests", "requestState"}
        assert result["inputRequests"]
        assert result["requestState"]
    assert [set(result["inputRequests"]) for result in (first, second)] == [{"form"}, {"other_form"}]


async def test_questions_are_told_as_requests_without_ids(user: DraftClient, name: str) -> None:
    await user.initialize()
    asked = await user.request("tools/call", call("ask", call=name, kinds=list(ASKED)))
    requests = asked["inputRequests"]
    assert set(requests) == set(ASKED)
    for request in requests.values():
        assert set(request) == {"method", "params"}
    assert {key: request["method"] for key, request in requests.items()} == {
        "form": "elicitation/create",
        "other_form": "elicitation/create",
        "url": "elicitation/create",
        "sampling": "sampling/createMessage",
        "roots": "roots/list",
    }
    assert requests["form"]["params"]["mode"] == "form"
    assert requests["form"]["params"]["message"] == "Who are you?"
    assert requests["form"]["params"]["requestedSchema"]["required"] == ["name"]
    assert requests["url"]["params"] == {
        "mode": "url",
        "message": "Please log in",
        "url": "https://example.com/login",
    }
    assert requests["sampling"]["params"]["maxTokens"] == 100

    answered = await user.request("tools/call", call("ask", call=name, kinds=list(ASKED)) | brought(ASKED))
    assert text_of(answered) == "form: ada, other_form: bob, url: accept, sampling: Paris, roots: 1 roots"


async def test_an_answer_may_be_an_error_or_a_refusal(user: DraftClient) -> None:
    for answer, error in {
        "error": (Refusal(-32000, "no window"), "Refused: The client could not answer 'form': no window"),
        "decline": ({"action": "decline"}, "Declined: The user declined to answer 'form'."),
        "cancel": ({"action": "cancel"}, "Dismissed: The user dismissed the question 'form'."),
    }.values():
        assert text_of(await user.call_tool("ask_politely", answers={"form": answer})) == error


async def test_a_state_that_was_altered_is_refused(fleet: Deployment, user: DraftClient, name: str) -> None:
    wanted = call("ask", call=name, kinds=["form"])
    good = (await user.request("tools/call", wanted))["requestState"]
    middle = len(good) // 2
    altered = good[:middle] + ("A" if good[middle] != "A" else "B") + good[middle + 1 :]
    told = set()
    for bad in (altered, good[:-1], good[:middle], good + "A", "", "foo", 7, True, [good], {"state": good}):
        refusal = await refusal_of(
            user, "tools/call", wanted | brought({"form": ASKED["form"]}) | {"requestState": bad}
        )
        assert (refusal.status, refusal.code) == (200, -32602), bad
        assert refusal.data == {"reason": "invalid_request_state"}
        told.add(refusal.message)
    assert len(told) == 1, "the reason shows"
    assert len(fleet.lines(name)) == 1
    assert text_of(await user.request("tools/call", wanted | brought({"form": ASKED["form"]}, good))) == "form: ada"


async def test_a_state_opens_only_for_its_user_tool_and_arguments(
    fleet: Deployment, user: DraftClient, client_of: ClientOf, name: str
) -> None:
    wanted = call("ask", call=name, kinds=["form"])
    state = (await user.request("tools/call", wanted))["requestState"]
    of_politely = (await user.request("tools/call", call("ask_politely")))["requestState"]
    of_prompt = (await user.request("prompts/get", {"name": "greeting", "arguments": {"tone": "warmly"}}))[
        "requestState"
    ]
    other = client_of(f"{name}-other")
    for client, method, params, used in (
        (other, "tools/call", wanted, state),
        (user, "tools/call", call("ask", call=name, kinds=["other_form"]), state),
        (user, "tools/call", call("ask", call=f"{name}-2", kinds=["form"]), state),
        (user, "tools/call", call("ask_after_progress"), of_politely),
        (user, "tools/call", call("greeting", tone="warmly"), of_prompt),
        (user, "prompts/get", {"name": "greeting", "arguments": {"tone": "coldly"}}, of_prompt),
        (user, "resources/read", {"uri": "draft://notes"}, of_prompt),
    ):
        refusal = await refusal_of(client, method, params | brought({"form": ASKED["form"]}, used))
        assert (refusal.code, refusal.data) == (-32602, {"reason": "invalid_request_state"}), params
    assert len(fleet.lines(name)) == 1
    assert text_of(await user.request("tools/call", wanted | brought({"form": ASKED["form"]}, state))) == "form: ada"


async def test_answers_concern_their_own_call_alone(user: DraftClient, name: str) -> None:
    """Two calls are equal to the last byte; only their states tell them apart."""
    wanted = call("ask_in_turn", kinds=["form", "other_form"])
    first, second = await asyncio.gather(*(user.request("tools/call", wanted) for _ in range(2)))
    first, second = await asyncio.gather(
        user.request("tools/call", wanted | brought({"form": accept(name="ada")}, first["requestState"])),
        user.request("tools/call", wanted | {"requestState": second["requestState"]}),
    )
    assert [set(result["inputRequests"]) for result in (first, second)] == [{"other_form"}, {"form"}]
    first, second = await asyncio.gather(
        user.request("tools/call", wanted | brought({"other_form": accept(name="eve")}, first["requestState"])),
        user.request("tools/call", wanted | brought({"form": accept(name="bob")}, second["requestState"])),
    )
    assert text_of(first) == "form: ada, other_form: eve"
    assert set(second["inputRequests"]) == {"other_form"}
    last = wanted | brought({"other_form": accept(name="joe")}, second["requestState"])
    assert text_of(await user.request("tools/call", last)) == "form: bob, other_form: joe"


async def test_guidance_for_error_handling_missing_information(user: DraftClient) -> None:
    missing = Example("mrtr_missing_information")
    first = await user.request("tools/call", WEATHER)
    asked = await missing.send(user, "ephemeral: a retry without what is needed is asked again")
    assert asked.response["result"]["inputRequests"] == first["inputRequests"]

    unknown = {"not_requested_info": accept(not_requested_param_name="Information the server did not request")}
    again = await user.request("tools/call", WEATHER | brought(unknown, first["requestState"]))
    assert again["inputRequests"] == first["inputRequests"]
    login = {"github_login": accept(name="octocat")}
    assert "octocat" in text_of(await user.request("tools/call", WEATHER | await retry_params(again, login)))


async def test_answers_that_nobody_asked_for_are_ignored(user: DraftClient, name: str) -> None:
    wanted = call("ask", call=name, kinds=["form"])
    asked = await user.request("tools/call", wanted)
    extra = {"form": accept(name="ada", more="words"), "other_form": accept(name="eve"), "": accept(), "~": accept()}
    answered = await user.request("tools/call", wanted | brought(extra, asked["requestState"]))
    assert text_of(answered) == "form: ada"


REASONS = ("", " name: Field required", " name: Input should be a valid string")


@pytest.mark.parametrize(
    "answer",
    [
        {"result": accept(name=7)},
        {"result": accept()},
        {"result": accept(names="ada")},
        {"result": {"action": "accept"}},
        {"result": {"action": "perhaps", "content": {"name": "ada"}}},
        {"result": {}},
        {"result": None},
        {"result": ["ada"]},
        {"error": "no"},
        accept(name="ada"),
        {},
        None,
        "ada",
        ["ada"],
    ],
    ids=repr,
)
async def test_an_answer_that_does_not_fit_its_question_is_asked_again(user: DraftClient, answer: object) -> None:
    wanted = call("ask_politely")
    asked = await user.request("tools/call", wanted)
    bad = {"inputResponses": {"form": answer}, "requestState": asked["requestState"]}
    again = await user.request("tools/call", wanted | bad)
    answered = await user.request("tools/call", wanted | await retry_params(again, ASKED))
    assert text_of(answered) == "ada"
    first, second = (round_["inputRequests"]["form"]["params"].pop("message") for round_ in (asked, again))
    assert second in (first, *(f"{first}\n\nThe last answer was not accepted.{why}" for why in REASONS))
    assert again["inputRequests"] == asked["inputRequests"]


async def test_input_responses_that_are_no_object_are_refused(fleet: Deployment, user: DraftClient, name: str) -> None:
    wanted = call("ask", call=name, kinds=["form"])
    malformed: tuple[Any, ...] = ([], [{"form": {}}], "form", 7, True)
    for bad in malformed:
        refusal = await refusal_of(user, "tools/call", wanted | {"inputResponses": bad})
        assert (refusal.status, refusal.code) == (200, -32602), bad
        assert "params.inputResponses" in refusal.message
    assert fleet.lines(name) == []

    async with httpx.AsyncClient(trust_env=False, verify=False, headers=user.transport.headers) as http:
        answer = await http.post(fleet.urls[0], content=b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "par')
    assert answer.json()["error"]["code"] == -32700


async def test_no_client_is_told_to_open_a_url_by_an_error(user: DraftClient, name: str) -> None:
    wanted = call("ask", call=name, kinds=["url"])
    without = await user.request("tools/call", wanted)
    assert without["isError"] is True
    await user.initialize()
    asked = await user.request("tools/call", wanted)
    assert asked["inputRequests"]["url"]["params"]["mode"] == "url"
    answered = await user.request("tools/call", wanted | await retry_params(asked, ASKED))
    assert text_of(answered) == "url: accept"
