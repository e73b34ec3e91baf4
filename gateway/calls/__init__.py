"""What happens to a call, and to the task that it may become, on any wire."""
