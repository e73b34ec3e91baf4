"""Check that what people read here is plain English: `python -m scripts.prose`, a part of `make check`."""
