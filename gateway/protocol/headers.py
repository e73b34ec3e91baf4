"""Pure: the rules for request headers (2026-07-28 "Streamable HTTP", section "Request Metadata").

It works on the raw headers of ASGI: names in lower case, values as bytes. We must act on the same values that a proxy
routed by, so a header that decides something may occur only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import pybase64

from gateway.errors import HttpRefusal, InvalidRequest

RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]

PROTOCOL_VERSION: Final = b"mcp-protocol-version"
METHOD: Final = b"mcp-method"
NAME: Final = b"mcp-name"
SESSION_ID: Final = b"mcp-session-id"

_BLANKS: Final = b" \t"
_USUAL_TYPE: Final = b"application/json"
_SINGLE: Final = frozenset({b"host", b"authorization"})
_SINGLE_PREFIX: Final = b"mcp-"

_SENTINEL_START: Final = "=?base64?"
_SENTINEL_END: Final = "?="

_UNSUPPORTED_MEDIA_TYPE: Final = 415
_NOT_IMPLEMENTED: Final = 501


class Headers:
    """The headers of one request, by lower-case name.

    `last` is the last value of each header, if the caller has it already.

    Raises:
        InvalidRequest: an `Mcp-*` header, `Host` or `Authorization` occurs more than once (HTTP 400).
    """

    __slots__ = ("_raw", "_values")

    def __init__(self, raw: RawHeaders, last: dict[bytes, bytes] | None = None) -> None:
        self._raw = raw
        self._values = dict(raw) if last is None else last
        if len(self._values) != len(raw):
            self._values = _join_repeated(raw)

    def get(self, name: bytes) -> str | None:
        """Return the value of `name` (lower case) without surrounding blanks, or None.

        Bytes beyond ASCII are decoded as Latin-1. Headers that may be repeated are joined with `", "`
        (RFC 9110 section 5.3).
        """
        value = self._values.get(name)
        return None if value is None else value.strip(_BLANKS).decode("latin-1")

    def single(self, name: bytes) -> str | None:
        """Return the value of `name` (lower case) if it can be passed on as it is, or None if there is none.

        Raises:
            InvalidRequest: it occurs more than once, so a proxy's value would be mixed with the client's. Or it has
                other characters than visible ASCII, blanks and tabs.
        """
        value = self.get(name)
        if value is None:
            return None
        if sum(each == name for each, _ in self._raw) > 1:
            raise InvalidRequest(f"Header {name.decode('latin-1')} must not be repeated")
        if not _is_header_text(value):
            raise InvalidRequest(f"Header {name.decode('latin-1')} must have only visible ASCII characters")
        return value

    def get_bytes(self, name: bytes) -> bytes | None:
        """Return the value of `name` (lower case) as received, or None. Use it for quick comparisons."""
        return self._values.get(name)


def check_content(headers: Headers) -> None:
    """Refuse a body that is not plain JSON in UTF-8, before it is read.

    The `HttpRefusal` is 415 for an unsupported `Content-Type` or `Content-Encoding`, and 501 for a `Transfer-Encoding`
    other than `chunked` (RFC 9112 section 6.1).
    """
    if headers.get_bytes(b"content-type") != _USUAL_TYPE and not _is_json(headers.get(b"content-type") or ""):
        raise HttpRefusal(
            _UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json in UTF-8", [("accept", "application/json")]
        )
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.lower() not in {"", "identity"}:
        raise HttpRefusal(
            _UNSUPPORTED_MEDIA_TYPE, "Content-Encoding is not supported", [("accept-encoding", "identity")]
        )
    coding = headers.get(b"transfer-encoding")
    if coding is not None and coding.lower() != "chunked":
        raise HttpRefusal(_NOT_IMPLEMENTED, "Transfer-Encoding must be chunked", [("connection", "close")])


def decode_header_value(value: str) -> str | None:
    """Decode an `Mcp-Name` or `Mcp-Param-*` value, plain or in the Base64 sentinel form ("Value Encoding").

    A malformed value gives None: it has characters that a header cannot have, or a sentinel around something that is
    not canonical Base64 of UTF-8. A start of a sentinel without its end is plain text.
    """
    if not _is_header_text(value):
        return None
    if not _is_sentinel(value):
        return value
    payload = value[len(_SENTINEL_START) : -len(_SENTINEL_END)]
    try:
        content = pybase64.b64decode(payload, validate=True)
        if pybase64.b64encode(content).decode("ascii") != payload:
            return None
        return content.decode("utf-8")
    except ValueError:
        return None


def _join_repeated(raw: RawHeaders) -> dict[bytes, bytes]:
    values: dict[bytes, bytes] = {}
    for name, value in raw:
        if name not in values:
            values[name] = value
        elif name in _SINGLE or name.startswith(_SINGLE_PREFIX):
            raise InvalidRequest(f"Header {name.decode('latin-1')} must not be repeated")
        else:
            values[name] += b", " + value
    return values


def _is_json(content_type: str) -> bool:
    media_type, *parameters = content_type.split(";")
    if media_type.strip().lower() != "application/json":
        return False
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() != "utf-8":
            return False
    return True


def _is_header_text(value: str) -> bool:
    """Return whether a value has only visible ASCII, spaces and tabs (RFC 9110 section 5.5, restricted by MCP)."""
    return value.isascii() and (value.isprintable() or value.replace("\t", " ").isprintable())


def _is_sentinel(value: str) -> bool:
    return (
        value.startswith(_SENTINEL_START)
        and value.endswith(_SENTINEL_END)
        and len(value) >= len(_SENTINEL_START) + len(_SENTINEL_END)
    )
