"""Logs, metrics, the audit log and traces: how operators observe a process."""
