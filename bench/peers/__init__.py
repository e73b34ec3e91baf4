"""The servers that ours is compared with; one with dependencies of its own has a virtual environment of its own."""
