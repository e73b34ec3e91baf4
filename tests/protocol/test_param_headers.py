"""Parameters that travel in headers too: which a tool may mark, and when header and argument agree."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp.shared.inbound import find_invalid_x_mcp_header, mcp_param_headers, x_mcp_header_map

from gateway.errors import HeaderMismatch
from gateway.protocol.headers import Headers
from gateway.protocol.param_headers import (
    InvalidParamHeader,
    ParamHeader,
    check_param_headers,
    compile_param_headers,
)
from tests.protocol.header_values import encode_header_value

REGION = {"type": "string", "x-mcp-header": "Region"}
ONE = compile_param_headers({"type": "object", "properties": {"region": REGION}})


def headers(**values: str) -> Headers:
    return Headers([(b"mcp-param-" + name.encode(), value.encode("latin-1")) for name, value in values.items()])


def check(value: Any, sent: str | None) -> None:
    check_param_headers(ONE, {"region": value}, headers() if sent is None else headers(region=sent))


def refusal(value: Any, sent: str | None) -> str:
    with pytest.raises(HeaderMismatch, match=r"^Header mismatch: Mcp-Param-Region ") as caught:
        check(value, sent)
    return caught.value.message


# --- what a tool may mark ----------------------------------------------------------------------------


def test_a_marked_property_is_found_under_the_name_its_author_gave_the_header() -> None:
    assert (ParamHeader("Mcp-Param-Region", b"mcp-param-region", ("region",)),) == ONE


def test_nested_properties_are_found_as_long_as_only_properties_lead_there() -> None:
    schema = {
        "type": "object",
        "properties": {
            "where": {
                "type": "object",
                "properties": {
                    "zone": {"type": "integer", "x-mcp-header": "Zone"},
                    "more": {"properties": {"dry": {"type": "boolean", "x-mcp-header": "dry.RUN"}}},
                },
            },
            "region": REGION,
        },
    }
    assert [(header.name, header.path) for header in compile_param_headers(schema)] == [
        ("Mcp-Param-Region", ("region",)),
        ("Mcp-Param-Zone", ("where", "zone")),
        ("Mcp-Param-dry.RUN", ("where", "more", "dry")),
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"a": {"type": "string"}, "b": True}},
        {"properties": {"x-mcp-header": {"type": "string"}}},
        {"properties": REGION},
        {"$defs": {"x-mcp-header": {"type": "string"}}, "patternProperties": {"x-mcp-header": {}}},
        {"properties": {"a": {"default": {"x-mcp-header": "A"}, "enum": [{"x-mcp-header": "A"}]}}},
        {"const": {"x-mcp-header": "A"}, "examples": [{"x-mcp-header": "A"}]},
        {"dependentRequired": {"x-mcp-header": ["a"]}, "dependencies": {"x-mcp-header": ["a"]}},
        True,
        None,
    ],
)
def test_a_schema_that_marks_nothing_has_no_headers(schema: Any) -> None:
    assert compile_param_headers(schema) == ()


@pytest.mark.parametrize("token", [*"!#$%&'*+-.^_`|~09azAZ", "Region", "x-y_z.1", "a" * 128])
def test_every_token_of_rfc_9110_is_a_header_name(token: str) -> None:
    (header,) = compile_param_headers({"properties": {"a": {"type": "string", "x-mcp-header": token}}})
    assert header.name == f"Mcp-Param-{token}"
    assert header.key == f"mcp-param-{token}".lower().encode()


@pytest.mark.parametrize(
    "token",
    ["", " ", "a b", "a:b", "a\r\nb", "a\n", "\x00", "a/b", "(a)", "é", "a,b", '"a"', "a\x7f", None, 1, True, [], {}],
)  # fmt: skip
def test_anything_else_is_not_a_header_name(token: Any) -> None:
    with pytest.raises(InvalidParamHeader, match=r"'region'.*is not a header name"):
        compile_param_headers({"properties": {"region": {"type": "string", "x-mcp-header": token}}})


def test_a_long_header_name_is_refused_and_quoted_in_part() -> None:
    schema = {"properties": {"region": {"type": "string", "x-mcp-header": "H" * 129}}}
    with pytest.raises(InvalidParamHeader, match=r"'region'.*'H{100}…' has 129 characters; use at most 128"):
        compile_param_headers(schema)


@pytest.mark.parametrize(
    "kind", ["number", "object", "array", "null", "String", ["string"], ["string", "null"], None, 1]
)
def test_only_strings_integers_and_booleans_can_be_marked(kind: Any) -> None:
    with pytest.raises(InvalidParamHeader, match="string, integer or boolean"):
        compile_param_headers({"properties": {"a": {"type": kind, "x-mcp-header": "A"}}})


def test_a_property_without_a_type_of_its_own_cannot_be_marked() -> None:
    optional = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "x-mcp-header": "A"}
    with pytest.raises(InvalidParamHeader, match="use a default of that type"):
        compile_param_headers({"properties": {"a": optional}})


@pytest.mark.parametrize("second", ["Region", "region", "REGION"])
def test_two_names_that_differ_in_case_alone_are_one_name_twice(second: str) -> None:
    again = {"properties": {"b": {"type": "string", "x-mcp-header": second}}}
    with pytest.raises(InvalidParamHeader, match=r"'region'.*'a\.b'"):
        compile_param_headers({"properties": {"region": REGION, "a": again}})


INSIDE_ANOTHER_KEYWORD: list[dict[str, Any]] = [
    REGION,
    *({keyword: {"properties": {"region": REGION}}} for keyword in (
        "items", "contains", "additionalItems", "unevaluatedItems", "additionalProperties", "unevaluatedProperties",
        "propertyNames", "not", "if", "then", "else", "contentSchema", "x-vendor",
    )),
    *({keyword: [{"properties": {"region": REGION}}]} for keyword in (
        "allOf", "anyOf", "oneOf", "prefixItems", "items",
    )),
    *({keyword: {"region": REGION}} for keyword in (
        "$defs", "definitions", "patternProperties", "dependentSchemas", "dependencies",
    )),
    {"properties": {"a": {"items": REGION}}},
    {"properties": {"a": {"items": {"properties": {"region": REGION}}}}},
    {"properties": [{"region": REGION}]},
]  # fmt: skip


@pytest.mark.parametrize("schema", INSIDE_ANOTHER_KEYWORD)
def test_a_mark_that_properties_alone_do_not_lead_to_spoils_the_tool(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidParamHeader, match="`properties` alone"):
        compile_param_headers(schema)


@pytest.mark.slow
def test_no_depth_of_a_schema_is_too_much() -> None:
    schema: dict[str, Any] = {"region": REGION}
    for _ in range(5000):
        schema = {"properties": {"a": schema}}
    with pytest.raises(InvalidParamHeader):
        compile_param_headers(schema)


schema_keywords = st.sampled_from(["properties", "items", "allOf", "$defs", "const", "type", "a", "x-mcp-header"])
schemas = st.recursive(
    st.sampled_from(["string", "number", "Region", "region", "", 1, None, True]) | st.just(dict(REGION)),
    lambda inner: st.dictionaries(schema_keywords, inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=12,
)


@given(schemas)
def test_whatever_is_accepted_is_accepted_and_understood_alike_by_the_official_client(schema: Any) -> None:
    try:
        compiled = compile_param_headers(schema)
    except InvalidParamHeader:
        return
    assert find_invalid_x_mcp_header(schema) is None
    assert {header.path: header.name for header in compiled} == {
        path: f"Mcp-Param-{token}" for path, token in x_mcp_header_map(schema).items()
    }


# --- when header and argument agree ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("Hello", "=?base64?SGVsbG8=?="),
        ("SGVsbG8=", "SGVsbG8="),
        ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        ("us-west1", "us-west1"),
        ("us-west1", " \tus-west1 "),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("", ""),
        ("", "=?base64??="),
        (None, None),
        (True, "true"),
        (False, "false"),
        (42, "42"),
        (42, "42.0"),
        (42, "42.000"),
        (42.0, "42"),
        (42.0, "42.0"),
        (-7, "-7"),
        (0, "0"),
        (0, "-0"),
        (-0.0, "0"),
        (-0.0, "-0.0"),
        (42, "=?base64?NDI=?="),
        (2**53 + 1, "9007199254740993"),
        (-(10**300), "-1" + "0" * 300),
    ],
)
def test_a_header_that_says_what_the_argument_says_passes(value: Any, sent: str | None) -> None:
    check(value, sent)


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("Hello", "=?base64?SGVsbG8?="),
        ("Hello", "=?base64?SGVs!!!bG8=?="),
        ("test-value", None),
        ("", None),
        (0, None),
        (False, None),
        ("Hello", "=?base64?SGVsbG9=?="),
        ("us-west1", "us-west2"),
        ("us-west1", "US-WEST1"),
        ("us-west1", ""),
        (" padded ", " padded "),
        ("café", "café"),
        ("a\x01", "a\x01"),
        (None, ""),
        (None, "null"),
        (None, "us-west1"),
        (True, "True"),
        (True, "1"),
        (False, "true"),
        (1, "true"),
        (42, "43"),
        (42, ""),
        (42, "42.5"),
        (42, "+42"),
        (42, "042"),
        (34, "042"),
        (42, "4.2e1"),
        (42, "0x2a"),
        (42, "4_2"),
        (42, "42."),
        (42, "42.0.0"),
        (42, "=?base64?2aTZog==?="),
        (42, "-42"),
        (2**53 + 1, "9007199254740992"),
        (2**53 + 1, "9007199254740993.5"),
        (42, "9" * 100_000),
        ("42", "42.0"),
    ],
)
def test_any_other_pair_is_a_mismatch(value: Any, sent: str | None) -> None:
    assert len(refusal(value, sent)) < 500


@pytest.mark.parametrize("value", [[], ["us-west1"], {}, {"a": 1}, 1.5, 1e-9])
@pytest.mark.parametrize("sent", [None, "1.5", "us-west1", ""])
def test_a_value_that_no_header_can_hold_is_a_mismatch_whatever_the_header(value: Any, sent: str | None) -> None:
    assert "only a string, an integer or a boolean" in refusal(value, sent)


@pytest.mark.parametrize("arguments", [{}, {"other": 1}, {"region": None}])
def test_without_an_argument_there_must_be_no_header(arguments: dict[str, Any]) -> None:
    check_param_headers(ONE, arguments, headers(other="x"))
    with pytest.raises(HeaderMismatch, match=r"no arguments\.region"):
        check_param_headers(ONE, arguments, headers(region="x"))


def test_a_nested_argument_is_read_at_its_place_and_nowhere_else() -> None:
    nested = {"properties": {"where": {"type": "object", "properties": {"region": REGION}}}}
    compiled = compile_param_headers(nested)
    check_param_headers(compiled, {"where": {"region": "a"}, "region": "b"}, headers(region="a"))
    no_object: list[Any] = [None, "region", ["region"], {}]
    elsewhere: list[dict[str, Any]] = [{}, {"region": "a"}, *({"where": value} for value in no_object)]
    for arguments in elsewhere:
        check_param_headers(compiled, arguments, headers())
        with pytest.raises(HeaderMismatch, match=r"arguments\.where\.region"):
            check_param_headers(compiled, arguments, headers(region="a"))


def test_each_marked_argument_is_compared() -> None:
    schema = {"properties": {"region": REGION, "zone": {"type": "integer", "x-mcp-header": "Zone"}}}
    compiled = compile_param_headers(schema)
    check_param_headers(compiled, {"region": "a", "zone": 1}, headers(region="a", zone="1"))
    with pytest.raises(HeaderMismatch, match="Mcp-Param-Zone"):
        check_param_headers(compiled, {"region": "a", "zone": 1}, headers(region="a", zone="2"))


def test_headers_that_no_property_asks_for_are_ignored() -> None:
    check_param_headers((), {"region": "a"}, headers(region="b"))
    check_param_headers(ONE, {"region": "a"}, headers(region="a", other="\x00"))


def test_a_message_never_repeats_the_argument_or_a_long_header() -> None:
    assert "secret" not in refusal("secret", "other")
    assert len(refusal("a", "x" * 100_000)) < 500


# --- hostile input -----------------------------------------------------------------------------------

mirrored = st.text() | st.integers(-(10**300), 10**300) | st.booleans() | st.integers(-(2**53), 2**53).map(float)


def spelled(value: str | float) -> str:
    """As the specification spells values ("Value Encoding")."""
    return encode_header_value(value if isinstance(value, str) else json.dumps(value))


@given(mirrored)
@example("=?base64?")
@example("=?base64??=")
@example("\t")
def test_every_value_that_is_mirrored_as_specified_passes(value: str | float) -> None:
    check(value, spelled(value))


@given(mirrored, mirrored)
@example(2**53, 2**53 + 1)
@example(float(2**53), 2**53 + 1)
def test_a_header_passes_only_for_the_value_it_stands_for(value: Any, other: Any) -> None:
    same_kind = isinstance(value, str) == isinstance(other, str) and isinstance(value, bool) == isinstance(other, bool)
    if same_kind and value == other:
        check(value, spelled(other))
    elif spelled(value) != spelled(other):
        refusal(value, spelled(other))


@given(st.text() | st.integers(-(2**53) + 1, 2**53 - 1) | st.booleans() | st.none())
def test_what_the_official_client_mirrors_passes(value: Any) -> None:
    schema = {"properties": {"region": REGION}}
    sent = mcp_param_headers(x_mcp_header_map(schema), {"region": value})
    check_param_headers(ONE, {"region": value}, Headers([(k.lower().encode(), v.encode()) for k, v in sent.items()]))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**308), 10**308) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["region", "a"]), inner, max_size=2),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(["region", "a"]), json_values), st.none() | st.binary(max_size=30))
@example({"region": float("inf")}, b"inf")
@example({"region": float("nan")}, b"nan")
def test_no_arguments_and_no_bytes_give_anything_but_a_pass_or_a_mismatch(
    arguments: dict[str, Any], sent: bytes | None
) -> None:
    try:
        check_param_headers(ONE, arguments, Headers([] if sent is None else [(b"mcp-param-region", sent)]))
    except HeaderMismatch as error:
        assert re.match("Header mismatch: Mcp-Param-Region ", error.message)  # noqa: PT017
