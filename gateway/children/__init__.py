"""Child processes: programs that the gateway runs, and a watcher that leaves none of them behind."""
