"""The official `mcp` SDK."""
