"""Users of tasks, which run in the background and ask from there. Some users poll, some listen."""

from __future__ import annotations

import random
import re

from locust import tag, task

from loadtest.errand import Check, Errand
from loadtest.users.base import McpUser
from loadtest.users.ephemeral import is_text, new_name
from loadtest.wire import Answer

SIZES = ("small", "medium", "large")


class TaskUser(McpUser):
    """Calls tools that become tasks, answers their questions, and waits for their end."""

    kind = "task"
    weight = 2

    @task(2)
    @tag("echo")
    def echo(self) -> None:
        """Call a tool that is a task from the start, with one question."""
        text = new_name()
        self.mcp.call(
            Errand(
                "echo",
                {},
                is_text(f"Echo: {text}"),
                {"echo_input": {"input": text}},
                self.think,
                tasks=True,
                listens=random.random() < 0.5,
            )
        )

    @task(1)
    @tag("provision")
    def provision_vm(self) -> None:
        """Call a tool that asks first, then becomes a task and asks again. Now and then the user declines."""
        size, confirmed = random.choice(SIZES), random.random() < 0.8
        self.mcp.call(
            Errand(
                "provision_vm",
                {},
                is_machine(size) if confirmed else is_cancelled,
                {"size": {"size": size}, "confirm": {"confirm": confirmed}},
                self.think,
                tasks=True,
                listens=random.random() < 0.5,
            )
        )


def is_machine(size: str) -> Check:
    """Return a check that a machine of this size was provisioned in the background."""
    expected = rf"vm-[0-9a-f]{{8}} of size {size} is running \(provisioned in the background\)\."

    def check(answer: Answer) -> str | None:
        text = " ".join(answer.texts)
        return None if re.fullmatch(expected, text) else f"got {text!r:.200}, not a machine of size {size}"

    return check


def is_cancelled(answer: Answer) -> str | None:
    """Return what is wrong with the result of `provision_vm` for a user that did not confirm, or None."""
    text = " ".join(answer.texts)
    return (
        None if re.fullmatch(r"vm-[0-9a-f]{8} was not started\.", text) else f"got {text!r:.200} without confirmation"
    )
