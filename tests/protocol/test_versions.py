"""Which wire a message chooses."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import InvalidParams, UnsupportedVersion
from gateway.protocol.jsonrpc import Notification, Request
from gateway.protocol.versions import META_CLIENT_CAPABILITIES, META_PROTOCOL_VERSION, Wire, choose_wire


@pytest.mark.parametrize(
    ("params", "header"),
    [
        ({}, "2026-07-28"),
        ({"_meta": {META_PROTOCOL_VERSION: "2026-07-28"}}, None),
        ({"_meta": {META_PROTOCOL_VERSION: "2026-07-28"}}, "v999"),
        ({"_meta": {META_PROTOCOL_VERSION: "v999"}}, "v999"),
        ({"_meta": {META_PROTOCOL_VERSION: 5}}, "2025-11-25"),
        ({"_meta": {META_CLIENT_CAPABILITIES: {}}}, "2025-11-25"),
    ],
)
@pytest.mark.parametrize("method", ["tools/call", "initialize"])
def test_modern_metadata_or_header_lead_to_the_released_wire_whose_checks_decide(
    method: str, params: dict[str, Any], header: str | None
) -> None:
    assert choose_wire(Request(1, method, params), header) is Wire.RELEASED


@pytest.mark.parametrize("params", [{}, {"_meta": {}}, {"_meta": 5}])
def test_a_message_that_names_no_version_is_taken_for_the_released_wire(params: dict[str, Any]) -> None:
    assert choose_wire(Request(1, "tools/call", params), None) is Wire.RELEASED


@pytest.mark.parametrize("header", [None, "2025-11-25", "DRAFT-2026-v1"])
@pytest.mark.parametrize("requested", ["2025-11-25", "2026-07-28", "DRAFT-2026-v1", ""])
def test_a_handshake_is_refused_with_the_versions_served_here(header: str | None, requested: str) -> None:
    request = Request(1, "initialize", {"protocolVersion": requested, "capabilities": {}, "_meta": {}})
    with pytest.raises(UnsupportedVersion) as caught:
        choose_wire(request, header)
    assert caught.value.data == {"supported": ["2026-07-28"], "requested": requested}


@pytest.mark.parametrize("params", [{}, {"protocolVersion": None}, {"protocolVersion": 1}])
def test_a_handshake_without_a_version_is_told_which_one_to_use(params: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams, match=r"protocolVersion.*2026-07-28"):
        choose_wire(Request(1, "initialize", params), None)


@pytest.mark.parametrize("header", ["2025-11-25", "2025-06-18", "DRAFT-2026-v1", "v999", ""])
@pytest.mark.parametrize("message", [Request(1, "tools/list", {}), Notification("notifications/initialized", {})])
def test_another_version_in_the_header_alone_is_unsupported(message: Request | Notification, header: str) -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        choose_wire(message, header)
    assert caught.value.data == {"supported": ["2026-07-28"], "requested": header}
