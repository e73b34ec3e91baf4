"""Entries of upstreams' lists: repaired or left out, so that no upstream can spoil a list for all others."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import Prompt, Resource, ResourceTemplate, Tool

from gateway.protocol.upstream.cleaning import clean_line, clean_text, short_line, short_text
from gateway.protocol.upstream.entries import (
    IDENTITY,
    MAX_DESCRIPTION_BYTES,
    MAX_ENTRY_DEPTH,
    MAX_NAME_LENGTH,
    MAX_SCHEMA_BYTES,
    Dropped,
    Entry,
    Kind,
    clean_annotations,
    clean_entry,
)

SCHEMA = {"type": "object", "properties": {"q": {"type": "string", "description": "a"}}}
TOOL = {"name": "search", "inputSchema": SCHEMA}
RAW: dict[Kind, dict[str, Any]] = {
    "tools": TOOL,
    "prompts": {"name": "greet", "arguments": [{"name": "who", "required": True}]},
    "resources": {"uri": "file:///a", "name": "a"},
    "templates": {"uriTemplate": "file:///{id}", "name": "a"},
}
ALIEN: dict[Kind, set[str]] = {
    "tools": {"mimeType"},
    "prompts": {"mimeType", "outputSchema"},
    "resources": {"outputSchema"},
    "templates": {"outputSchema"},
}
"""Members that the protocol does not have there, so clients ignore them."""
MODELS: dict[Kind, Any] = {"tools": Tool, "prompts": Prompt, "resources": Resource, "templates": ResourceTemplate}

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=10), inner, max_size=4)),
    max_leaves=12,
)
MEMBERS = ["name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta", "execution",
           "arguments", "uri", "uriTemplate", "mimeType", "size"]  # fmt: skip

HINTS = ["title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint", "audience", "priority",
         "lastModified"]  # fmt: skip
ICON = ["mimeType", "sizes", "theme"]


def cleaned(kind: Kind, raw: Any) -> Entry:
    entry = clean_entry(kind, "docs", raw)
    assert isinstance(entry, Entry), entry
    return entry


def reason(kind: Kind, raw: Any) -> str:
    dropped = clean_entry(kind, "docs", raw)
    assert isinstance(dropped, Dropped)
    return dropped.reason


@pytest.mark.parametrize("kind", RAW)
def test_an_entry_gets_the_prefix_and_keeps_what_we_do_not_know(kind: Kind) -> None:
    entry = cleaned(kind, {**RAW[kind], "unknown": {"a": 1}})
    assert entry.entry["unknown"] == {"a": 1}
    assert entry.own in RAW[kind].values()
    assert entry.exposed in entry.entry.values()
    assert entry.exposed.startswith(("docs__", "docs+"))


@given(st.sampled_from(list(RAW)), st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=6))
def test_whatever_an_upstream_lists_is_valid_for_clients_or_dropped(kind: Kind, wrong: dict[str, Any]) -> None:
    entry = clean_entry(kind, "docs", {**RAW[kind], **wrong})
    if isinstance(entry, Dropped):
        assert entry.reason
    else:
        msgspec.json.encode(entry.entry)


@given(st.sampled_from(list(RAW)), JSON)
def test_an_entry_that_is_any_json_value_never_raises(kind: Kind, raw: Any) -> None:
    assert isinstance(clean_entry(kind, "docs", raw), Entry | Dropped)


@pytest.mark.parametrize("kind", RAW)
def test_optional_members_of_a_wrong_type_are_left_out(kind: Kind) -> None:
    wrong = dict.fromkeys(("title", "description", "icons", "annotations", "_meta", "mimeType", "outputSchema"), 7)
    entry = cleaned(kind, {**RAW[kind], **wrong}).entry
    assert entry.keys() & wrong.keys() <= ALIEN[kind]
    MODELS[kind].model_validate(entry)


@pytest.mark.parametrize("kind", RAW)
@given(
    st.dictionaries(st.sampled_from(HINTS), JSON | st.sampled_from([["user", "model"], 0.5, True, "2026"]), max_size=8),
    st.lists(
        st.fixed_dictionaries({"src": st.just("data:,a") | st.text(max_size=5)}, optional=dict.fromkeys(ICON, JSON))
        | JSON,
        max_size=3,
    ),
)
def test_members_of_a_wrong_type_inside_annotations_and_icons_spoil_no_list(
    kind: Kind, annotations: dict[str, Any], icons: list[Any]
) -> None:
    entry = clean_entry(kind, "docs", {**RAW[kind], "annotations": annotations, "icons": icons})
    if isinstance(entry, Dropped):
        assert "nobody sees" in entry.reason
    else:
        MODELS[kind].model_validate(entry.entry, strict=True)


TIMES = ["2026-02-28T23:59:59Z", "2024-02-29T00:00:00.123456+05:30", "2026-01-01T00:00:00.1-08:00"]
NO_TIMES = [
    "2026-01-01", "2026-01-01T00:00:00", "2026-01-01 00:00:00Z", "2026-01-01T00:00Z", "2026-01-01T00:00:00+0100",
    "2026-02-29T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:00:00Z ", "\uff12026-01-01T00:00:00Z", "today", 7,
]  # fmt: skip


@pytest.mark.parametrize("time", TIMES)
def test_a_time_with_its_offset_stays(time: str) -> None:
    assert clean_annotations({"lastModified": time}) == {"lastModified": time}


@pytest.mark.parametrize("time", NO_TIMES)
def test_a_time_that_clients_refuse_is_left_out(time: Any) -> None:
    assert clean_annotations({"lastModified": time, "priority": 1}) == {"priority": 1}


def test_annotations_and_icons_that_are_valid_stay_as_they_are() -> None:
    hints = {"title": "t", "readOnlyHint": True, "audience": ["user"], "priority": 0.5, "lastModified": TIMES[0]}
    icon = {"src": "https://a.example/i", "mimeType": "image/png", "sizes": ["16x16", "any"], "theme": "dark"}
    entry = cleaned("tools", {**TOOL, "annotations": hints, "icons": [icon]}).entry
    assert (entry["annotations"], entry["icons"]) == (hints, [icon])


@pytest.mark.parametrize("wrong", [{"properties": []}, {"properties": {"a": 1}}, {"required": "a"}, {"required": [1]}])
def test_a_tool_whose_parameters_no_client_can_read_is_dropped(wrong: dict[str, Any]) -> None:
    assert "properties or required" in reason("tools", {**TOOL, "inputSchema": {"type": "object", **wrong}})


def test_the_schema_of_a_tool_stays_as_it_is_but_for_what_nobody_sees() -> None:
    schema = {
        "type": "object",
        "title": "a\x07b",
        "properties": {
            "q": {"type": "string", "description": "a\x1b[2J\U000e0041", "enum": ["red\x00", "\tblue"]},
            "n": {"anyOf": [{"minimum": 1.5}, {"title": "x\u202ey\u200b"}], "default": None},
        },
    }
    assert cleaned("tools", {**TOOL, "inputSchema": schema, "outputSchema": schema}).entry["inputSchema"] == {
        "type": "object",
        "title": "ab",
        "properties": {
            "q": {"type": "string", "description": "a[2J", "enum": ["red", "\tblue"]},
            "n": {"anyOf": [{"minimum": 1.5}, {"title": "xy"}], "default": None},
        },
    }
    plain = {"type": "object", "properties": {"ق\u200cق": {"type": "string", "pattern": r"^[\x00-\x1f]\u200b$"}}}
    assert cleaned("tools", {**TOOL, "inputSchema": plain}).entry["inputSchema"] == plain


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"q\U000e0041": {}}},
        {"properties": {"q": {"properties": {"\x1b": {}}}}},
        {"properties": {"q": {"pattern": "[\u200b]"}}},
        {"patternProperties": {"\u2066a": {}}},
        {"$defs": {"a\r": {}}},
    ],
)
def test_a_tool_with_names_or_patterns_that_cannot_be_cleaned_is_dropped(schema: dict[str, Any]) -> None:
    assert "nobody sees" in reason("tools", {**TOOL, "inputSchema": {"type": "object", **schema}})


@pytest.mark.parametrize("kind", RAW)
def test_no_text_of_an_entry_has_characters_that_nobody_sees(kind: Kind) -> None:
    bad = "a\U000e0049\u200b\u202e\x1b\ufeffb"
    members = ["title", "description", "unknown", *(["name"] if kind in {"resources", "templates"} else [])]
    more = {"_meta": {"openai/widgetDescription": bad}, "annotations": {"title": bad}, "deep": [{"a": [bad]}]}
    argument = {"name": "who", "title": bad, "description": bad}
    arguments = {"arguments": [argument]} if kind == "prompts" else {}
    entry = cleaned(kind, {**RAW[kind], **dict.fromkeys(members, bad), **more, **arguments}).entry
    assert clean_text(repr(entry)) == repr(entry)
    assert "\\x1b" not in repr(entry)
    assert entry["title"] == entry["deep"][0]["a"][0] == entry["_meta"]["openai/widgetDescription"] == "ab"


@pytest.mark.parametrize(
    "source",
    [
        *("javascript:alert(1)", "file:///etc/passwd", "ftp://a.example/i", "//a.example/i", "/i", "i.png", ""),
        *("http://", "https:///i", "https://me@a.example/i", " data:,a", "data:", "blob:x"),
    ],
)
def test_icons_that_a_client_must_not_fetch_are_left_out(source: str) -> None:
    good = [{"src": "https://a.example/i"}, {"src": "http://a.example/i"}, {"src": "DATA:image/png;base64,AA=="}]
    icons = [good[0], {"src": source}, *good[1:]]
    assert cleaned("tools", {**TOOL, "icons": icons}).entry["icons"] == good


def test_control_characters_disappear_from_texts() -> None:
    raw = {**TOOL, "title": "a\x1b[2J\nb", "description": "a\x00\r\nb\x9bc\td", "annotations": {"title": "x\x07y"}}
    entry = cleaned("tools", raw).entry
    assert entry["title"] == "a[2J b"
    assert entry["description"] == "a\nbc\td"
    assert entry["annotations"] == {"title": "xy"}


def test_a_long_description_ends_early_between_two_characters() -> None:
    entry = cleaned("tools", {**TOOL, "description": "a" + "é" * MAX_DESCRIPTION_BYTES})
    size = len(entry.entry["description"].encode())
    assert MAX_DESCRIPTION_BYTES - 2 < size <= MAX_DESCRIPTION_BYTES


@pytest.mark.parametrize("member", ["inputSchema", "outputSchema"])
def test_a_tool_with_a_large_schema_is_dropped(member: str) -> None:
    large = {"type": "object", "description": "x" * MAX_SCHEMA_BYTES}
    assert f"has an {member} of 6" in reason("tools", {**TOOL, member: large})


def test_reserved_members_of_meta_are_dropped() -> None:
    meta = {"io.modelcontextprotocol/serverInfo": {}, "tools.mcp.com/a": 1, "traceparent": "x", "com.example/a": 2}
    assert cleaned("tools", {**TOOL, "_meta": meta}).entry["_meta"] == {"com.example/a": 2}
    assert "_meta" not in cleaned("tools", {**TOOL, "_meta": {"mcp.dev/a": 1}}).entry


def test_the_page_of_an_app_gets_the_prefix() -> None:
    meta = {
        "ui": {"resourceUri": "ui://app/a", "visibility": ["model"]},
        "ui/resourceUri": "ui://app/a",
        "openai/outputTemplate": "ui://other.app/a",
    }
    assert cleaned("tools", {**TOOL, "_meta": meta}).entry["_meta"] == {
        "ui": {"resourceUri": "ui://docs.app/a", "visibility": ["model"]},
        "ui/resourceUri": "ui://docs.app/a",
        "openai/outputTemplate": "ui://docs.other.app/a",
    }


def test_a_tool_keeps_nothing_about_tasks_of_its_upstream() -> None:
    assert "execution" not in cleaned("tools", {**TOOL, "execution": {"taskSupport": "required"}}).entry


def test_arguments_in_headers_are_found() -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    (header,) = cleaned("tools", {**TOOL, "inputSchema": schema}).param_headers
    assert (header.name, header.path) == ("Mcp-Param-Region", ("region",))


def test_a_tool_with_an_invalid_header_annotation_is_dropped() -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "a b\x1b"}}}
    why = reason("tools", {**TOOL, "inputSchema": schema})
    assert why.startswith("has an x-mcp-header that breaks the rules: ")
    assert why.isprintable()


@pytest.mark.parametrize("mark", ["H" * 60_000, ["H"] * 15_000])
def test_a_tool_with_a_long_header_name_is_dropped_for_a_short_reason(mark: Any) -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": mark}}}
    why = reason("tools", {**TOOL, "inputSchema": schema})
    assert why.startswith("has an x-mcp-header that breaks the rules: ")
    assert len(why) < 1_100


def test_lone_surrogates_are_replaced() -> None:
    raw = json.loads('{"name": "a", "description": "x\\ud800", "inputSchema": {"type": "object", "title": "\\udfff"}}')
    entry = cleaned("tools", raw).entry
    assert entry["description"] == "x\ufffd"
    assert entry["inputSchema"]["title"] == "\ufffd"


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_an_entry_may_nest_to_a_limit() -> None:
    cleaned("prompts", {"name": "a", "x": deep(MAX_ENTRY_DEPTH - 1)})
    assert "nests deeper" in reason("prompts", {"name": "a", "x": deep(MAX_ENTRY_DEPTH)})


@pytest.mark.parametrize(
    ("kind", "raw", "why"),
    [
        ("tools", [], "is not an object"),
        ("tools", {}, "has no name"),
        ("tools", {**TOOL, "name": "a" * 5000}, f"has a name of 5000 characters; the limit is {MAX_NAME_LENGTH}"),
        ("tools", {"name": "a"}, "has no inputSchema"),
        ("tools", {"name": "a", "inputSchema": {"type": "string"}}, "has an inputSchema whose type is not object"),
        ("tools", {**TOOL, "x": "y" * 300_000}, "has 300111 bytes; the limit is 262144"),
        ("prompts", {"name": "a", "arguments": [{}]}, "has an argument without a name"),
        ("resources", {"uri": f"a:{'b' * 2047}", "name": "a"}, "has a uri of 2049 characters; the limit is 2048"),
        (
            "templates",
            {"uriTemplate": f"a:{'b' * 2044}{{c}}", "name": "a"},
            "has a uriTemplate of 2049 characters; the limit is 2048",
        ),
        ("templates", {"name": "a"}, "has no uriTemplate"),
    ],
)
def test_an_entry_that_cannot_be_served_says_why(kind: Kind, raw: Any, why: str) -> None:
    assert reason(kind, raw) == why


@pytest.mark.parametrize(
    "unseen", ["\U000e0050\U000e0041\U000e0059", "\u202e", "\u200b", "\x1b[2J", "\n", "\t", "\x9b"]
)
@pytest.mark.parametrize("prefix", ["docs", ""])
@pytest.mark.parametrize(("kind", "around"), [("templates", ("file:///{id", "}")), ("templates", ("{", "}")),
                                              ("templates", ("file:///", "{id}")), ("resources", ("file:///a", "b")),
                                              ("resources", ("ui://a/", ""))])  # fmt: skip
def test_nothing_unseen_stands_in_a_uri_or_in_an_expression_of_a_template(
    kind: Kind, around: tuple[str, str], prefix: str, unseen: str
) -> None:
    """Where the prefix makes another URI of it, the characters are percent-encoded. Elsewhere the entry is dropped."""
    entry = clean_entry(kind, prefix, {**RAW[kind], IDENTITY[kind]: unseen.join(around)})
    if isinstance(entry, Dropped):
        assert entry.reason == "has a URI with characters that nobody sees"
        assert (prefix, "{" in around[0]) != ("docs", False)
    else:
        assert clean_line(entry.exposed) == entry.exposed == entry.entry[IDENTITY[kind]]
        assert (prefix, "{" in around[0]) == ("docs", False)


def test_a_dropped_entry_is_named_in_a_short_printable_text() -> None:
    dropped = clean_entry("tools", "docs", {"name": "a\x1b" + "b" * 5000})
    assert isinstance(dropped, Dropped)
    assert dropped.name == "a" + "b" * 79 + "…"


@given(st.text())
def test_clean_texts_have_no_control_characters(text: str) -> None:
    assert all(character in "\n\t" or ord(character) >= 32 for character in clean_text(text))
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in clean_line(text))


@given(st.text(), st.integers(0, 50))
def test_a_short_text_is_a_start_of_the_clean_text_within_the_limit(text: str, limit: int) -> None:
    for clean, shorten in ((clean_text, short_text), (clean_line, short_line)):
        start = shorten(text, limit)
        assert clean(text).startswith(start)
        assert len(start.encode()) <= limit
