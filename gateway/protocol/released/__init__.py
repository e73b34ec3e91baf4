"""Pure: the released wire, MCP revision 2026-07-28."""
