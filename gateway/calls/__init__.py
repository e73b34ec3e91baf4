"""The life of a call, and of the task that it may become, on any wire."""
