"""An HTTP/1.1 server for any ASGI application: limits on what clients may do, and an orderly drain.

It knows neither MCP nor the rest of the gateway. Whoever runs it passes `Limits` and `Callbacks`.
"""
