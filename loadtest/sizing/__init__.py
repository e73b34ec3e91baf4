"""Measures what `gateway size` assumes of one replica, and compares its simulation with real ones."""
