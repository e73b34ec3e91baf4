"""Limits on what one caller may use of a replica. Each replica counts on its own; nothing is shared."""
