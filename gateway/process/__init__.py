"""Assembles a process from its parts, and runs it from start to end."""
