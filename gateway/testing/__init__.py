"""Test tools, prompts and resources without a server: `run(tool, args, answers={…})`."""

from __future__ import annotations

from gateway.testing.answers import DECLINE, DISMISS, REFUSE
from gateway.testing.faults import crash_after, lose_response
from gateway.testing.fixture import AsyncCall, Call
from gateway.testing.mistakes import RunError
from gateway.testing.recordings import Recording, record, record_async
from gateway.testing.replays import Difference, ReplayDiffers, replay, replay_async
from gateway.testing.results import Asked, LegRun, Run
from gateway.testing.running import run, run_async

__all__ = [
    "DECLINE",
    "DISMISS",
    "REFUSE",
    "Asked",
    "AsyncCall",
    "Call",
    "Difference",
    "LegRun",
    "Recording",
    "ReplayDiffers",
    "Run",
    "RunError",
    "crash_after",
    "lose_response",
    "record",
    "record_async",
    "replay",
    "replay_async",
    "run",
    "run_async",
]
