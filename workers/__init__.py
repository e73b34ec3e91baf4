"""Processes that run persistent calls in the background.

They may use `gateway.bootstrap` and what is below it, never what serves requests: `gateway.web`, `gateway.dispatch`,
`gateway.app`, `gateway.dev`, `gateway.cli`. The command line starts them by module name.
"""
