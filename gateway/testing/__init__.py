"""Test tools, prompts and resources without a server: `run(tool, args, answers={…})`."""

from __future__ import annotations

from gateway.testing.running import DECLINE, DISMISS, REFUSE, Run, run, run_async

__all__ = ["DECLINE", "DISMISS", "REFUSE", "Run", "run", "run_async"]
