"""Every setting of a process: read once from the environment, checked, and frozen."""
