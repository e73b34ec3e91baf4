"""Collects the annotations that the authors of MCP tools use, from the sources of other libraries."""
