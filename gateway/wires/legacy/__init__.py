"""The wires of 2025-11-25 and before."""
