"""Answers of upstreams that deviate from the protocol: a table of what they become, and strategies that draw others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from gateway.protocol.upstream.deviations import Deviation

TEXT = {"type": "text", "text": "a"}
PNG = "iVBORw0KGgo="


def content(*blocks: Any) -> dict[str, Any]:
    return {"content": list(blocks)}


def saying(*contents: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": each} for each in contents]}


IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "docs+file:///a", "name": "a"}
FILE = {"uri": "docs+file:///a", "text": "a"}
RESULTS: list[tuple[Deviation, str, dict[str, Any], dict[str, Any]]] = [
    (Deviation.ITEMS_MISSING, "tools/call", {}, content()),
    (Deviation.ITEMS_MISSING, "tools/call", {"content": None, "isError": True}, {**content(), "isError": True}),
    (
        Deviation.ITEMS_MISSING,
        "tools/call",
        {"structuredContent": {"total": 3}},
        {**content({"type": "text", "text": '{"total":3}'}), "structuredContent": {"total": 3}},
    ),
    (Deviation.ITEMS_MISSING, "tools/call", {"toolResult": {"total": 3}, "isError": False, "_meta": {"a.b/c": 1}}, {
        **content({"type": "text", "text": '{"toolResult":{"total":3}}'}), "toolResult": {"total": 3},
        "isError": False, "_meta": {"a.b/c": 1}}),
    (Deviation.ITEMS_MISSING, "tools/call", {"content": None, "output": "done"}, {
        **content({"type": "text", "text": '{"output":"done"}'}), "output": "done"}),
    (Deviation.ITEMS_MISSING, "prompts/get", {"messages": None}, {"messages": []}),
    (Deviation.ITEMS_MISSING, "resources/read", {}, {"contents": []}),
    (Deviation.ITEMS_SHAPE, "tools/call", {"content": TEXT}, content(TEXT)),
    (Deviation.ITEMS_SHAPE, "resources/read", {"contents": {**FILE, "uri": "file:///a"}}, {"contents": [FILE]}),
    (Deviation.BLOCK, "tools/call", content("a"), content(TEXT)),
    (Deviation.BLOCK, "tools/call", content({"text": "a"}), content(TEXT)),
    (Deviation.BLOCK, "tools/call", content({"type": "text", "text": {"b": 1}}), content(
        {"type": "text", "text": '{"type":"text","text":{"b":1}}'})),
    (Deviation.BLOCK, "tools/call", content({"type": "image", "data": "http://a.example/i"}), content(
        {"type": "text", "text": '{"type":"image","data":"http://a.example/i"}'})),
    (Deviation.BLOCK, "tools/call", content({"type": "resource_link"}), content(
        {"type": "text", "text": '{"type":"resource_link"}'})),
    (Deviation.BLOCK, "prompts/get", saying("a"), saying(TEXT)),
    (Deviation.BLOCK, "resources/read", {"contents": [{"uri": "file:///a", "text": [1]}]}, {
        "contents": [{**FILE, "text": "[1]"}]}),
    (Deviation.BLOCK, "tools/call", content({"type": []}), content({"type": "text", "text": '{"type":[]}'})),
    (Deviation.BLOCK, "resources/read", {"contents": [{"uri": "file:///a", "blob": None}]}, {
        "contents": [{**FILE, "text": ""}]}),
    (Deviation.BLOCK, "resources/read", {"contents": [{"uri": "file:///a", "blob": None, "text": None}]}, {
        "contents": [{**FILE, "text": ""}]}),
    (Deviation.BLOCK, "tools/call", content(
        {"type": "resource", "resource": {"uri": "file:///a", "blob": None, "text": "a"}}), content(
        {"type": "resource", "resource": FILE})),
    (Deviation.MEMBER_TYPE, "resources/read", {"contents": [{"uri": "file:///a", "blob": PNG, "text": None}]}, {
        "contents": [{"uri": "docs+file:///a", "blob": PNG}]}),
    (Deviation.SEVERAL_BLOCKS, "prompts/get", saying([TEXT, IMAGE]), saying(TEXT, IMAGE)),
    (Deviation.ROLE, "prompts/get", saying(TEXT, role="system"), saying(TEXT)),
    (Deviation.MEDIA_DATA, "tools/call", content({**IMAGE, "data": f"data:image/png;base64,{PNG}"}), content(IMAGE)),
    (Deviation.MEDIA_DATA, "tools/call", content({**IMAGE, "data": PNG[:5] + "\n" + PNG[5:-1]}), content(IMAGE)),
    (Deviation.MEDIA_DATA, "tools/call", content({**IMAGE, "data": "_-8="}), content({**IMAGE, "data": "/+8="})),
    (Deviation.MEDIA_DATA, "resources/read", {"contents": [{"uri": "file:///a", "blob": "_-8"}]}, {
        "contents": [{"uri": "docs+file:///a", "blob": "/+8="}]}),
    (Deviation.MEDIA_KIND, "tools/call", content({"type": "image", "data": PNG}), content(IMAGE)),
    (Deviation.URI_MISSING, "resources/read", {"contents": [{"text": "a"}]}, {
        "contents": [{"text": "a", "uri": "docs+file:///asked"}]}),
    (Deviation.NAME_MISSING, "tools/call", content({"type": "resource_link", "uri": "file:///a"}), content(
        {**LINK, "name": "file:///a"})),
    (Deviation.FLAG, "tools/call", {**content(), "isError": None}, content()),
    (Deviation.FLAG, "tools/call", {**content(), "isError": "true"}, {**content(), "isError": True}),
    (Deviation.FLAG, "tools/call", {**content(), "isError": 0}, {**content(), "isError": False}),
    (Deviation.MEMBER_TYPE, "tools/call", content({**TEXT, "annotations": []}), content(TEXT)),
    (Deviation.MEMBER_TYPE, "tools/call", content({**TEXT, "_meta": None}), content(TEXT)),
    (Deviation.MEMBER_TYPE, "tools/call", content({**TEXT, "annotations": {"lastModified": "2026-01-02"}}), content(
        {**TEXT, "annotations": {}})),
    (Deviation.MEMBER_TYPE, "tools/call", content({**TEXT, "annotations": {"priority": 7}}), content(
        {**TEXT, "annotations": {}})),
    (Deviation.MEMBER_TYPE, "tools/call", content({**LINK, "uri": "file:///a", "size": "4"}), content(LINK)),
    (Deviation.MEMBER_TYPE, "prompts/get", {"messages": [], "description": None}, {"messages": []}),
    (Deviation.MEMBER_TYPE, "resources/read", {"contents": [], "ttlMs": "5"}, {"contents": []}),
]  # fmt: skip


SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=5)
ANY = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
ODD: st.SearchStrategy[Any] = st.sampled_from([None, False, 0, 1.5, "", "a", [], [[]], {}, {"a": None}]) | ANY


def either(usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any] = ODD) -> st.SearchStrategy[Any]:
    """Return a strategy that takes one of two as often as the other. `|` would take the one with more branches."""
    return st.sampled_from([usual, odd]).flatmap(lambda strategy: strategy)


def object_of(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional={name: either(usual) for name, usual in members.items()})


TEXTS = st.sampled_from(["a", PNG, "file:///a", "data:,"])
SHARED = {"mimeType": TEXTS, "annotations": object_of(priority=st.just(1), audience=st.just(["user"])), "_meta": ANY}
CONTENTS = object_of(uri=TEXTS, text=TEXTS, blob=TEXTS, **SHARED)
KINDS = st.sampled_from(["text", "image", "audio", "resource", "resource_link", "hologram"])
BLOCKS = st.builds(
    lambda kind, members: {"type": kind, **members},
    either(KINDS),
    object_of(text=TEXTS, data=TEXTS, uri=TEXTS, name=TEXTS, title=TEXTS, description=TEXTS, size=st.just(1), icons=ANY,
              resource=CONTENTS, **SHARED),
)  # fmt: skip
ITEMS: Mapping[str, st.SearchStrategy[Any]] = {
    "content": BLOCKS,
    "messages": object_of(role=st.just("user"), content=either(BLOCKS, st.lists(BLOCKS, max_size=2))),
    "contents": CONTENTS,
}
OTHERS = object_of(
    isError=st.booleans(), structuredContent=ANY, description=TEXTS, ttlMs=st.just(1), cacheScope=st.just("public"),
    _meta=ANY,
)  # fmt: skip


SCHEMA_VALUES = ANY | st.sampled_from(["string", "(", "a++", "#/default", "#/$defs/a", "#", ["x"], True])
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    SCHEMA_VALUES,
    lambda inner: st.dictionaries(
        st.sampled_from(["type", "items", "required", "properties", "enum", "minimum", "exclusiveMinimum", "pattern",
                         "$ref", "$schema", "anyOf", "additionalProperties", "x", "$defs", "$id", "description",
                         "$anchor", "id", "nullable", "dependencies", "default", "$async"]),
        inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
