"""Pure: the parts of the 2025-11-25 wire and its older versions that the draft wire does not share."""
