"""Processes that run persistent calls in the background: claim a task, run one leg of it, store what came of it.

They may use `gateway.process.services` and what is below it, never what serves requests: `gateway.web`,
`gateway.wires`, `gateway.process.app`, `gateway.process.replica`, `gateway.cli`. The command line starts them by
module name.
"""
