"""`python -m gateway` for modules that a test edits: they are in the folder `TEST_FOLDER`, and bytecode is cached.

A forked process takes neither from `PYTHONPATH` and `PYTHONDONTWRITEBYTECODE`, which count when an interpreter starts.
"""

from __future__ import annotations

import os
import runpy
import sys

if __name__ == "__main__":
    sys.path.insert(1, os.environ["TEST_FOLDER"])
    sys.dont_write_bytecode = False
    runpy.run_module("gateway", run_name="__main__", alter_sys=True)
