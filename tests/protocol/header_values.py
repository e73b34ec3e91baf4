"""How a client writes a text as a header of MCP."""

from __future__ import annotations

import base64


def encode_header_value(value: str) -> str:
    """Write a text as an `Mcp-Name` or `Mcp-Param-*` value, in the sentinel form where plain text would not survive.

    Raises:
        ValueError: the text holds a lone surrogate.
    """
    is_plain = all(" " <= char <= "~" or char == "\t" for char in value)
    if is_plain and value == value.strip(" \t") and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="
