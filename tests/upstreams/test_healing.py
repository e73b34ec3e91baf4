"""Small deviations of upstreams are healed and counted, and all that goes out is valid for the official client."""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import mcp_types._v2025_11_25 as of_2025
import mcp_types._v2026_07_28 as of_2026
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from gateway.auth.tokens import mint
from gateway.cli.upstreams import Surveyed, summary
from gateway.json_schema.patterns import MAX_CHARACTERS
from gateway.observability.upstream_metrics import WARNING_SECONDS, UpstreamMetrics
from gateway.protocol.upstream.blocks import repaired_data
from gateway.protocol.upstream.deviations import Deviation, uncounted
from gateway.protocol.upstream.entries import Entry, clean_entry
from gateway.protocol.upstream.responses import ErrorAnswer, Malformed, Result, read_message
from gateway.protocol.upstream.results import MAX_ADDED_CHARACTERS, UNSTRUCTURED, Misshapen, Rewriting, plain_result
from gateway.upstreams.config.definition import Definition
from gateway.upstreams.healing import HEALED, REFUSED, Healing
from gateway.upstreams.lists.repairs import count_repairs, with_newest_schemas, with_valid_schemas
from tests.cpu_time import least_seconds
from tests.docs.markdown import rows_of, text_of
from tests.integration.client import connect
from tests.upstreams.deviations import (
    IMAGE,
    ITEMS,
    OTHERS,
    RESULTS,
    SCHEMAS,
    TEXT,
    content,
    either,
)
from tests.upstreams.servers.careless import Careless
from tests.upstreams.site import Site, entry
from tests.wires.draft.deployment import AUDIENCE, SECRET

Kinds = list[Deviation]


def message(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, **members}).encode()


def rewritten(
    method: str, result: Mapping[str, Any], heal: Any = uncounted, *, promises: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    rewriting = Rewriting(method, "docs", result, uri="file:///asked", promises=promises, heal=heal)
    for _ in rewriting.portions():
        pass
    return rewriting.result


MESSAGES: list[tuple[Deviation, bytes, Any]] = [
    (Deviation.BYTE_ORDER_MARK, b"\xef\xbb\xbf" + message(result={"a": 1}), {"a": 1}),
    (Deviation.BATCH, b"[" + message(result={"a": 1}) + b"]", {"a": 1}),
    (Deviation.ID_TYPE, message(id="7", result={"a": 1}), {"a": 1}),
    (Deviation.ID_TYPE, message(id=7.0, result={"a": 1}), {"a": 1}),
    (Deviation.NULL_MEMBER, message(result={"a": 1}, error=None), {"a": 1}),
    (Deviation.NULL_MEMBER, message(result={"resultType": None, "a": 1}), {"resultType": "complete", "a": 1}),
    (Deviation.NULL_MEMBER, message(result=None, error={"code": 5, "message": "no"}), (5, "no")),
    (Deviation.ERROR_SHAPE, message(error={"code": "5", "message": "no"}), (5, "no")),
    (Deviation.ERROR_SHAPE, message(error={"code": 5.0, "message": "no"}), (5, "no")),
    (Deviation.ERROR_SHAPE, message(error={"code": True, "message": "no"}), (-32603, "no")),
    (Deviation.ERROR_SHAPE, message(error={"code": 10**20, "message": "no"}), (-32603, "no")),
    (Deviation.ERROR_SHAPE, message(error={"code": 5}), (5, "")),
    (Deviation.ERROR_SHAPE, message(error={"code": 5, "message": None}), (5, "")),
    (Deviation.ERROR_SHAPE, message(error="no"), (-32603, "no")),
]


@pytest.mark.parametrize(("kind", "body", "read"), MESSAGES)
def test_a_message_that_all_take_for_the_same_is_read_and_counted(kind: Deviation, body: bytes, read: Any) -> None:
    healed: Kinds = []
    answer = read_message(body, 7, heal=healed.append)
    assert healed == [kind]
    if isinstance(answer, ErrorAnswer):
        assert (answer.code, answer.message) == read
    else:
        assert isinstance(answer, Result)
        assert answer.value == read


MAIN = [("tools/call", "content"), ("prompts/get", "messages"), ("resources/read", "contents")]


@pytest.mark.parametrize(("kind", "method", "result", "expected"), RESULTS)
def test_a_result_is_repaired_and_counted_once(
    kind: Deviation, method: str, result: dict[str, Any], expected: dict[str, Any]
) -> None:
    healed: Kinds = []
    assert rewritten(method, result, healed.append) == expected
    assert healed == [kind]
    is_valid(method, expected)


SAID = content({"type": "text", "text": ' {"total": 3}\n'})
OTHER_TEXTS = ["[3]", "3", "done", '{"a":1,"a":2}', '{"a":NaN}', "{", '{"a":"' + "a" * 70_000 + '"}']


OF_OBJECTS = {"type": "object"}


@pytest.mark.parametrize("promised", [SAID, {**SAID, "structuredContent": None, "isError": False}])
def test_promised_structured_content_is_the_object_in_the_only_text(promised: dict[str, Any]) -> None:
    healed: Kinds = []
    result = rewritten("tools/call", promised, healed.append, promises=OF_OBJECTS)
    assert result == {**promised, "structuredContent": {"total": 3}}
    assert healed == [Deviation.STRUCTURED_MISSING]
    assert rewritten("tools/call", promised) == promised


LACKING = [
    content(*SAID["content"], TEXT),
    content(IMAGE),
    content(),
    {**content(TEXT), "isError": False},
    {**content(TEXT), "structuredContent": None},
    *(content({"type": "text", "text": text}) for text in OTHER_TEXTS),
]


@pytest.mark.parametrize("result", LACKING)
def test_a_result_without_promised_structured_content_is_an_error_with_all_that_it_says(result: dict[str, Any]) -> None:
    healed: Kinds = []
    added = {"type": "text", "text": UNSTRUCTURED}
    expected = {"content": [*result["content"], added], "isError": True}
    assert rewritten("tools/call", result, healed.append, promises=OF_OBJECTS) == expected
    assert healed == [Deviation.UNSTRUCTURED]
    assert rewritten("tools/call", result) == result


@pytest.mark.parametrize(
    ("result", "schema"),
    [
        ({**SAID, "isError": True}, OF_OBJECTS),
        ({**SAID, "structuredContent": {"total": 4}}, OF_OBJECTS),
        ({**content(TEXT), "structuredContent": None}, {"type": ["object", "null"]}),
    ],
)
def test_a_result_with_promised_structured_content_or_an_error_stays_as_it_is(
    result: dict[str, Any], schema: dict[str, Any]
) -> None:
    healed: Kinds = []
    assert rewritten("tools/call", result, healed.append, promises=schema) == result
    assert not healed


@pytest.mark.parametrize(("method", "member"), MAIN)
@pytest.mark.parametrize("other", [{"taskId": "1"}, {"inputRequests": {}}, {"tools": []}])
def test_a_result_of_another_kind_is_refused_also_with_null_in_the_main_member(
    method: str, member: str, other: dict[str, Any]
) -> None:
    with pytest.raises(Misshapen, match=member):
        rewritten(method, {member: None, **other})


LETTERS = base64.b64encode(bytes(range(256)) * 46_875).decode()


@pytest.mark.parametrize(
    ("data", "repaired"),
    [
        (LETTERS[:-4] + "\r\n", LETTERS[:-4]),
        (base64.encodebytes(base64.b64decode(LETTERS)).decode(), LETTERS),
        ("data:image/png;base64," + LETTERS, LETTERS),
        (" ".join(LETTERS[:8_000_000]), LETTERS[:8_000_000]),
        ("data:" + LETTERS, None),
        ("data:" + "a;" * 8_000_000, None),
        (LETTERS + "\u2028", None),
    ],
    ids=["a final break", "lines", "a URI", "blanks", "no comma", "no end of parameters", "not ASCII"],
)
def test_megabytes_of_media_are_repaired_in_a_moment(data: str, repaired: str | None) -> None:
    assert repaired_data(data, uncounted) == repaired
    assert least_seconds(lambda given: repaired_data(given, uncounted), data) < 0.3


MODELS: Mapping[str, str] = {
    "tools/call": "CallToolResult",
    "prompts/get": "GetPromptResult",
    "resources/read": "ReadResourceResult",
}


def is_valid(method: str, result: Mapping[str, Any]) -> None:
    """Check a result, as the wires complete it, against the protocol of both versions that the official client has."""
    plain = {name: value for name, value in result.items() if name != "structuredContent" or type(value) is dict}
    getattr(of_2025, MODELS[method]).model_validate(plain, strict=True)
    full = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
    getattr(of_2026, MODELS[method]).model_validate(full, strict=True)


@pytest.mark.parametrize(("method", "member"), MAIN)
@settings(max_examples=200)
@given(data=st.data(), others=OTHERS)
def test_whatever_an_upstream_answers_the_official_client_can_read_it(
    method: str, member: str, data: st.DataObject, others: dict[str, Any]
) -> None:
    result = {member: data.draw(either(st.lists(either(ITEMS[member]), min_size=1, max_size=3))), **others}
    try:
        passed = rewritten(method, result)
    except Misshapen:
        return
    is_valid(method, passed)


PLAIN = [content(TEXT), content(), content(TEXT, TEXT), {**content(TEXT), "isError": True}]


@pytest.mark.parametrize("result", PLAIN)
def test_a_result_of_texts_is_plain(result: dict[str, Any]) -> None:
    assert plain_result({**result, "resultType": "complete"}) == result


@settings(max_examples=300)
@given(data=st.data(), others=OTHERS)
def test_what_is_plain_is_what_rewriting_returns(data: st.DataObject, others: dict[str, Any]) -> None:
    blocks = st.lists(either(ITEMS["content"]) | st.just(TEXT), max_size=10)
    result = {"content": data.draw(blocks), **data.draw(st.sampled_from([{}, others]))}
    healed: Kinds = []
    plain = plain_result(result)
    if plain is not None:
        assert plain == rewritten("tools/call", result, healed.append)
        assert not healed


MOST_TIMES = 40
"""An item of one digit becomes a block with a type and a text."""


def size_of(result: Mapping[str, Any]) -> int:
    return len(json.dumps(result))


@pytest.mark.parametrize("blocks", [2, 300])
def test_a_message_that_becomes_several_has_its_other_members_once(blocks: int) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "x"}] * blocks, "_meta": {"a": 1}}
    made = rewritten("prompts/get", {"messages": [message, message]})["messages"]
    assert [("_meta" in each) for each in made] == [True, *[False] * (blocks - 1)] * 2
    assert {each["role"] for each in made} == {"user"}


@pytest.mark.parametrize(("method", "member"), MAIN)
@given(data=st.data())
def test_a_healed_result_is_not_many_times_as_large(method: str, member: str, data: st.DataObject) -> None:
    item = data.draw(either(ITEMS[member]))
    if type(item) is dict:
        item = {**item, "_meta": {f"a/{number}": number for number in range(300)}}
        if type(item.get("content")) is list:
            item["content"] = item["content"] * 300
    result = {member: [item] * 500}
    rewriting = Rewriting(method, "docs", result, uri="memo://" + "a" * 2000)
    try:
        for _ in rewriting.portions():
            pass
    except Misshapen:
        return
    assert size_of(rewriting.result) <= MOST_TIMES * size_of(result) + MAX_ADDED_CHARACTERS


def listed(tool: dict[str, Any], heal: Any = uncounted) -> Any:
    """Return a tool as it is listed, or why it is left out."""
    entry = clean_entry("tools", "docs", with_newest_schemas("tools", tool, len(json.dumps(tool)), heal))
    if isinstance(entry, Entry):
        count_repairs(tool, entry, heal)
        entry = with_valid_schemas(entry, heal)
    return entry.entry if isinstance(entry, Entry) else entry.reason


def taking(**properties: Any) -> dict[str, Any]:
    return {"name": "a", "inputSchema": {"type": "object", "properties": properties}}


OLDER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (taking(x={"minimum": 0, "exclusiveMinimum": True}), {"x": {"exclusiveMinimum": 0}}),
    (taking(x={"maximum": 9, "exclusiveMaximum": False}), {"x": {"maximum": 9}}),
    (taking(x={"items": [{"type": "string"}], "additionalItems": False}), {
        "x": {"prefixItems": [{"type": "string"}], "items": False}}),
    (taking(x={"anyOf": [{"items": [{}]}], "description": None}), {"x": {"anyOf": [{"prefixItems": [{}]}]}}),
    (taking(x={"type": "string", "required": False}), {"x": {"type": "string"}}),
    (taking(x=True, y=False), {"x": {}, "y": {"not": {}}}),
    (taking(x={"type": "object", "properties": {"y": True}}), {"x": {"type": "object", "properties": {"y": {}}}}),
    (taking(x=[], y={"properties": [], "patternProperties": []}), {"x": {}, "y": {
        "properties": {}, "patternProperties": {}}}),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "properties"), OLDER)
def test_a_schema_of_an_older_draft_is_translated(tool: dict[str, Any], properties: dict[str, Any]) -> None:
    healed: Kinds = []
    tool["inputSchema"]["$schema"] = "http://json-schema.org/draft-04/schema#"
    assert listed(tool, healed.append)["inputSchema"] == {"type": "object", "properties": properties}
    assert healed == [Deviation.SCHEMA]


@pytest.mark.parametrize("dialect", ["", "#", "#/$defs/a", "a", "urn:a", "https://a.example/s", 7, [], "\x00"])
def test_a_schema_of_an_unknown_dialect_is_one_of_the_newest(dialect: Any) -> None:
    tool = taking(x={"type": "string"})
    tool["inputSchema"]["$schema"] = dialect
    assert listed(tool)["inputSchema"] == taking(x={"type": "string"})["inputSchema"]


@pytest.mark.parametrize("dialect", [{}, {"$schema": "https://json-schema.org/draft/2020-12/schema"}])
def test_what_clients_refuse_is_written_as_an_object_in_the_newest_draft_too(dialect: dict[str, str]) -> None:
    healed: Kinds = []
    schema = {**dialect, "type": "object", "properties": {"x": True}, "additionalProperties": False}
    tool = {"name": "a", "inputSchema": {"type": "object", "properties": []}, "outputSchema": schema}
    assert listed(tool, healed.append) == {
        "name": "docs__a",
        "inputSchema": {"type": "object", "properties": {}},
        "outputSchema": {**schema, "properties": {"x": {}}},
    }
    assert healed == [Deviation.SCHEMA]


def test_a_property_that_says_it_is_required_is_required() -> None:
    tool = taking(x={"type": "string", "required": True}, required={"type": "string"})
    assert listed(tool)["inputSchema"] == {
        "type": "object",
        "properties": {"x": {"type": "string"}, "required": {"type": "string"}},
        "required": ["x"],
    }


@pytest.mark.parametrize(
    "part",
    [{"type": "strng"}, {"enum": "a"}, {"minimum": "1"}, {"$ref": "#/$defs/none"},
     {"$ref": "https://a.example/s"}, {"properties": {"y": 7}}, {"anyOf": []}],
)  # fmt: skip
def test_an_invalid_schema_costs_its_tool_its_place_and_that_of_its_output_only_itself(part: dict[str, Any]) -> None:
    healed: Kinds = []
    assert "is not valid JSON Schema" in listed(taking(x=part))
    tool = {**taking(), "outputSchema": {"type": "object", "properties": {"x": part}}}
    assert "outputSchema" not in listed(tool, healed.append)
    assert healed == [Deviation.OUTPUT_SCHEMA]


@pytest.mark.parametrize("part", [{"pattern": r"\Aa"}, {"enum": []}, {"$anchor": "a"}, {"nullable": True}])
def test_a_schema_that_some_client_cannot_compile_costs_an_output_only_itself(part: dict[str, Any]) -> None:
    healed: Kinds = []
    tool = {**taking(x={}), "outputSchema": taking(x=part)["inputSchema"]}
    assert listed(tool, healed.append) == listed(taking(x={}))
    assert healed == [Deviation.OUTPUT_SCHEMA]


def test_clients_cannot_take_an_output_for_that_of_another_tool() -> None:
    schema = taking(x={})["inputSchema"]
    assert listed({**taking(), "outputSchema": {"$id": "https://a.example/s", **schema}})["outputSchema"] == schema


@pytest.mark.parametrize("draft", ["draft-03", "draft-04"])
def test_clients_get_no_name_of_a_draft_that_they_do_not_know(draft: str) -> None:
    healed: Kinds = []
    schema = taking(x={})["inputSchema"]
    tool = {**taking(), "outputSchema": {"$schema": f"http://json-schema.org/{draft}/schema#", **schema}}
    assert listed(tool, healed.append)["outputSchema"] == schema
    assert healed == [Deviation.SCHEMA]


DEAR_PATTERNS = [
    "(?i)" + "[Ā-\U0010ffff]" * 30,
    "[Ā-\U0010ffff]" * 50,
    "." * 254,
    "[^a]" * 63,
    ".?" * 127,
    "(a|.?)*" * 36,
]


@pytest.mark.parametrize("pattern", DEAR_PATTERNS)
@pytest.mark.parametrize("count", [30, 240])
def test_patterns_of_one_schema_are_checked_in_no_time(pattern: str, count: int) -> None:
    parts = {f"p{index}": {"pattern": f"{pattern}{index}"[-MAX_CHARACTERS:]} for index in range(count)}
    tool = {**taking(), "outputSchema": {"type": "object", "properties": parts}}
    assert least_seconds(listed, tool) < 0.5


@pytest.mark.parametrize("dialect", ["", "#", "%", "x", 7, None, [], "http://[", "https://json-schema.org/draft/9"])
@pytest.mark.parametrize("keyword", ["$schema", "$id", "$ref", "$dynamicRef", "$recursiveRef", "$anchor"])
def test_an_odd_word_of_a_schema_concerns_its_tool_alone(keyword: str, dialect: Any) -> None:
    tool = taking()
    tool["inputSchema"][keyword] = dialect
    assert "inputSchema" in listed(tool)  # it is served, or left out for that reason


DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    "properties",
    [
        {"a": {"items": [{"type": "string"}]}, "b": {"$ref": "#/properties/a/items/0"}},
        {"a": {"$id": "#foo", "items": [{}]}, "b": {"$ref": "#foo"}},
    ],
)
def test_a_schema_that_cannot_be_translated_stays_in_its_own_dialect(properties: dict[str, Any]) -> None:
    schema = {"$schema": DRAFT_7, "type": "object", "properties": properties}
    assert listed({"name": "a", "inputSchema": schema})["inputSchema"] == schema


def test_what_stood_beside_a_reference_gets_no_meaning() -> None:
    properties = {"a": {"type": "string"}, "b": {"$ref": "#/properties/a", "minLength": 3, "description": "short"}}
    schema = {"$schema": DRAFT_7, "type": "object", "properties": properties}
    assert listed({"name": "a", "inputSchema": schema})["inputSchema"]["properties"]["b"] == {
        "$ref": "#/properties/a",
        "description": "short",
    }


HUGE: list[dict[str, Any]] = [
    {f"a{number}": {"type": "string", "pattern": r"\pL{99}"} for number in range(600)},
    {"a": {"pattern": r"\w" * 20_000}},
    {f"a{number}": {"type": "string", "required": True} for number in range(20_000)},
    {f"a{number}": {"required": True} for number in range(2_000)},
    {f"a{number}": {"$ref": "#/$defs/x"} for number in range(2_000)},
]


@pytest.mark.parametrize("properties", HUGE)
def test_no_schema_takes_long_to_judge(properties: dict[str, Any]) -> None:
    tool = taking(**properties)
    tool["outputSchema"] = tool["inputSchema"] | {"$defs": {"x": {}}}
    begin = time.process_time()
    listed(tool)
    assert time.process_time() - begin < 1


def test_values_in_a_schema_are_never_taken_for_schemas() -> None:
    value = {"items": [None], "exclusiveMinimum": True, "required": True}
    tool = taking(
        x={"default": value, "const": value, "enum": [value, None], "examples": [value]}, default={"default": None}
    )
    assert listed(tool) == {**tool, "name": "docs__a"}


@given(
    schema=SCHEMAS, more=st.dictionaries(st.sampled_from(["outputSchema", "annotations", "title", "_meta"]), SCHEMAS)
)
def test_whatever_an_upstream_lists_its_schemas_are_valid(schema: Any, more: dict[str, Any]) -> None:
    tool = listed({**taking(x=schema), **more})
    if isinstance(tool, str):
        return
    for each in (tool["inputSchema"], tool.get("outputSchema", {})):
        validator = jsonschema.validators.validator_for(each, jsonschema.Draft202012Validator)
        validator.check_schema(each)
    of_2026.Tool.model_validate(tool, strict=True)


READ = b'{"jsonrpc":"2.0","id":7,"result":'
REFUSED_BODIES: Mapping[str, list[bytes]] = {
    "duplicate_names": [READ + b'{"a":1,"a":2}}'],
    "not_json": [
        READ + b'{"a":NaN}}',
        READ + b"{},}",
        READ + b'{"a":"\x01"}}',
        READ + b"{}} // end",
        READ + b"{}",
        READ + b"{}}\n" + READ + b"{}}",
    ],
    "not_utf8": [READ + b'{"a":"\xff"}}'],
    "two_answers": [message(result={}, error={"code": 1, "message": "no"})],
    "wrong_id": [message(id=8, result={}), message(id=None, result={}), message(id=True, result={})],
    "no_jsonrpc": [b'{"id":7,"result":{}}', b'{"Output":{}}', message(jsonrpc="1.0", result={})],
    "result_kind": [message(result={"resultType": "hologram"})],
}


@pytest.mark.parametrize("body", [body for bodies in REFUSED_BODIES.values() for body in bodies])
def test_a_message_that_two_readers_could_take_for_two_is_refused(body: bytes) -> None:
    healed: Kinds = []
    with pytest.raises(Malformed):
        read_message(body, 7, heal=healed.append)
    assert not healed


def test_the_table_has_each_kind_and_the_page_has_the_table() -> None:
    assert HEALED.keys() == set(Deviation)
    assert not HEALED.keys() & REFUSED.keys()
    assert REFUSED_BODIES.keys() <= REFUSED.keys()
    rows = rows_of(text_of("docs/run/upstreams.md"), 3)
    written = {row[0].strip("`"): (row[1], row[2]) for row in rows if row[1] in {"healed", "refused"}}
    table = {kind.value: ("healed", why) for kind, why in HEALED.items()}
    assert written == table | {kind: ("refused", why) for kind, why in REFUSED.items()}


def test_the_log_has_each_kind_of_an_upstream_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    registry = CollectorRegistry()
    metrics = UpstreamMetrics(registry, lambda: now)
    healing = [Healing("bugs", metrics), Healing("docs", metrics)]
    with caplog.at_level(logging.WARNING):
        for seconds in (0.0, 1.0, WARNING_SECONDS - 1, WARNING_SECONDS, WARNING_SECONDS + 1):
            now = seconds
            healing[0](Deviation.BLOCK)
        healing[0](Deviation.FLAG)
        healing[1](Deviation.BLOCK)
    logged = [(record.upstream, record.kind) for record in caplog.records]  # type: ignore[attr-defined]
    assert logged == [("bugs", "block")] * 2 + [("bugs", "flag"), ("docs", "block")]
    counted = {"upstream": "bugs", "kind": "block"}
    assert registry.get_sample_value("gateway_upstream_healed_total", counted) == 5
    assert metrics.healed_kinds("bugs") == ["block", "flag"]


@pytest.mark.slow
async def test_the_official_client_reads_every_answer_of_a_careless_upstream(tmp_path: Path) -> None:
    results = {f"tool{number}": each[2] for number, each in enumerate(RESULTS) if each[1] == "tools/call"}
    promising = {"name": "promising", "inputSchema": OF_OBJECTS, "outputSchema": OF_OBJECTS}
    upstream = Careless(results, entries={"tools/list": [promising]})
    with upstream as server, Site(tmp_path, {"careless": entry(server.url)}) as site:
        site.wait_listed()
        async with connect(site, {}, token=mint(SECRET, "ada", AUDIENCE)) as connection:
            listed = await connection.client.list_tools()
            assert {tool.name for tool in listed.tools} == {f"careless__{name}" for name in (*results, "promising")}
            for name in results:
                called = await connection.client.call_tool(f"careless__{name}", {})
                assert called.model_dump(by_alias=True)["resultType"] == "complete"
            lacking = await connection.client.call_tool("careless__promising", {})
            assert [block.model_dump()["text"] for block in lacking.content] == ["done", UNSTRUCTURED]
            assert lacking.is_error
        replica = site.replicas[0]
        kinds = {labels["kind"] for labels, _ in replica.samples("gateway_upstream_healed_total")}
        assert {"media_type", "id_type", "null_member", "cursor", "member_type", "block", "flag"} <= kinds
        assert "'invalid' has an inputSchema that is not valid JSON Schema" in replica.log_text()


def test_the_command_names_what_was_healed() -> None:
    definition = Definition(name="up", prefix="up", transport="http", url="http://a.example/mcp")
    surveyed = Surveyed(definition, era="stateless", healed=["cursor", "schema"])
    assert summary(surveyed).endswith("; healed: cursor, schema")
