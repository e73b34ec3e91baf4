"""Tools, prompts and resources of other servers: their list entries and their results, as they came."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.journal import Journal
from gateway.engine.relaying import RelayFunction, RelayLeg
from gateway.protocol.caller import Requester
from gateway.protocol.param_headers import InvalidParamHeader
from gateway.registry.registry import Registry
from gateway.registry.relayed import Relayed, RelayedPrompt, RelayedResource, RelayedTool

JOURNAL = Journal.begin(now_ms=1, flow_max_ms=1, random_bytes=bytes)


class Quiet:
    """A relay whose legs return what they were bound to."""

    upstream = "bugs"

    def bind(
        self, served: Relayed, target: str, arguments: dict[str, Any], requester: Requester, journal: Journal
    ) -> RelayFunction:
        async def run(_leg: RelayLeg) -> dict[str, Any]:
            return {"bound": [served.name, target, arguments, requester.task_id, journal.flow_id]}

        return run

    async def abandon(self, served: Relayed, requester: Requester, journal: Journal) -> None:
        """See `Relay`."""

    async def prepare_task(self, served: Relayed, requester: Requester, journal: Journal) -> None:
        journal.slot = {"round": 0, "for": [served.name, requester.task_id]}


TOOL: dict[str, Any] = {
    "name": "bugs__find",
    "title": "Find",
    "inputSchema": {"type": "object", "$ref": "https://elsewhere.example/schema"},
    "outputSchema": {"type": "no type"},
    "annotations": {"readOnlyHint": True, "x": 1},
    "execution": {"taskSupport": "optional"},
    "_meta": {"com.example/x": 1},
    "unknown": [1],
}


def test_a_list_entry_stays_as_it_came() -> None:
    before = copy.deepcopy(TOOL)
    assert RelayedTool(Quiet(), TOOL).catalogue_entry() == before
    prompt = {"name": "bugs__p", "arguments": [{"name": "a", "required": True, "x": 1}], "unknown": 1}
    assert RelayedPrompt(Quiet(), prompt).catalogue_entry() == prompt
    resource = {"uri": "bugs+file:///a", "name": "a", "size": "many", "unknown": 1}
    assert RelayedResource(Quiet(), resource).catalogue_entry() == resource


def test_a_relay_is_registered_under_the_name_that_clients_use() -> None:
    strange = {"uriTemplate": "bugs+file:///{?q*}", "name": "s"}
    entries = [
        RelayedTool(Quiet(), TOOL),
        RelayedPrompt(Quiet(), {"name": "bugs__p"}),
        RelayedResource(Quiet(), {"uri": "bugs+file:///a", "name": "a"}),
        RelayedResource(Quiet(), {"uriTemplate": "bugs+file:///{p}", "name": "t"}),
    ]
    registry = Registry(entries)
    assert registry.names == {"bugs__find", "bugs__p", "bugs+file:///a", "bugs+file:///{p}"}
    assert RelayedResource(Quiet(), strange).uri == "bugs+file:///{?q*}"


def test_metrics_get_no_name_that_a_caller_has_invented() -> None:
    assert RelayedTool(Quiet(), TOOL).label == "bugs__find"
    assert RelayedTool(Quiet(), {"name": "bugs__made_up"}, listed=False).label == "other"
    assert RelayedResource(Quiet(), {"uri": "bugs+x:1"}).label == "bugs+x:1"
    assert RelayedResource(Quiet(), {"uri": "bugs+x:1"}, listed=False).label == "other"


def test_a_prompt_of_another_server_names_its_arguments() -> None:
    prompt = RelayedPrompt(Quiet(), {"name": "p", "arguments": [{"name": "a"}, {"name": "b"}]})
    assert prompt.argument_names == {"a", "b"}
    assert RelayedPrompt(Quiet(), {"name": "p"}).argument_names == set()


def test_a_tool_has_the_headers_of_its_schema() -> None:
    properties = {"region": {"type": "string", "x-mcp-header": "Region"}}
    tool = RelayedTool(Quiet(), {"name": "t", "inputSchema": {"type": "object", "properties": properties}})
    assert [header.name for header in tool.param_headers] == ["Mcp-Param-Region"]
    properties["region"]["x-mcp-header"] = "no header"
    with pytest.raises(InvalidParamHeader):
        RelayedTool(Quiet(), {"name": "t", "inputSchema": {"type": "object", "properties": properties}})


def test_a_result_is_passed_on_as_it_came_without_what_only_this_server_may_say() -> None:
    result = {
        "resultType": "complete",
        "content": [{"type": "hologram", "x": {"_meta": {"io.modelcontextprotocol/a": 1}}}, 7],
        "structuredContent": [1],
        "ttlMs": 5,
        "unknown": {"x": None},
        "_meta": {
            "com.example/x": 1,
            "io.modelcontextprotocol/serverInfo": {},
            "dev.sealedgateway/more": 1,
            "plain": 2,
        },
    }
    before = copy.deepcopy(result)
    told = RelayedTool(Quiet(), TOOL).whole_result(result, "bugs__find", JOURNAL)
    assert result == before
    assert told == {
        **{name: part for name, part in result.items() if name != "resultType"},
        "_meta": {"com.example/x": 1, "plain": 2},
    }


def test_caching_hints_of_another_servers_resource_are_ours() -> None:
    resource = RelayedResource(Quiet(), {"uri": "x:1"})
    told = resource.whole_result({"contents": [], "ttlMs": 9, "cacheScope": "public", "x": 1}, "x:1", JOURNAL)
    assert told == {"contents": [], "x": 1}
    assert (resource.ttl_ms, resource.cache) == (0, "private")


@pytest.mark.parametrize("meta", [None, 7, [], {}, {"io.modelcontextprotocol/x": 1}])
def test_a_meta_with_nothing_to_pass_on_is_left_out(meta: Any) -> None:
    assert RelayedTool(Quiet(), TOOL).whole_result({"content": [], "_meta": meta}, "", JOURNAL) == {"content": []}


@given(st.dictionaries(st.text(max_size=20), st.integers()))
def test_no_member_of_a_result_is_lost_or_made_up(result: dict[str, Any]) -> None:
    told = RelayedTool(Quiet(), TOOL).whole_result(result, "", JOURNAL)
    assert told == {name: value for name, value in result.items() if name not in ("resultType", "_meta")}
