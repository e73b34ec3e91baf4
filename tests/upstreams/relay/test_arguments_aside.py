"""While an upstream works, a call is kept only as JSON; its arguments come back if it continues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gateway.engine.driver import run_leg
from gateway.engine.journal import Journal
from gateway.engine.leg import Leg
from gateway.engine.outcomes import Completed, NeedsInput, Outcome
from gateway.protocol.caller import Requester
from tests.calls.policies import POLICY
from tests.upstreams.relay.calling import Call, replica_of, text_of

NESTED = {"rows": [[1, 2.5, 1e300, 2**70], {"name": "ä", "none": None}], "empty": {}}
QUESTION = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}},
}


class Answering:
    """A client whose upstream answers with these results, and notes what it is sent."""

    def __init__(self, *results: dict[str, Any]) -> None:
        self._results = list(results)
        self.arguments: dict[str, Any] = {}
        self.sent: list[Any] = []
        self.seen: list[dict[str, Any]] = []
        self.on_request: Callable[[dict[str, Any]], None] = lambda _: None

    async def request(self, method: str, params: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.seen.append(dict(self.arguments))
        self.on_request(params)
        self.sent.append(msgspec.json.decode(msgspec.json.encode(params))["arguments"])
        return self._results.pop(0)


ASKING = {"resultType": "input_required", "inputRequests": {"who": QUESTION}, "requestState": "1"}
BARE = {"resultType": "input_required", "requestState": "1"}
DONE = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}


async def leg(client: Answering, call: Call, requester: Requester | None = None) -> tuple[Outcome, Leg]:
    client.arguments = {**NESTED}
    journal = Journal.begin(now_ms=1_000, flow_max_ms=60_000, random_bytes=bytes)
    running = Leg(journal, {}, call.host, POLICY, supports=lambda _: True)
    asking = requester or Requester()
    function = call.served.begin(call.target, client.arguments, asking, lambda: asking, journal)
    return await run_leg(function, running, limited=False), running


async def test_the_arguments_are_empty_while_the_upstream_works_and_reach_it_as_they_are() -> None:
    client = Answering(BARE, DONE)
    async with replica_of("http://127.0.0.1:1/mcp", client=client) as replica:
        outcome, _ = await leg(client, Call(replica.tool("find")))
    assert isinstance(outcome, Completed)
    assert client.seen == [{}, {}]
    assert client.sent == [msgspec.json.decode(msgspec.json.encode(NESTED))] * 2


async def test_they_come_back_as_they_were() -> None:
    client = Answering(ASKING)
    async with replica_of("http://127.0.0.1:1/mcp", client=client) as replica:
        outcome, running = await leg(client, Call(replica.tool("find")))
    assert isinstance(outcome, NeedsInput)
    assert running.away is not None
    assert running.away.restore_arguments is not None
    running.away.restore_arguments()
    assert client.arguments == NESTED


async def test_a_call_with_arguments_goes_on_after_a_question() -> None:
    client = Answering(ASKING, DONE)
    async with replica_of("http://127.0.0.1:1/mcp", client=client) as replica:
        call = Call(replica.tool("find"), dict(NESTED))
        (key,) = await call.asked()
        assert text_of(await call.result({key: {"result": {"action": "accept", "content": {}}}})) == "done"
    assert client.sent[0] == client.sent[1]


async def test_the_meta_of_the_request_is_kept_as_json_and_reaches_the_upstream_as_it_is() -> None:
    client = Answering(BARE, DONE)
    reserved = {"io.modelcontextprotocol/clientInfo": {"name": "c"}}
    requester = Requester(meta={"example.com/rows": NESTED, "example.com/name": "n", **reserved})
    kept = []
    client.on_request = lambda params: kept.append((dict(requester.meta), params["_meta"]))
    async with replica_of("http://127.0.0.1:1/mcp", client=client) as replica:
        outcome, _ = await leg(client, Call(replica.tool("find")), requester)
    assert isinstance(outcome, Completed)
    for meta, sent in kept:
        assert isinstance(meta["example.com/rows"], msgspec.Raw)
        assert meta["example.com/rows"] is sent["example.com/rows"]
        assert meta | reserved == meta
        assert msgspec.json.decode(msgspec.json.encode(sent)) == {
            "example.com/rows": msgspec.json.decode(msgspec.json.encode(NESTED)),
            "example.com/name": "n",
            **reserved,
        }
    assert len(kept) == 2
