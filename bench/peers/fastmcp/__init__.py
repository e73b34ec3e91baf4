"""fastmcp and its extension for tasks."""
