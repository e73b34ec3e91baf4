"""Seals and opens everything for one process: request state, session ids, request ids, cursors and messages.

The formats are in `gateway.sealing`, which knows neither the time nor the keys in use.
"""
