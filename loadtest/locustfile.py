"""All users, for Locust: `locust -f loadtest/locustfile.py --host https://gateway.example.com`.

Classes and tags choose among them; Locust's web UI, headless mode, shapes and distributed mode work as usual.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from locust import events
from locust.env import Environment

from loadtest.client import call_listeners, leg_listeners
from loadtest.recorder import Recorder
from loadtest.rows import add_rows
from loadtest.users.base import BEGAN
from loadtest.users.compute import ComputeUser
from loadtest.users.ephemeral import EphemeralUser
from loadtest.users.hostile import HostileUser
from loadtest.users.streaming import StreamingUser
from loadtest.users.task import TaskUser

__all__ = ["ComputeUser", "EphemeralUser", "HostileUser", "StreamingUser", "TaskUser"]


def begin(environment: Environment, **_: Any) -> None:
    """Add the rows of calls and replicas to the statistics, and record raw data if asked to."""
    add_rows(environment)
    if environment.parsed_options is not None and environment.parsed_options.record:
        recorder = Recorder(Path(environment.parsed_options.record), BEGAN)
        leg_listeners.append(recorder.write)
        call_listeners.append(recorder.write)
        environment.events.quit.add_listener(lambda **_: recorder.close())


events.init.add_listener(begin)
