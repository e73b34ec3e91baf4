"""The table of deviations of upstreams from the protocol: which are healed, which are refused, and why.

A deviation is healed if all readers would take it for the same. Where two readers could differ, it is refused: the
gateway must not judge another message than its client reads.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.protocol.upstream.deviations import Deviation

log = logging.getLogger(__name__)

HEALED: Final[Mapping[Deviation, str]] = {
    Deviation.MEDIA_TYPE: "JSON under `text/event-stream` is read: no line of an event stream begins with a brace",
    Deviation.BYTE_ORDER_MARK: "a byte order mark before the JSON is skipped, as browsers do",
    Deviation.BATCH: "an array with one message is that message, as in 2025-03-26",
    Deviation.ID_TYPE: 'an id `"7"` or `7.0` is 7: no other request can be meant',
    Deviation.NULL_MEMBER: "an optional member that is null counts as absent, such as `error` beside a result",
    Deviation.ERROR_SHAPE: "an error without a usable code has -32603; one without a message has an empty one",
    Deviation.ITEMS_MISSING: "missing content, messages, contents or lists are empty; other members become text",
    Deviation.ITEMS_SHAPE: "a text or an object in the place of content, messages or contents is its only item",
    Deviation.STRUCTURED_MISSING: "structured content that a tool promises is the JSON object in its only text",
    Deviation.UNSTRUCTURED: "a result without promised structured content counts as an error: clients refuse others",
    Deviation.BLOCK: "a block that clients cannot read becomes a text with all that it says",
    Deviation.SEVERAL_BLOCKS: "a message of a prompt with several blocks becomes several messages",
    Deviation.ROLE: "a role of a prompt's message that is neither `user` nor `assistant` becomes `user`",
    Deviation.MEDIA_DATA: "data is base64 without `data:` prefix, blanks or the alphabet of URLs",
    Deviation.MEDIA_KIND: "images and sounds without `mimeType` get the one that their first bytes show",
    Deviation.URI_MISSING: "contents of a resource without `uri` get the one that was asked for",
    Deviation.NAME_MISSING: "a linked or listed resource without `name` is called by its URI",
    Deviation.FLAG: '`isError` may be `"true"`, `"false"`, 1 or 0',
    Deviation.MEMBER_TYPE: "an optional member of a wrong type is left out, and so is a time that clients refuse",
    Deviation.CURSOR: "a list whose cursor repeats, never ends or is not a text keeps what was read",
    Deviation.SCHEMA: "an older draft is translated to 2020-12, where that is exact; `true` and `[]` become objects",
    Deviation.OUTPUT_SCHEMA: "an `outputSchema` that not all clients can read is left out, and the tool is served",
    Deviation.CAPABILITIES: "`[]` or true is the capability; a server that declares no list is asked for its tools",
}
"""Why each of them is healed."""

REFUSED: Final[Mapping[str, str]] = {
    "duplicate_names": "an object with a name twice: some readers take the first value, others the last",
    "not_json": "`NaN`, comments, trailing commas, raw control characters: some readers take them, others fail",
    "not_utf8": "bytes that are not UTF-8: readers replace them by different texts, or fail",
    "two_answers": "a result and an error in one message: readers choose one of them",
    "wrong_id": "an id of another request, or a result without one",
    "no_jsonrpc": "a message without `jsonrpc`: it may be any API's own envelope",
    "other_media_type": "an answer that is neither JSON nor an event stream, or with a status such as 202",
    "framing": "a body that is cut, or HTTP that proxies read differently",
    "result_kind": "an unknown `resultType`: it may want something of the client",
    "unknown_version": "an answer to `initialize` that names no version that the gateway can speak",
    "unclear_flag": "an `isError` that is neither true nor false: an error may be taken for success",
    "no_object_schema": "a tool whose `inputSchema` is not of an object is left out; the others are served",
    "invalid_schema": "a tool whose schema is not valid JSON Schema is left out; models would refuse all tools",
}
"""Why each of the others is refused."""


class Healing:
    """Counts the healed deviations of one upstream. The log has each kind once an hour."""

    def __init__(self, upstream: str, telemetry: UpstreamMetrics) -> None:
        self._upstream = upstream
        self._telemetry = telemetry

    def __call__(self, deviation: Deviation) -> None:
        """Count a deviation that was healed."""
        if self._telemetry.healed(self._upstream, deviation):
            extra = {"upstream": self._upstream, "kind": deviation.value, "detail": HEALED[deviation]}
            log.warning("an upstream deviates from the protocol, which is healed", extra=extra)
