"""An HTTP/1.1 server for any ASGI application: limits on what clients may do, and an orderly drain.

It depends neither on MCP nor on the rest of the gateway. The code that runs it passes `Limits` and `Callbacks`.
"""
