"""`python -m gateway` whose own processes are not measured: being measured is half of what the start of one costs."""

from __future__ import annotations

import os
import runpy

if __name__ == "__main__":
    os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    runpy.run_module("gateway", run_name="__main__", alter_sys=True)
