"""Check that what people read here is plain English. `make check` does: `.venvs/prose/bin/python -m scripts.prose`."""
