"""Pure: reads requests of the released wire, and checks them in the order that clients rely on.

Each request stands alone: `_meta` has its version and the client's capabilities, and headers repeat the values that
proxies route by (2026-07-28 "basic", "Per-request protocol fields"; "Streamable HTTP", "Server Validation").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.errors import InvalidParams, UnsupportedVersion
from gateway.protocol import headers as header
from gateway.protocol.capabilities import check_capabilities
from gateway.protocol.fields import read_flag, read_names, require_object
from gateway.protocol.headers import Headers
from gateway.protocol.jsonrpc import Request
from gateway.protocol.method_table import METHODS, NAMED_METHODS
from gateway.protocol.requests import (
    MAX_TASK_ID_CHARS,
    McpRequest,
    check_name,
    mismatch,
    read_progress_token,
)
from gateway.protocol.versions import (
    LOG_LEVELS,
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_PROTOCOL_VERSION,
    RELEASED,
    SUPPORTED_VERSIONS,
)

MAX_LISTEN_URIS: Final = 100
"""How many resources one `subscriptions/listen` may name. Each is judged immediately, and after changes of lists."""

MAX_URI_CHARS: Final = 2048
"""The longest URI in a `subscriptions/listen`. It stays in memory while the stream is open."""

MAX_LISTEN_URI_CHARS: Final = 64 * 2**10
"""How many characters the URIs in one `subscriptions/listen` may have together."""

MAX_LISTEN_TASKS: Final = 1000
"""How many tasks one `subscriptions/listen` may name. Each is read immediately, and again every few seconds."""

_RELEASED_BYTES: Final = RELEASED.encode()
_METHOD_BYTES: Final = {name: name.encode() for name, method in METHODS.items() if RELEASED in method.versions}
_ANOTHER: Final = object()
_META: Final = "params._meta"
_FILTER: Final = "params.notifications"
_RESOURCES: Final = "resourceSubscriptions"
_LOG_LEVEL_SET: Final = frozenset(LOG_LEVELS)


class ListenFilter(msgspec.Struct, frozen=True):
    """The changes that a `subscriptions/listen` requests, or those that the server reports.

    `resources` are changes of the lists of resources and templates. Each URI and task occurs once, in the client's
    order.
    """

    tools: bool = False
    prompts: bool = False
    resources: bool = False
    uris: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()


def read_request(request: Request, headers: Headers) -> McpRequest:
    """Check `_meta` and the headers of a request.

    The order of the checks decides which of several mistakes is reported. It is: the required fields of `_meta`, the
    version header against `_meta`, the version itself, `Mcp-Method`, `Mcp-Name`, and the other fields of `_meta`. So a
    contradiction is reported before an unknown version.

    Raises:
        InvalidParams: a field of `_meta` is missing or has the wrong type; the message names it.
        HeaderMismatch: a header is missing, malformed or differs from the body.
        UnsupportedVersion: the header and `_meta` agree on a version that is not served.
    """
    params = request.params
    meta, version = _read_required_meta(params)
    if version != RELEASED or headers.get_bytes(header.PROTOCOL_VERSION) != _RELEASED_BYTES:
        _check_version(version, headers.get(header.PROTOCOL_VERSION))
    method = request.method
    if headers.get_bytes(header.METHOD) != _METHOD_BYTES.get(method, _ANOTHER) and headers.get(header.METHOD) != method:
        raise mismatch("Mcp-Method", headers.get(header.METHOD), method)
    name_parameter = NAMED_METHODS.get(method)
    if name_parameter is not None:
        check_name(headers.get(header.NAME), params.get(name_parameter))
    capabilities = check_capabilities(meta[META_CLIENT_CAPABILITIES], f'{_META}["{META_CLIENT_CAPABILITIES}"]')
    _check_client_info(meta)
    return McpRequest(
        request,
        meta=meta,
        capabilities=capabilities,
        log_level=_read_log_level(meta),
        progress_token=read_progress_token(meta),
    )


def read_listen(params: Mapping[str, Any]) -> ListenFilter:
    """Read the filter of `subscriptions/listen`. Unknown fields are ignored.

    Raises:
        InvalidParams: a field is missing or of the wrong type, or has too many or too long entries.
    """
    asked = require_object(params, "notifications")
    uris = read_names(asked, _RESOURCES, _FILTER, max_entries=MAX_LISTEN_URIS, max_chars=MAX_URI_CHARS)
    if sum(map(len, uris)) > MAX_LISTEN_URI_CHARS:
        raise InvalidParams(f"{_FILTER}.{_RESOURCES} must not have more than {MAX_LISTEN_URI_CHARS} characters in all")
    return ListenFilter(
        read_flag(asked, "toolsListChanged", _FILTER),
        read_flag(asked, "promptsListChanged", _FILTER),
        read_flag(asked, "resourcesListChanged", _FILTER),
        uris,
        read_names(asked, "taskIds", _FILTER, max_entries=MAX_LISTEN_TASKS, max_chars=MAX_TASK_ID_CHARS),
    )


def _read_required_meta(params: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return `_meta` and its version, after checking that the capabilities are an object."""
    meta = params.get("_meta")
    if type(meta) is not dict:
        problem = "must be an object" if "_meta" in params else "is missing"
        raise InvalidParams(f"{_META} {problem}: protocol version {RELEASED} requires it on each request")
    version = meta.get(META_PROTOCOL_VERSION)
    if type(version) is not str:
        raise _wrong_meta(meta, META_PROTOCOL_VERSION, "a string")
    if type(meta.get(META_CLIENT_CAPABILITIES)) is not dict:
        raise _wrong_meta(meta, META_CLIENT_CAPABILITIES, "an object")
    return meta, version


def _check_version(version: str, sent: str | None) -> None:
    if sent != version:
        raise mismatch("MCP-Protocol-Version", sent, version)
    if version != RELEASED:
        raise UnsupportedVersion(SUPPORTED_VERSIONS, version)


def _check_client_info(meta: Mapping[str, Any]) -> None:
    info = meta.get(META_CLIENT_INFO)
    if type(info) is dict:
        if type(info.get("name")) is not str or type(info.get("version")) is not str:
            raise _wrong_meta(meta, META_CLIENT_INFO, 'an object with strings "name" and "version"')
    elif info is not None:
        raise _wrong_meta(meta, META_CLIENT_INFO, "an object")


def _read_log_level(meta: Mapping[str, Any]) -> str | None:
    if META_LOG_LEVEL not in meta or meta[META_LOG_LEVEL] is None:
        return None
    level = meta[META_LOG_LEVEL]
    if type(level) is not str or level not in _LOG_LEVEL_SET:
        raise _wrong_meta(meta, META_LOG_LEVEL, f"one of {', '.join(LOG_LEVELS)}")
    return level


def _wrong_meta(meta: Mapping[str, Any], key: str, expected: str) -> InvalidParams:
    problem = f"must be {expected}" if key in meta else "is missing"
    return InvalidParams(f'{_META}["{key}"] {problem}')
