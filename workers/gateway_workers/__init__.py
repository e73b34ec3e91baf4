"""Workers, which run tasks in the background: claim a task, run one leg of it, and store the outcome.

They may import `gateway.process.services` and the layers below it, but nothing that serves requests: `gateway.web`,
`gateway.wires`, `gateway.process.app`, `gateway.process.replica`, `gateway.cli`. The command line starts them by module
name.
"""
