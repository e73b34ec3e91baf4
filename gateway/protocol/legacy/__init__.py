"""Pure: the parts of the 2025-11-25 and 2025-06-18 wire that the draft wire does not share."""
