"""Callers who may have no further stream: nothing that they order is lost, or ordered twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.storage.servers import Server
from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import AUDIENCE, Deployment
from tests.wires.draft.first_form import run, wish
from tests.wires.draft.messages import is_response
from tests.wires.draft.streamed import wishing
from tests.wires.draft.transport import RpcError
from tests.wires.draft.under_way import under_way

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def narrow(redis: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A replica on which each caller may have one stream open; apart from all other tasks."""
    settings = {
        "GATEWAY_STREAMS_PER_PRINCIPAL": "1",
        "GATEWAY_AUDIENCE": "narrow",
        "GATEWAY_JWT_AUDIENCE": AUDIENCE,
    }
    with Deployment(tmp_path_factory.mktemp("narrow"), redis, settings, {"n1": {}}) as narrow:
        yield narrow


@pytest.fixture
async def listener(narrow: Deployment, name: str) -> AsyncIterator[DraftClient]:
    """A client of a user whose only stream is open while the test runs."""
    async with narrow.client(name) as listener:
        async with under_way(listener, "tools/call", wishing(["streaming"], "wait", gate=f"gate-{name}")) as request:
            await request.until(is_response)
            yield listener
        narrow.open(f"gate-{name}")


@pytest.mark.parametrize("mode", ["streaming", "immediate"])
async def test_a_task_that_cannot_be_streamed_is_returned_as_a_task(
    listener: DraftClient, mode: str, name: str
) -> None:
    result = await listener.request("tools/call", wishing([mode], "say", call=f"{name}-{mode}"))
    final = await listener.request("tasks/get", {"taskId": result["task"]["taskId"]})
    assert final["status"] in {"working", "completed"}
    assert len(await listener.all_tasks()) == 2


async def test_a_task_of_the_first_form_is_refused_before_its_id_is_taken(listener: DraftClient, name: str) -> None:
    with pytest.raises(RpcError) as caught:
        await listener.request("tools/call", wish("say", f"{name}-task", {"call": name}))
    assert (caught.value.status, caught.value.code) == (200, -31003)
    assert len(await listener.all_tasks()) == 1


async def test_a_stream_that_has_ended_makes_room_for_the_next_one(narrow: Deployment, name: str) -> None:
    async with narrow.client(name) as client:
        for number in range(3):
            assert "result" in await run(client, "say", f"{name}-{number}", call=name)
