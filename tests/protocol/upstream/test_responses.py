"""Messages of another server are read strictly, and none of them does more than fail."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.protocol.jsonrpc import MAX_ID_CHARS
from gateway.protocol.strict_json import EXTRA_VALUES
from gateway.protocol.upstream import responses
from gateway.protocol.upstream.cleaning import MAX_META_NAMES
from gateway.protocol.upstream.responses import (
    MAX_ERROR_DATA_BYTES,
    MAX_ERROR_MESSAGE_BYTES,
    MAX_VALUES,
    ErrorAnswer,
    Malformed,
    Notice,
    Result,
    ServerRequest,
    WrongId,
    read_message,
    replace_surrogates,
)
from tests.cpu_time import least_seconds

OURS = 7


def message(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": OURS, **members}).encode()


def result(**members: Any) -> Result:
    read = read_message(message(result={"resultType": "complete", **members}), OURS)
    assert isinstance(read, Result)
    return read


def error(**members: Any) -> ErrorAnswer:
    read = read_message(message(error={"code": 1, "message": "no", **members}), OURS)
    assert isinstance(read, ErrorAnswer)
    return read


def test_a_result_comes_as_it_is() -> None:
    value = {"content": [{"type": "hologram", "depth": 3.5}], "structuredContent": {"a": None}, "x-more": [1]}

    assert result(**value).value == {"resultType": "complete", **value}


def test_a_result_without_a_type_is_complete() -> None:
    assert read_message(message(result={"a": 1}), OURS) == Result({"a": 1}, asks=False)


def test_a_result_that_asks_is_marked() -> None:
    assert result(resultType="input_required", requestState="s").asks


def test_reserved_names_of_meta_are_dropped_and_others_stay_with_the_name_of_the_server() -> None:
    named = {"io.modelcontextprotocol/serverInfo": {"name": "x"}}
    meta = {
        **named,
        "dev.mcp/own": 1,
        "modelcontextprotocol.io/task": 1,
        "traceparent": "00-1",
        "com.example.mcp/kept": 2,
        "plain": 3,
    }

    answer = result(_meta=meta)
    assert answer.value["_meta"] == {**named, "com.example.mcp/kept": 2, "plain": 3}
    assert answer.overstepped
    assert not result(_meta=named).overstepped


def test_a_meta_with_too_many_names_is_dropped_and_counted() -> None:
    answer = result(_meta={f"a{number}": number for number in range(MAX_META_NAMES + 1)})
    assert "_meta" not in answer.value
    assert answer.overstepped


@pytest.mark.parametrize(("value", "most"), [(b"1", MAX_VALUES - 40), (b"1e300", MAX_VALUES // 5 - 40)])
def test_a_message_has_a_limited_number_of_values(value: bytes, most: int) -> None:
    def message(count: int) -> bytes:
        return b'{"jsonrpc":"2.0","id":1,"result":{"a":[' + b",".join([value] * count) + b"]}}"

    read = read_message(message(most), 1)
    assert isinstance(read, Result)
    assert len(read.value["a"]) == most
    with pytest.raises(Malformed, match="values"):
        read_message(message(most + 80), 1)


@pytest.mark.parametrize("meta", [{"io.modelcontextprotocol/a": 1}, {}, [], 7, None])
def test_a_meta_without_anything_to_pass_on_is_removed(meta: Any) -> None:
    assert "_meta" not in result(_meta=meta).value


@pytest.mark.parametrize("given", [8, "8", "07", "7.0", " 7", 7.5, 1e300, True, None, [], [7], {}])
def test_a_result_with_another_id_is_refused(given: Any) -> None:
    with pytest.raises(WrongId):
        read_message(message(id=given, result={}), OURS)


@pytest.mark.parametrize("given", [7, "7", 7.0])
def test_a_number_may_come_back_as_a_text_or_with_a_fraction_of_zero(given: Any) -> None:
    assert read_message(message(id=given, result={}), 7) == read_message(message(id=7, result={}), 7)
    refused = {"code": -32700, "message": "not read"}
    assert read_message(message(id=given, error=refused), 7) == ErrorAnswer(-32700, "not read", None, has_id=True)


def test_a_text_does_not_come_back_as_a_number() -> None:
    with pytest.raises(WrongId):
        read_message(message(id=7, result={}), "7")


def test_a_result_without_an_id_is_refused() -> None:
    with pytest.raises(WrongId):
        read_message(b'{"jsonrpc":"2.0","result":{}}', OURS)


def test_an_id_is_compared_with_its_type() -> None:
    with pytest.raises(WrongId):
        read_message(message(id=True, result={}), 1)


def test_an_error_may_lack_an_id_but_not_have_another_one() -> None:
    refused = {"code": -32700, "message": "not read"}

    assert read_message(message(id=None, error=refused), OURS) == ErrorAnswer(-32700, "not read", None, has_id=False)
    with pytest.raises(WrongId):
        read_message(message(id="server-error", error=refused), OURS)


def test_the_message_of_an_error_is_bounded_and_has_no_control_characters() -> None:
    assert error(message="a\x00b\x1b[31m\x7f\x84c\td\ne").message == "ab[31mc\td\ne"
    assert len(error(message="é" * MAX_ERROR_MESSAGE_BYTES).message.encode()) == MAX_ERROR_MESSAGE_BYTES


def test_the_data_of_an_error_is_kept_unless_it_is_too_large() -> None:
    assert error(data={"a": [1]}).data == {"a": [1]}
    assert error(data="x" * MAX_ERROR_DATA_BYTES).data is None


def test_the_data_of_an_error_has_no_unseen_characters() -> None:
    assert error(data=["a\x1b[31mb", {"c": "d\u200be\u202ef\U000e0041"}, 1]).data == ["a[31mb", {"c": "def"}, 1]
    assert error(data={"a\u200b": 1}).data is None


@pytest.mark.parametrize(
    "members",
    [
        {"error": {"code": 1, "message": "both"}, "result": {}},
        {},
        {"result": 7},
        {"result": None},
        {"result": {"resultType": "task"}},
        {"result": {"resultType": ["complete"]}},
        {"jsonrpc": "1.0", "result": {}},
        {"method": 7},
        {"method": "m", "params": []},
        {"method": "m", "result": {}},
    ],
)
def test_a_message_of_another_shape_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        read_message(message(**members), OURS)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"<html>",
        b'{"jsonrpc":"2.0","id":7,"result":{"a":1,"a":2}}',
        b'{"jsonrpc":"2.0","id":7,"result":{"a":1,"\\u0061":2}}',
        b'{"jsonrpc":"2.0","id":8,"id":7,"result":{}}',
        b'{"jsonrpc":"2.0","id":7,"result":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":7,"result":{"a":"\xed\xa0\x80"}}',
        b'{"jsonrpc":"2.0","id":7,"result":{"a":' + b"[" * 100 + b"]" * 100 + b"}}",
    ],
)
def test_json_that_could_be_read_in_two_ways_is_refused(body: bytes) -> None:
    with pytest.raises(Malformed):
        read_message(body, OURS)


def test_a_refusal_quotes_nothing_of_the_server() -> None:
    with pytest.raises(Malformed) as refused:
        read_message(message(result={}, error={"code": 1, "message": "their words"}), OURS)

    assert "their words" not in str(refused.value)


def test_notifications_and_requests_are_told_apart() -> None:
    notice = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}'

    assert read_message(notice, OURS) == Notice("notifications/message", {"level": "info"})
    assert read_message(message(method="elicitation/create"), OURS) == ServerRequest("elicitation/create", OURS)
    for usable in ("q", -1, 0, 2**53 - 1):
        assert read_message(message(id=usable, method="ping"), OURS) == ServerRequest("ping", usable)
    for unusable in (None, True, 1.5, [1], "x" * (MAX_ID_CHARS + 1), 2**60):
        assert read_message(message(id=unusable, method="ping"), OURS) == ServerRequest("ping", None)


TEXTS = st.text(st.characters(codec=None) | st.sampled_from('\ud800\udfff\ud83d\ude00\\u"d8'), max_size=20)


@given(text=TEXTS)
@example(text="\ud83d\ude00")
@example(text="\\ud800")
@example(text="\\\ud800")
@example(text="\ud800\ud83d\ude00\udc00")
def test_lone_surrogates_are_replaced_and_nothing_else_changes(text: str) -> None:
    escaped = json.dumps(text).encode()
    joined = json.loads(escaped)  # Python, too, reads a pair of escapes as one character
    expected = "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in joined)

    assert msgspec.json.decode(replace_surrogates(escaped)) == expected


@given(text=TEXTS.map(lambda text: 3 * text), size=st.integers(20, 40))
def test_surrogates_are_replaced_alike_however_a_text_is_cut(text: str, size: int) -> None:
    escaped = json.dumps(text).encode()
    whole = replace_surrogates(escaped)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(responses, "PIECE_BYTES", size)
        assert replace_surrogates(escaped) == whole
        assert b"".join(responses._pieces(escaped)) == escaped


def test_a_text_of_backslashes_with_one_surrogate_takes_no_longer_than_one_of_surrogates() -> None:
    size = 3 * 2**20
    backslashes, surrogates = rb"\ud800" + rb"\\" * (size // 2), rb"\ud800" * (size // 6)
    assert least_seconds(replace_surrogates, backslashes) < least_seconds(replace_surrogates, surrogates)


@given(
    body=st.binary(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["jsonrpc", "id", "result", "error", "method", "params", "_meta"]) | TEXTS, inner
            )
        ),
        max_leaves=12,
    ).map(lambda value: json.dumps(value).encode())
)
def test_no_input_does_more_than_fail(body: bytes) -> None:
    try:
        read = read_message(body, OURS)
    except Malformed:
        return
    assert isinstance(read, Result | ErrorAnswer | Notice | ServerRequest)


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=10,
    )
)
def test_any_value_of_a_result_survives_except_for_surrogates(value: Any) -> None:
    escaped = json.dumps(value).encode()

    assert result(structuredContent=value).value["structuredContent"] == msgspec.json.decode(
        replace_surrogates(escaped)
    )


def big(inner: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"result":{"content":[' + inner + b"]}}"


@pytest.mark.parametrize(
    "body",
    [
        big(b'"' + rb"\n" * 500_000 + rb"\ud83d\ude00" + b'"'),
        big(b'"' + rb"\ud800" * 160_000 + b'"'),
        big(b'"' + rb"\\" * 250_000 + rb"\ud800" + b'"'),
        big(b"[]," * 320_000 + b"[]"),
        big(b"{}," * 320_000 + b"{}"),
    ],
    ids=["escapes", "surrogates", "backslashes", "arrays", "objects"],
)
def test_no_message_takes_much_longer_to_read_than_a_plain_one(body: bytes) -> None:
    def seconds(message: bytes) -> float:
        began = time.process_time()
        with contextlib.suppress(Malformed):
            read_message(message, 1)
        return time.process_time() - began

    plain = big(b'{"type":"text","text":"some text of a result"},' * 20_000 + b"{}")
    assert seconds(body) < 12 * seconds(plain)


def test_brackets_in_texts_are_not_counted() -> None:
    most = MAX_VALUES // (1 + EXTRA_VALUES)
    message = read_message(big(b'"' + b"[{" * most + rb" \"[" + b'"'), 1)
    assert isinstance(message, Result)
    with pytest.raises(Malformed, match="values"):
        read_message(big(b"[]," * most + b"1"), 1)
