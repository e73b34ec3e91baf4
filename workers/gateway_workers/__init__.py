"""Processes that run persistent calls in the background: claim a task, run one leg of it, store what came of it.

They may use `gateway.process.replica` and what is below it, never what serves requests: `gateway.web`,
`gateway.wires`, `gateway.process.app`, `gateway.cli.main`. The command line starts them by module name.
"""
