"""Pure: the wire of 2025-11-25 and 2025-06-18, as far as the draft wire does not share it."""
