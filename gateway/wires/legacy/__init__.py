"""The wire of 2025-11-25 and older versions."""
