"""The base of all users: their client, their options, and their pauses."""

from __future__ import annotations

import functools
import os
import random
import ssl
import time
from typing import Any, ClassVar, Final

from locust import FastHttpUser, events
from locust.argument_parser import LocustArgumentParser

from loadtest.client import McpClient, endpoint_of
from loadtest.recorder import run_clock
from loadtest.tokens import Tokens

BEGAN: Final = float(os.environ.get("LOADTEST_BEGAN") or time.time())
"""When the run began, in seconds since 1970; the same in all its processes."""
CLOCK: Final = run_clock(BEGAN)
TOKENS: Final = Tokens.from_environment(os.environ)


def add_options(parser: LocustArgumentParser) -> None:
    """Add the options of all users to Locust's own; each has an environment variable too."""

    def add(name: str, default: float | str, help_: str) -> None:
        variable = f"LOADTEST_{name.upper().replace('-', '_')}"
        parser.add_argument(f"--{name}", type=type(default), default=default, env_var=variable, help=help_)

    add("think-seconds", 0.5, "how long a user thinks about a question, on average")
    add("pause-seconds", 0.5, "how long a user waits between calls, on average")
    add("refusals", 5, "how often a call may be refused for load before its user gives up")
    add("crunch-units", 20, "how many units compute users ask for")
    add("crunch-unit-ms", 5, "the CPU time of each unit, in milliseconds")
    add("report-sections", 3, "how many sections streaming users' reports have")
    add("break-probability", 0.5, "how likely a streaming user breaks the connection after a batch of segments")
    add("break-seed", 1, "the seed that decides after which batches")
    add("record", "", "a directory for the raw data of the run: legs.jsonl and calls.jsonl")


events.init_command_line_parser.add_listener(add_options)


@functools.cache
def _ssl_context(cafile: str | None = None) -> ssl.SSLContext:
    """Return the shared context of all users: loading the certificates for each would cost memory and time."""
    return ssl.create_default_context(cafile=cafile)


def some(seconds: float) -> float:
    """Return a random time around `seconds`: half to one and a half times as long."""
    return seconds * random.uniform(0.5, 1.5)


class McpUser(FastHttpUser):
    """A user of an MCP server. Subclasses define what it does, as Locust tasks."""

    abstract = True
    kind: ClassVar[str]
    network_timeout = 90.0
    max_redirects = 0
    insecure = False
    ssl_context_factory = staticmethod(_ssl_context)
    mcp: McpClient

    def on_start(self) -> None:
        """Create the client of this user."""
        self.mcp = McpClient(
            self.client,
            endpoint_of(str(self.host)),
            self.kind,
            clock=CLOCK,
            tokens=TOKENS,
            refusals=self.option("refusals"),
        )

    def wait_time(self) -> float:
        """Return how long this user pauses before the next call."""
        return some(self.option("pause_seconds"))

    def think(self) -> float:
        """Return how long this user thinks about the next question."""
        return some(self.option("think_seconds"))

    def option(self, name: str) -> Any:
        """Return the value of one of the options above."""
        return getattr(self.environment.parsed_options, name)
