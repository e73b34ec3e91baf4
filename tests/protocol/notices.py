"""Notifications as tests make and read them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from mcp_types.methods import parse_server_notification

from gateway.protocol.versions import RELEASED

ids = st.text(max_size=20) | st.integers(-(2**63), 2**63 - 1)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def read(encoded: bytes) -> tuple[str, dict[str, Any]]:
    """Return method and params, after the published types took the notification for a good one."""
    assert b"\n" not in encoded
    assert b"\r" not in encoded
    message = json.loads(encoded)
    assert message.pop("jsonrpc") == "2.0"
    assert set(message) == {"method", "params"}
    parse_server_notification(message["method"], RELEASED, message["params"])
    return message["method"], message["params"]
