"""Pure: what a stored task is, on any wire and in any store."""
