"""Other MCP servers that this gateway serves as if their tools, prompts and resources were its own."""
