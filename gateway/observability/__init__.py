"""What operators see of a process: logs, metrics, the audit log and traces."""
