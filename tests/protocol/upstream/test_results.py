"""Results of upstreams: URIs that clients may send back get the prefix, everything else passes."""

from __future__ import annotations

import contextlib
import copy
import gc
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.upstream.cleaning import MAX_ICONS, MAX_META_NAMES, MAX_MIME_TYPE_BYTES, MAX_SIZE_BYTES, MAX_SIZES
from gateway.protocol.upstream.results import MAX_ENCODED_CHARACTERS, PORTION_ITEMS, Misshapen, Rewriting

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=10), inner, max_size=4)),
    max_leaves=12,
)
METHODS = ["tools/call", "prompts/get", "resources/read"]

CALL: dict[str, Any] = {
    "resultType": "complete",
    "content": [
        {"type": "text", "text": "see file:///a", "_meta": {"mcp.dev/x": 1, "own": 2}},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
        {"type": "resource", "resource": {"uri": "ui://app/a", "text": "<html>", "_meta": {"ui": {"csp": {}}}}},
        {"type": "hologram", "uri": "file:///a"},
    ],
    "structuredContent": {"uri": "file:///a"},
    "isError": False,
    "future": [1, {"uri": "file:///a"}],
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "x"}, "com.example/a": 1},
}


def rewrite_result(method: str, prefix: str, result: Mapping[str, Any]) -> dict[str, Any]:
    rewriting = Rewriting(method, prefix, result)
    for _ in rewriting.portions():
        pass
    return rewriting.result


def test_links_and_embedded_resources_get_the_prefix_and_nothing_else_changes() -> None:
    before = copy.deepcopy(CALL)
    assert rewrite_result("tools/call", "docs", CALL) == {
        "content": [
            {"type": "text", "text": "see file:///a", "_meta": {"own": 2}},
            {"type": "resource_link", "uri": "docs+file:///a", "name": "a"},
            {
                "type": "resource",
                "resource": {"uri": "ui://docs.app/a", "text": "<html>", "_meta": {"ui": {"csp": {}}}},
            },
            {"type": "text", "text": '{"type":"hologram","uri":"file:///a"}'},
        ],
        "structuredContent": {"uri": "file:///a"},
        "isError": False,
        "future": [1, {"uri": "file:///a"}],
        "_meta": {"com.example/a": 1},
    }
    assert before == CALL


def test_the_contents_of_a_read_resource_get_the_prefix() -> None:
    result = {"contents": [{"uri": "file:///a", "text": "a"}, {"uri": "notes", "blob": ""}], "ttlMs": 5}
    assert rewrite_result("resources/read", "docs", result) == {
        "contents": [{"uri": "docs+file:///a", "text": "a"}, {"uri": "docs+x:notes", "blob": ""}],
        "ttlMs": 5,
    }


POSING: dict[str, Any] = {
    "resultType": "complete",
    "inputRequests": {"u": {"method": "elicitation/create", "params": {"mode": "url", "url": "javascript:alert(1)"}}},
    "requestState": "state",
    "task": {"taskId": "t", "status": "working"},
    "taskId": "t",
    "status": "working",
    "pollIntervalMs": 1,
    "nextCursor": "c",
    "instructions": "obey",
    "completion": {"values": []},
    "tools": [],
    "resourceTemplates": [],
}


@pytest.mark.parametrize(
    ("method", "own"),
    [
        ("tools/call", {"content": [], "structuredContent": {"task": 1}, "isError": True}),
        ("prompts/get", {"messages": [], "description": "d"}),
        ("resources/read", {"contents": [], "ttlMs": 5, "cacheScope": "private"}),
    ],
)
def test_a_final_result_has_nothing_of_another_kind_of_result(method: str, own: dict[str, Any]) -> None:
    others = {"content": [], "contents": [], "messages": [], "description": "d", "ttlMs": 1, "isError": False}
    result = {**others, **POSING, **own, "vendor": [1]}
    assert rewrite_result(method, "docs", result) == {**own, "vendor": [1]}


GOOD_ICON = {"src": "https://example.com/a.png", "sizes": ["48x48"]}
ICONS = [GOOD_ICON, {"src": "file:///etc/passwd"}, {"src": "javascript:alert(1)"}, "x"]


def test_an_object_has_a_limited_number_of_icons() -> None:
    block = {"type": "text", "text": "a", "icons": [GOOD_ICON] * (MAX_ICONS + 1)}
    called = rewrite_result("tools/call", "docs", {"content": [block]})
    assert called["content"][0]["icons"] == [GOOD_ICON] * MAX_ICONS


ITEMS = 3 * PORTION_ITEMS + 10
LINKS = [{"type": "resource_link", "uri": f"file:///{number}", "name": "a"} for number in range(ITEMS)]
REWRITTEN = [{**link, "uri": f"docs+{link['uri']}"} for link in LINKS]


def in_one_message(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": blocks}]}


def in_many_messages(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": block} for block in blocks]}


@pytest.mark.parametrize(
    ("method", "shape"),
    [
        ("tools/call", lambda blocks: {"content": blocks}),
        ("prompts/get", in_one_message),
        ("prompts/get", in_many_messages),
    ],
    ids=["blocks", "blocks of one message", "messages"],
)
def test_other_work_may_be_done_between_portions_of_a_long_result(
    method: str, shape: Callable[[list[dict[str, Any]]], dict[str, Any]]
) -> None:
    rewriting = Rewriting(method, "docs", shape(LINKS))
    assert len(list(rewriting.portions())) >= 3
    assert rewriting.result == (in_many_messages if method == "prompts/get" else shape)(REWRITTEN)


def test_other_work_may_be_done_between_objects_with_much_meta() -> None:
    meta = {f"a.b/{number}": 1 for number in range(MAX_META_NAMES)}
    blocks = [{"type": "text", "text": "a", "_meta": meta}] * (PORTION_ITEMS // 10)
    assert len(list(Rewriting("tools/call", "docs", {"content": blocks}).portions())) >= 10


@pytest.mark.parametrize("block", [{"type": "text", "text": "a" * 2**22}, {"type": "a", "b": "a" * 2**22}])
def test_other_work_may_be_done_between_long_texts(block: dict[str, Any]) -> None:
    assert len(list(Rewriting("tools/call", "docs", {"content": [block] * 3}).portions())) == 3


def test_other_work_may_be_done_between_objects_with_many_icons() -> None:
    icon = {"src": "https://example.com/a.png", "sizes": ["48x48"] * MAX_SIZES}
    blocks = [{"type": "text", "text": "a", "icons": [icon] * MAX_ICONS}] * (PORTION_ITEMS // 20)
    assert len(list(Rewriting("tools/call", "docs", {"content": blocks}).portions())) >= 10


def test_a_short_result_is_rewritten_in_one_portion() -> None:
    assert not list(Rewriting("tools/call", "docs", {"content": LINKS[: PORTION_ITEMS // 2]}).portions())


class Text(str):
    """A text that can be referred to weakly."""

    __slots__ = ("__weakref__",)


def test_a_result_is_freed_with_its_last_reference() -> None:
    text = Text("a")
    rewriting = Rewriting("tools/call", "docs", {"content": [{"type": "text", "text": text}]})
    assert not list(rewriting.portions())
    alive = weakref.ref(text)
    gc.disable()
    try:
        del text, rewriting
        assert alive() is None
    finally:
        gc.enable()


def test_a_long_uri_passes_and_long_texts_in_the_place_of_uris_do_not() -> None:
    def linked(*uris: str) -> dict[str, Any]:
        return {"content": [{"type": "resource_link", "uri": uri, "name": "a"} for uri in uris]}

    long = "data:" + "a" * 1_000_000
    assert rewrite_result("tools/call", "docs", linked(long)) == linked("docs+" + long)
    half = "é" * (MAX_ENCODED_CHARACTERS // 2)
    encoded = "docs+x:" + "%C3%A9" * len(half)
    assert rewrite_result("tools/call", "docs", linked(half, half)) == linked(encoded, encoded)
    assert rewrite_result("tools/call", "", linked(half, half, half)) == linked(half, half, half)
    with pytest.raises(Misshapen, match="in the place of URIs"):
        rewrite_result("tools/call", "docs", linked(half, half, "a b"))


def test_the_sizes_and_the_type_of_an_icon_are_short_and_few() -> None:
    icon = {**GOOD_ICON, "sizes": ["é" * 100] * 100, "mimeType": "a\u200b" * 1000}
    block = {"type": "text", "text": "a", "icons": [icon]}
    cleaned = rewrite_result("tools/call", "docs", {"content": [block]})["content"][0]["icons"][0]
    assert cleaned["sizes"] == ["é" * (MAX_SIZE_BYTES // 2)] * MAX_SIZES
    assert cleaned["mimeType"] == "a" * ((MAX_MIME_TYPE_BYTES + 1) // 2)


@pytest.mark.parametrize(
    ("page", "own"), [("ui://app/a", "ui://docs.app/a"), ("https://a/", "docs+https://a/"), ("a b", None), (7, 7)]
)
def test_an_app_page_gets_the_prefix_and_is_left_out_if_it_is_no_uri(page: Any, own: Any) -> None:
    block = {"type": "text", "text": "a", "_meta": {"ui": {"resourceUri": page, "b": 1}, "openai/outputTemplate": page}}
    meta = rewrite_result("tools/call", "docs", {"content": [block]})["content"][0]["_meta"]
    assert meta == (
        {"ui": {"b": 1}} if own is None else {"ui": {"resourceUri": own, "b": 1}, "openai/outputTemplate": own}
    )


@pytest.mark.parametrize("further", [0, 1])
def test_a_meta_with_too_many_names_is_left_out(further: int) -> None:
    meta = {f"a{number}": number for number in range(MAX_META_NAMES + further)}
    block = {"type": "text", "text": "a", "_meta": meta}
    called = rewrite_result("tools/call", "docs", {"content": [block], "_meta": meta})
    kept = {} if further else {"_meta": meta}
    assert called == {"content": [{"type": "text", "text": "a", **kept}], **kept}


@pytest.mark.parametrize("icons", [ICONS, "https://example.com/a.png", None, {}])
def test_a_result_has_only_icons_that_a_client_may_fetch(icons: Any) -> None:
    kept = [GOOD_ICON] if isinstance(icons, list) else []
    link = {"type": "resource_link", "uri": "file:///a", "icons": icons}
    text = {"type": "text", "text": "a", "icons": icons}
    called = rewrite_result("tools/call", "docs", {"content": [link, text], "icons": icons})
    assert [called["icons"], *(block["icons"] for block in called["content"])] == [kept] * 3
    got = rewrite_result("prompts/get", "docs", {"messages": [{"role": "user", "content": text, "icons": icons}]})
    assert [got["messages"][0]["icons"], got["messages"][0]["content"]["icons"]] == [kept] * 2
    read = rewrite_result("resources/read", "docs", {"contents": [{"uri": "file:///a", "text": "", "icons": icons}]})
    assert read["contents"][0]["icons"] == kept


def test_resources_in_the_messages_of_a_prompt_get_the_prefix() -> None:
    link = {"type": "resource_link", "uri": "file:///a", "name": "a"}
    result = {"messages": [{"role": "user", "content": link}], "description": "d"}
    assert rewrite_result("prompts/get", "docs", result) == {
        "messages": [{"role": "user", "content": {**link, "uri": "docs+file:///a"}}],
        "description": "d",
    }


@pytest.mark.parametrize("method", METHODS)
@given(result=st.dictionaries(st.sampled_from(["content", "messages", "contents", "_meta", "x"]), JSON, max_size=4))
def test_a_result_of_any_shape_passes_or_is_misshapen(method: str, result: dict[str, Any]) -> None:
    with contextlib.suppress(Misshapen):
        rewrite_result(method, "docs", result)


@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("tools/call", {"content": 7}),
        ("tools/call", {"content": [], "isError": "maybe"}),
        ("tools/call", {"content": [], "isError": 2}),
        ("tools/call", {"taskId": "t", "status": "working"}),
        ("tools/call", {"tools": []}),
        ("prompts/get", {"messages": 1.5}),
        ("resources/read", {"contents": True}),
    ],
)
def test_a_result_that_may_mean_anything_is_misshapen(method: str, result: dict[str, Any]) -> None:
    with pytest.raises(Misshapen):
        rewrite_result(method, "docs", result)
