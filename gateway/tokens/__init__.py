"""Seals and opens for one process: request state, session ids, request ids, cursors and messages.

The formats are in `gateway.sealing`, which knows neither the time nor which keys are in use.
"""
