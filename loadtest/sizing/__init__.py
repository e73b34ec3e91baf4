"""Measures what `gateway size` assumes of one replica."""
