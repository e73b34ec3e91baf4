"""Which wire a message chooses."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import InvalidParams, UnsupportedVersion
from gateway.protocol.jsonrpc import Message, Notification, Request, Response
from gateway.protocol.versions import (
    META_CLIENT_CAPABILITIES,
    META_PROTOCOL_VERSION,
    Wire,
    negotiate,
    wire_of,
)
from gateway.protocol.wire_choice import choose_wire

DRAFT = "DRAFT-2026-v1"


@pytest.mark.parametrize(
    ("params", "header"),
    [
        ({}, "2026-07-28"),
        ({"_meta": {META_PROTOCOL_VERSION: "2026-07-28"}}, None),
        ({"_meta": {META_PROTOCOL_VERSION: "2026-07-28"}}, "v999"),
        ({"_meta": {META_PROTOCOL_VERSION: "v999"}}, "v999"),
        ({"_meta": {META_PROTOCOL_VERSION: 5}}, "2025-11-25"),
        ({"_meta": {META_CLIENT_CAPABILITIES: {}}}, "2025-11-25"),
        ({"_meta": {META_CLIENT_CAPABILITIES: {}}}, DRAFT),
    ],
)
@pytest.mark.parametrize("method", ["tools/call", "initialize"])
def test_modern_metadata_or_header_lead_to_the_released_wire_whose_checks_decide(
    method: str, params: dict[str, Any], header: str | None
) -> None:
    assert choose_wire(Request(1, method, params), header) is Wire.RELEASED


@pytest.mark.parametrize("message", [Response(1, {}, None), Notification("notifications/initialized", {})])
def test_a_header_alone_leads_to_the_released_wire_too(message: Message) -> None:
    assert choose_wire(message, "2026-07-28") is Wire.RELEASED


@pytest.mark.parametrize("params", [{}, {"_meta": {}}, {"_meta": 5}])
def test_a_message_that_says_nothing_needs_a_session(params: dict[str, Any]) -> None:
    assert choose_wire(Request(1, "tools/call", params), None) is Wire.LEGACY
    assert choose_wire(Response("s1.x", {}, None), None) is Wire.LEGACY


@pytest.mark.parametrize("header", [None, "2025-11-25", DRAFT, "v999"])
def test_a_handshake_chooses_by_what_it_asks_for_whatever_the_header_says(header: str | None) -> None:
    request = Request(1, "initialize", {"protocolVersion": DRAFT, "capabilities": {}})
    assert choose_wire(request, header) is Wire.DRAFT


@pytest.mark.parametrize("requested", ["2024-10-07", "2026-07-28", "v999", ""])
def test_a_handshake_for_an_unknown_version_is_answered_with_one_that_is_served(requested: str) -> None:
    assert negotiate(requested) not in {"2026-07-28", requested}
    request = Request(1, "initialize", {"protocolVersion": requested})
    assert choose_wire(request, None) is wire_of(negotiate(requested))


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_a_handshake_version_is_answered_with_itself_and_may_be_named_in_the_header(version: str) -> None:
    assert negotiate(version) == version
    assert choose_wire(Request(1, "tools/list", {}), version) is Wire.LEGACY


@pytest.mark.parametrize("params", [{}, {"protocolVersion": None}, {"protocolVersion": 1}])
def test_the_error_of_a_handshake_without_a_version_names_one(params: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams, match=r"protocolVersion.*2025-11-25"):
        choose_wire(Request(1, "initialize", params), None)


@pytest.mark.parametrize(
    "message", [Request(1, "tools/list", {}), Notification("notifications/initialized", {}), Response(1, {}, None)]
)
def test_the_draft_is_chosen_by_its_header(message: Message) -> None:
    assert choose_wire(message, DRAFT) is Wire.DRAFT


@pytest.mark.parametrize("header", ["2024-10-07", "v999", "", "draft"])
@pytest.mark.parametrize("message", [Request(1, "tools/list", {}), Notification("notifications/initialized", {})])
def test_another_version_in_the_header_alone_is_unsupported(message: Message, header: str) -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        choose_wire(message, header)
    assert caught.value.data is not None
    assert caught.value.data["requested"] == header
    assert DRAFT not in caught.value.data["supported"]
    assert caught.value.data["supported"][0] == "2026-07-28"
