"""Pure: the strict reading of messages from another server.

Such a message is read as `strict_json` reads a client's, so that everyone reads the same. Deviations that
everyone takes for the same are healed. Lone surrogates, which some servers write as escapes, are replaced first, since
their text is for people.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgspec

from gateway.errors import GatewayError, ParseError, TooManyValues
from gateway.protocol.error_codes import foreign_error
from gateway.protocol.jsonrpc import MAX_ID_CHARS, RequestId
from gateway.protocol.strict_json import MAX_DEPTH, PIECE_BYTES, decode, encode
from gateway.protocol.upstream.cleaning import UncleanName, clean_inside, drop_reserved, oversteps, short_text
from gateway.protocol.upstream.deviations import Deviation, Heal, uncounted

MAX_ERROR_MESSAGE_BYTES: Final = 16 * 1024
MAX_ERROR_DATA_BYTES: Final = 64 * 1024
"""A larger `data` of an error is left out."""
MAX_ERROR_CODE: Final = 2**53 - 1

MAX_VALUES: Final = 250_000
"""How many values a message may have, as `strict_json.decode` counts them: enough for 10,000 rows of twenty numbers. As
many names take up to 0.1 seconds to decode, in which no other thread runs."""

COMPLETE: Final = "complete"
INPUT_REQUIRED: Final = "input_required"

_ESCAPE: Final = rb"\\u[dD]"
_HIGH: Final = rb"[89abAB][0-9a-fA-F]{2}"
_LOW: Final = rb"[c-fC-F][0-9a-fA-F]{2}"
_LONE: Final = re.compile(
    rb"%b(?:%b(?!%b%b)|%b(?<!%b%b%b%b))" % (_ESCAPE, _HIGH, _ESCAPE, _LOW, _LOW, _ESCAPE, _HIGH, _ESCAPE, _LOW)
)
"""The escape of a surrogate alone, in a text without escaped backslashes. All of them begin alike, which is quick."""
_REPLACEMENT: Final = rb"\\ufffd"
_PAIR: Final = re.compile(_ESCAPE + _HIGH + _ESCAPE + _LOW)
_ESCAPE_BYTES: Final = len(rb"\ud800")
_NOT_IN_UTF8: Final = b"\xff"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_INTERNAL_ERROR: Final = -32603
_NUMBER: Final = re.compile(r"-?[0-9]{1,16}")


class Malformed(GatewayError):
    """A message is not valid. The text says why, without anything that the server wrote."""


class WrongId(Malformed):
    """A message answers another request, or none."""


class Result(msgspec.Struct, frozen=True):
    """A result without the reserved keys of its `_meta`; `overstepped` if it had any. An `InputRequiredResult` asks."""

    value: dict[str, Any]
    asks: bool
    overstepped: bool = False


class ErrorAnswer(msgspec.Struct, frozen=True):
    """A JSON-RPC error: bounded, and without characters that nobody sees in its texts.

    Attributes:
        code: any integer that a float holds exactly, but none of this gateway's own.
        data: None if there is none, it is too large, or the name of a member has characters that nobody sees.
        has_id: whether it names our request. Servers that could not read a request answer without its id.
    """

    code: int
    message: str
    data: Any
    has_id: bool


class Notice(msgspec.Struct, frozen=True):
    """A notification."""

    method: str
    params: dict[str, Any]


class ServerRequest(msgspec.Struct, frozen=True):
    """A request of the server, which only a server in a session may send.

    Attributes:
        request_id: None if it is not valid, so that nobody can answer.
    """

    method: str
    request_id: RequestId | None = None
    params: dict[str, Any] = {}


Message: TypeAlias = Result | ErrorAnswer | Notice | ServerRequest


def read_message(
    body: bytes,
    request_id: RequestId,
    max_depth: int = MAX_DEPTH,
    *,
    any_id: bool = False,
    heal: Heal = uncounted,
) -> Message:
    """Read a message on the answer to a request. The caller bounds its size.

    `max_depth` limits how deep arrays and objects nest. There may be `MAX_VALUES`. With `any_id`, an error may have
    another id than the request. Each deviation that is healed is counted by `heal`.

    Raises:
        WrongId: it is a response, but not to our request.
        Malformed: it is not a valid message. No input raises anything else.
    """
    message = _read_object(body, max_depth, heal)
    if "method" in message:
        return _read_other(message, heal)
    return _read_answer(message, request_id, len(body), any_id, heal)


def read_numbered(body: bytes, heal: Heal = uncounted) -> tuple[int | None, Message]:
    """Read a message that may answer any of our requests, and return the number of that request beside it.

    It is None without a valid one. `Malformed` is raised as `read_message` does it.
    """
    message = _read_object(body, MAX_DEPTH, heal)
    if "method" in message:
        return None, _read_other(message, heal)
    number = _number(message.get("id"))
    return number, _read_answer(message, 0 if number is None else number, len(body), True, heal)


def _read_object(body: bytes, max_depth: int, heal: Heal) -> dict[str, Any]:
    """Read a JSON-RPC message, and check what all of them have in common."""
    message = _decode(body, max_depth, heal)
    if type(message) is list and len(message) == 1:
        heal(Deviation.BATCH)
        message = message[0]
    if type(message) is not dict:
        raise Malformed("the message is not an object")
    if message.get("jsonrpc") != "2.0":
        raise Malformed('the message has no "jsonrpc": "2.0"')
    if "method" in message:
        return message
    if "result" in message and "error" in message:
        _drop_null_answer(message, heal)
    if ("result" in message) == ("error" in message):
        raise Malformed('the message needs "method", or one of "result" and "error"')
    return message


def _read_answer(
    message: dict[str, Any], request_id: RequestId, size: int, any_id: bool, heal: Heal
) -> Result | ErrorAnswer:
    if "error" in message:
        return _read_error(message, request_id, size, any_id, heal)
    if not _is_ours(message, request_id, heal):
        raise WrongId("the result has another id")
    return _read_result(message["result"], heal)


def _number(given: Any) -> int | None:
    """Return which of our numbers an id is, or stands for; see `_is_ours`."""
    if (type(given) is float and given.is_integer()) or (type(given) is str and _NUMBER.fullmatch(given)):
        given = int(given)
    return given if type(given) is int else None


def replace_surrogates(body: bytes) -> bytes:
    r"""Replace escapes of lone surrogates in a JSON text by that of U+FFFD."""
    if body.find(b"\\ud") < 0 and body.find(b"\\uD") < 0:
        return body
    if _NOT_IN_UTF8 in body:
        return body  # nobody can read it
    # An escaped backslash may stand before a "u". What stands for it is as long, so a long text of them does not grow.
    plain = body.replace(rb"\\", 2 * _NOT_IN_UTF8)
    replaced = b"".join([_LONE.sub(_REPLACEMENT, piece) for piece in _pieces(plain)])
    return replaced.replace(2 * _NOT_IN_UTF8, rb"\\")


def _pieces(plain: bytes) -> Iterator[bytes]:
    """Yield a text without escaped backslashes piece by piece: no escape is cut, and no pair of surrogates."""
    start = 0
    while start < len(plain):
        end = start + PIECE_BYTES
        escape = plain.rfind(b"\\", start, end)
        if end < len(plain) and escape >= end - 2 * _ESCAPE_BYTES:
            end = escape - _ESCAPE_BYTES if _PAIR.match(plain, escape - _ESCAPE_BYTES) else escape
        yield plain[start:end]
        start = end


def _decode(body: bytes, max_depth: int, heal: Heal) -> Any:
    if body.startswith(_BYTE_ORDER_MARK):
        heal(Deviation.BYTE_ORDER_MARK)
        body = body[len(_BYTE_ORDER_MARK) :]
    try:
        return decode(replace_surrogates(body), max_depth, MAX_VALUES, _pause)
    except TooManyValues:
        raise Malformed(f"the message has more than {MAX_VALUES} values") from None
    except ParseError as error:
        raise Malformed(error.message[:1].lower() + error.message[1:]) from None


def _pause() -> None:
    """Do nothing: whenever a function begins that is not compiled, another thread may run."""


def _drop_null_answer(message: dict[str, Any], heal: Heal) -> None:
    """Remove a result or an error that is null beside the other one, as JSON-RPC 1.0 has it."""
    for member in ("error", "result"):
        if message[member] is None:
            heal(Deviation.NULL_MEMBER)
            del message[member]
            return


def _is_ours(message: dict[str, Any], request_id: RequestId, heal: Heal) -> bool:
    """Return whether an id is the one sent, or the same number as a text or with a fraction of zero.

    Some servers change the type. Each request has a connection of its own, so no other response can be meant. `True`
    is not an id, although it equals 1 in Python.
    """
    given = message.get("id")
    if type(given) is type(request_id) and given == request_id:
        return True
    if type(given) is str:
        is_ours = given == str(request_id)
    else:
        is_ours = type(given) in {int, float} and bool(given == request_id)
    if is_ours:
        heal(Deviation.ID_TYPE)
    return is_ours


def _read_result(result: Any, heal: Heal) -> Result:
    if type(result) is not dict:
        raise Malformed('"result" is not an object')
    kind = result.get("resultType", COMPLETE)
    if kind is None:
        heal(Deviation.NULL_MEMBER)
        kind = result["resultType"] = COMPLETE
    if kind not in (COMPLETE, INPUT_REQUIRED):
        raise Malformed("the result has an unknown resultType")
    overstepped = oversteps(result)
    if "_meta" in result:
        drop_reserved(result)
    return Result(result, kind == INPUT_REQUIRED, overstepped)


def _read_error(message: dict[str, Any], request_id: RequestId, size: int, any_id: bool, heal: Heal) -> ErrorAnswer:
    has_id = _is_ours(message, request_id, heal)
    if not (has_id or any_id or message.get("id") is None):
        raise WrongId("the error has another id")
    error = message["error"]
    if type(error) is str:
        error = {"message": error}
    if type(error) is not dict:
        raise Malformed('"error" is not an object')
    code, text, data = error.get("code"), error.get("message"), error.get("data")
    if type(code) is not int or abs(code) > MAX_ERROR_CODE or type(text) is not str:
        heal(Deviation.ERROR_SHAPE)
        code, text = _error_code(code), text if type(text) is str else ""
    if size > MAX_ERROR_DATA_BYTES and len(encode(data)) > MAX_ERROR_DATA_BYTES:
        data = None
    code, data = foreign_error(code, _clean_data(data))
    return ErrorAnswer(code, short_text(text, MAX_ERROR_MESSAGE_BYTES), data, has_id)


def _clean_data(data: Any) -> Any:
    """Return `data` of an error with clean texts, or None if the name of a member is not clean."""
    try:
        return clean_inside(data)
    except UncleanName:
        return None


def _error_code(code: Any) -> int:
    """Return the number that a code of another type stands for, else that of an internal error."""
    number = _number(code)
    return number if number is not None and abs(number) <= MAX_ERROR_CODE else _INTERNAL_ERROR


def _read_other(message: dict[str, Any], heal: Heal) -> Notice | ServerRequest:
    method, params = message["method"], message.get("params", {})
    if params is None:
        heal(Deviation.NULL_MEMBER)
        params = {}
    if type(method) is not str or len(method) > MAX_ID_CHARS or type(params) is not dict:
        raise Malformed('the message needs a string "method" and, if any, an object "params"')
    if "result" in message or "error" in message:
        raise Malformed('the message has "method" and "result" or "error"')
    return ServerRequest(method, usable_id(message["id"]), params) if "id" in message else Notice(method, params)


def usable_id(given: Any) -> RequestId | None:
    """Return the id of a request if it is one that can be answered, else None."""
    is_usable = (type(given) is int and abs(given) <= MAX_ERROR_CODE) or (
        type(given) is str and len(given) <= MAX_ID_CHARS
    )
    return given if is_usable else None
