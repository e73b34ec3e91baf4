"""A state of a single-use tool can be used for one leg. After that, it is refused for every caller."""

from __future__ import annotations

import asyncio

import msgspec

from tests.integration.raw import Answer
from tests.storage.servers import Server
from tests.wires.released import tools
from tests.wires.released.conftest import World

ADA = {"who": {"action": "accept", "content": {"name": "Ada"}}}
EVE = {"who": {"action": "accept", "content": {"name": "Eve"}}}
POOR = {"who": {"action": "accept", "content": {"name": "poor"}}}


def assert_refused(answer: Answer) -> None:
    """The refusal of every state that is not accepted. It gives no other reason."""
    assert answer.error == (400, -32602)
    assert answer.message["error"] == {
        "code": -32602,
        "message": "Invalid or expired requestState",
        "data": {"reason": "invalid_request_state"},
    }


def assert_put_off(answer: Answer) -> None:
    """The refusal of a request that runs already: a client that sends it again later gets the answer."""
    assert answer.error == (503, -31001)
    assert int(answer.headers["retry-after"]) >= 1


async def test_answers_without_a_state_are_asked_for_again(world: World) -> None:
    answer = await world.call("pay", inputResponses=ADA)
    assert list(answer.result["inputRequests"]) == ["who"]
    assert (await world.call("pay", requestState=answer.state, inputResponses=ADA)).text == "Ada paid"
    assert tools.RAN.count("paid") == 1


async def test_an_identical_repeat_gets_the_answer_of_the_first_run_from_any_replica(world: World) -> None:
    state = (await world.call("pay")).state
    first = await world.call("pay", requestState=state, inputResponses=ADA, request_id=1)
    again = await world.call("pay", requestState=state, inputResponses=ADA, request_id="other")
    assert (again.text, again.message["id"]) == ("Ada paid", "other")
    assert again.result == first.result
    assert again.headers["x-gateway-replica"] != first.headers["x-gateway-replica"]
    assert tools.RAN.count("paid") == 1


async def test_any_other_repeat_is_refused_and_says_why_to_the_operator_alone(world: World) -> None:
    state = (await world.call("pay")).state
    await world.call("pay", requestState=state, inputResponses=ADA)
    assert_refused(await world.call("pay", requestState=state, inputResponses=EVE))
    assert_refused(await world.call("pay", requestState=state))
    counted = [
        app._services.telemetry.registry.get_sample_value("gateway_state_rejections_total", {"reason": "already_used"})
        for app in world.apps
    ]
    assert sum(value or 0 for value in counted) == 2
    assert tools.RAN.count("paid") == 1


async def test_while_the_first_runs_its_repeat_is_put_off_and_any_other_refused(
    world: World, gate: asyncio.Event
) -> None:
    state = (await world.call("pay", {"gate": "g"})).state
    running = asyncio.create_task(world.call("pay", {"gate": "g"}, requestState=state, inputResponses=ADA))
    await tools.PAYING.wait()
    assert_put_off(await world.call("pay", {"gate": "g"}, requestState=state, inputResponses=ADA))
    assert_refused(await world.call("pay", {"gate": "g"}, requestState=state, inputResponses=EVE))
    gate.set()
    assert (await running).text == "Ada paid"
    assert (await world.call("pay", {"gate": "g"}, requestState=state, inputResponses=ADA)).text == "Ada paid"
    assert tools.RAN.count("paid") == 1


async def test_of_many_at_once_one_runs(world: World) -> None:
    state = (await world.call("pay")).state
    answers = await asyncio.gather(*(world.call("pay", requestState=state, inputResponses=ADA) for _ in range(24)))
    assert tools.RAN.count("paid") == 1
    for answer in answers:
        if answer.status != 200:
            assert_put_off(answer)


async def test_an_error_that_the_first_run_ended_in_is_repeated_too(world: World) -> None:
    state = (await world.call("pay")).state
    first = await world.call("pay", requestState=state, inputResponses=POOR)
    again = await world.call("pay", requestState=state, inputResponses=POOR)
    assert again.message["error"] == first.message["error"] == {"code": -32001, "message": "No money"}
    assert tools.RAN.count("paid") == 1


async def test_a_leg_that_asks_again_has_a_state_of_its_own(world: World) -> None:
    state = (await world.call("pay")).state
    asked_again = await world.call("pay", requestState=state)
    assert_refused(await world.call("pay", requestState=state, inputResponses=ADA))
    assert (await world.call("pay", requestState=asked_again.state, inputResponses=ADA)).text == "Ada paid"


async def test_a_forged_state_spends_nothing(world: World) -> None:
    state = (await world.call("pay")).state
    assert_refused(await world.call("pay", requestState=state + "A", inputResponses=ADA))
    assert_refused(await world.call("pay", requestState=state, inputResponses=ADA, sub="eve"))
    assert (await world.call("pay", requestState=state, inputResponses=ADA)).text == "Ada paid"


async def test_nothing_is_spent_during_an_outage_of_the_store(own_server: Server) -> None:
    world = World(own_server.url)
    tools.RAN.clear()
    state = (await world.call("pay")).state
    own_server.kill()
    assert (await world.call("pay", requestState=state, inputResponses=ADA)).error == (503, -31001)
    assert tools.RAN == ["leg"]
    own_server.start()
    async with asyncio.timeout(60):  # the store is back, but a busy machine may notice late
        while (answer := await world.call("pay", requestState=state, inputResponses=ADA)).status == 503:
            pass
    assert answer.text == "Ada paid"
    assert tools.RAN.count("paid") == 1
    await world.close()


async def test_nothing_of_a_kept_answer_can_be_read_in_the_store(world: World, server: Server) -> None:
    state = (await world.call("pay")).state
    await world.call("pay", requestState=state, inputResponses=ADA)
    keys = server.ask("KEYS", "*")
    assert isinstance(keys, list)
    dumps = [server.ask("DUMP", key.decode("latin-1")) for key in keys]
    assert dumps
    assert not any(b"Ada" in msgspec.msgpack.encode(dump) for dump in dumps)
