"""When a call of the released wire becomes a task, and how the task ends."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gateway.engine.capabilities import ELICITATION_FORM, supports
from gateway.errors import ConfigurationError
from tests.asgi import make_app
from tests.authorities import caller
from tests.storage.servers import Server
from tests.wires.released import tools
from tests.wires.released.conftest import CAN, SECRET, TASKS, TOOLS, World

ADA = {"who": {"action": "accept", "content": {"name": "Ada"}}}
FORM_ONLY: dict[str, Any] = {"elicitation": {}}


def texts(result: dict[str, Any]) -> list[str]:
    return [block["text"] for block in result["content"]]


async def test_a_call_of_a_required_tool_is_a_task_that_can_be_read_at_once(world: World) -> None:
    created = (await world.call("work", {"text": "tea"})).result
    assert set(created) == {
        *("resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "_meta")
    }
    assert (created["resultType"], created["status"], created["ttlMs"]) == ("task", "working", 86_400_000)
    assert re.fullmatch(r"t_[\w-]{43}", created["taskId"])
    read = await world.get(created["taskId"])
    assert (read["resultType"], read["status"], read["createdAt"]) == ("complete", "working", created["createdAt"])
    await world.work()
    done = await world.get(created["taskId"])
    assert done["status"] == "completed"
    assert done["result"] == {
        "resultType": "complete",
        "content": [{"type": "text", "text": "tea"}],
        "isError": False,
    }


async def test_a_client_that_knows_no_tasks_is_refused_by_a_required_tool_whatever_it_brings(world: World) -> None:
    for more in ({}, {"requestState": "s1.forged"}, {"inputResponses": ADA}):
        for name in ("work", "ask_first"):
            answer = await world.call(name, can=FORM_ONLY, **more)
            assert answer.error == (400, -32021)
            assert answer.message["error"]["data"] == {"requiredCapabilities": TASKS}


async def test_an_optional_tool_runs_as_a_call_for_a_client_that_knows_no_tasks(world: World) -> None:
    assert (await world.call("maybe", can=FORM_ONLY)).text == "1, call"
    task_id = await world.started("maybe")
    assert texts((await world.get(task_id))["result"]) == ["1, task"]


async def test_a_tool_that_never_becomes_a_task_is_a_call_for_everybody(world: World) -> None:
    assert (await world.call("plain", task={"ttl": 1})).text == "plain"


async def test_invalid_arguments_are_reported_at_once_and_create_no_task(world: World) -> None:
    result = (await world.call("maybe", {"number": "seven"})).result
    assert (result["resultType"], result["isError"]) == ("complete", True)
    assert await world.work() == []


async def test_a_call_asks_first_and_continues_as_a_task_with_all_it_has_learned(world: World) -> None:
    first = await world.call("ask_first")
    created = (await world.call("ask_first", requestState=first.state, inputResponses=ADA)).result
    assert created["resultType"] == "task"
    assert {"requestState", "inputRequests", "result"} & set(created) == set()
    assert tools.RAN == ["note"]
    await world.work()
    done = await world.get(created["taskId"])
    assert texts(done["result"]) == ["before", "after", "Hello Ada"]
    assert tools.RAN == ["note"]


async def test_the_answers_of_a_client_that_meanwhile_learned_about_tasks_go_with_the_call(world: World) -> None:
    first = await world.call("ask_later", can=FORM_ONLY)
    task_id = (await world.call("ask_later", requestState=first.state, inputResponses=ADA)).result["taskId"]
    await world.work()
    assert texts((await world.get(task_id))["result"]) == ["Ada, task"]


async def test_a_journal_over_the_cap_becomes_a_task_where_tool_and_client_allow_one(world: World) -> None:
    refused = await world.call("ask_much", {"size": 70_000}, can=FORM_ONLY)
    assert refused.result["isError"] is True
    assert "more state than it can carry" in refused.text
    task_id = await world.started("ask_much", {"size": 70_000})
    assert (await world.get(task_id))["status"] == "input_required"
    await world.update(task_id, ADA)
    await world.work()
    assert texts((await world.get(task_id))["result"]) == ["Ada keeps 70000"]


@pytest.mark.parametrize("tool", ["work", "echo_later"])
async def test_arguments_too_large_for_a_task_are_refused_before_anything_is_created(server: Server, tool: str) -> None:
    server.ask("FLUSHALL")
    world = World(server.url, task_max_argument_bytes=2048)
    fits = {"text": "x" * (2048 - len('{"text":""}'))}
    await world.start(tool, fits)
    answer = await world.call(tool, {"text": fits["text"] + "x"})
    assert answer.error == (400, -32602)
    assert answer.message["error"]["message"] == "The arguments are too large for a task: 2049 bytes; the limit is 2048"
    assert len(await world.work()) == 1
    counted = {"reason": "arguments_too_large"}
    metrics = [app._services.telemetry.registry for app in world.apps]
    assert sum(m.get_sample_value("gateway_requests_refused_total", counted) or 0 for m in metrics) == 1
    await world.close()


async def test_arguments_too_large_for_a_task_are_none_for_a_call(server: Server) -> None:
    server.ask("FLUSHALL")
    world = World(server.url, task_max_argument_bytes=2048)
    assert (await world.call("echo_later", {"text": "x" * 4096}, can=FORM_ONLY)).text == "x" * 4096
    await world.close()


async def test_a_call_that_has_learned_more_than_a_task_can_keep_says_so(server: Server) -> None:
    server.ask("FLUSHALL")
    world = World(server.url, task_max_result_bytes=100_000)
    await world.start("ask_much", {"size": 90_000})
    answer = await world.call("ask_much", {"size": 100_000})
    assert answer.result["isError"] is True
    problem = r"The result of step 'loot' is too large: \d+ bytes; the limit is 100000"
    assert re.fullmatch(rf"This call cannot continue as a task\. {problem}\.", answer.text)
    assert len(await world.work()) == 1
    await world.close()


async def test_a_failed_tool_is_a_completed_task_with_what_it_had_emitted(world: World) -> None:
    task_id = await world.started("broken")
    done = await world.get(task_id)
    assert (done["status"], done["result"]["isError"]) == ("completed", True)
    first, failure = texts(done["result"])
    assert first == "first"
    assert re.fullmatch(r"broken failed \(reference [0-9a-f]{12}\)", failure)


async def test_a_json_rpc_error_is_a_failed_task(world: World) -> None:
    task_id = await world.started("refused")
    done = await world.get(task_id)
    assert done["status"] == "failed"
    assert done["statusMessage"] == "Out of tea"
    assert done["error"] == {"code": -32000, "message": "Out of tea", "data": {"tea": 0}}
    assert "result" not in done


async def test_a_task_keeps_large_capabilities_as_far_as_the_gateway_knows_them(world: World) -> None:
    own: dict[str, Any] = {"experimental": {"mine": {}}}
    large: dict[str, Any] = {"experimental": {f"name{number}": {} for number in range(1000)}}
    for added, kept in ((own, own), (large, {})):
        task_id = await world.start("work", can={**CAN, **added})
        view = await world.store.get(await world.store.owner(caller("ada").principal), task_id)
        assert view is not None
        assert view.capabilities.get("experimental", {}) == kept.get("experimental", {})
        assert supports(view.capabilities, ELICITATION_FORM)


async def test_a_question_that_the_creators_capabilities_do_not_cover_fails_the_task(world: World) -> None:
    task_id = await world.started("sampler")
    done = await world.get(task_id, can={**CAN, "sampling": {}})
    assert (done["status"], done["error"]["code"]) == ("failed", -32021)
    assert done["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}


async def test_a_caller_has_so_many_tasks_and_no_more(server: Server) -> None:
    server.ask("FLUSHALL")
    world = World(server.url, tasks_per_principal=2)
    for _ in range(2):
        await world.start("work")
    answer = await world.call("work")
    assert answer.error == (429, -31003)
    assert int(answer.headers["retry-after"]) >= 1
    await world.start("work", sub="eve")
    await world.close()


async def test_an_order_that_is_repeated_with_its_state_finds_its_task(world: World) -> None:
    state = (await world.call("ask_first")).state
    first = await world.call("ask_first", requestState=state, inputResponses=ADA)
    again = await world.call("ask_first", requestState=state, inputResponses=ADA, request_id="other")
    assert again.result["taskId"] == first.result["taskId"]
    more = {**CAN, "roots": {}}
    changed = await world.call("ask_first", requestState=state, inputResponses=ADA, can=more)
    assert changed.result["taskId"] == first.result["taskId"]
    eve = {"who": {"action": "accept", "content": {"name": "Eve"}}}
    other = await world.call("ask_first", requestState=state, inputResponses=eve)
    assert other.result["taskId"] != first.result["taskId"]
    assert await world.start("work") != await world.start("work")


async def test_without_its_store_a_task_is_refused_for_now_and_calls_do_not_notice(own_server: Server) -> None:
    world = World(own_server.url)
    task_id = await world.start("work")
    first = await world.call("pay")
    own_server.kill()
    for answer in (
        await world.call("work"),
        await world.request("tasks/get", {"taskId": task_id}),
        await world.call("pay", requestState=first.state, inputResponses=ADA),
        await world.request("subscriptions/listen", {"notifications": {"taskIds": [task_id]}}),
    ):
        assert answer.error in {(503, -31001), (504, -31004)}  # a lost connection may have carried it over
        assert int(answer.headers["retry-after"]) >= 1
    assert tools.RAN.count("paid") == 0
    assert (await world.call("plain")).text == "plain"
    assert (await world.call("maybe", can=FORM_ONLY)).text == "1, call"
    await world.close()


def test_a_tool_that_needs_a_store_is_not_served_without_one() -> None:
    with pytest.raises(ConfigurationError, match="GATEWAY_REDIS_URL"):
        make_app(TOOLS)


async def test_the_extension_is_declared_where_a_tool_may_become_a_task(world: World) -> None:
    discovered = (await world.request("server/discover", {})).result
    assert discovered["capabilities"]["extensions"] == TASKS["extensions"]
    assert "tasks" not in discovered["capabilities"]
    without = make_app("tests.integration.tools", redis_url="redis://127.0.0.1:1", auth="jwt", jwt_secret=SECRET)
    assert "extensions" not in without._services.wires.dispatcher._released.methods.catalogue.capabilities
