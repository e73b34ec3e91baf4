"""Calls that wait in an upstream for an answer of their user. One process keeps each of them open: its holder."""
