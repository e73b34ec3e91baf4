"""Users of calls whose state travels with the client: the weather, work items in two rounds, accounts at two sites."""

from __future__ import annotations

import random
import secrets
from typing import Final

from locust import tag, task

from loadtest.errand import Check, Errand
from loadtest.users.base import McpUser
from loadtest.wire import Answer

CITIES: Final = ("New York", "São Paulo", "Zürich", "東京", "Nairobi", "Reykjavík")
RESOLUTIONS: Final = ("Fixed", "Won't Fix", "By Design")


class EphemeralUser(McpUser):
    """Calls tools that ask, thinks, and answers; each result must contain this call's answers."""

    kind = "ephemeral"
    weight = 10

    @task(4)
    @tag("weather")
    def get_weather(self) -> None:
        """Call a tool with one question and one retry."""
        self.mcp.call(weather(self))

    @task(4)
    @tag("work-items")
    def update_work_item(self) -> None:
        """Call a tool with two rounds: the second question depends on the first answer."""
        self.mcp.call(work_item(self))

    @task(1)
    @tag("accounts")
    def link_accounts(self) -> None:
        """Call a tool with two questions at once, which depend on the release of the tool."""
        self.mcp.call(accounts(self))


def is_text(*expected: str) -> Check:
    """Return a check that a result has a single block, with one of these texts."""

    def check(answer: Answer) -> str | None:
        if len(answer.texts) == 1 and answer.texts[0] in expected:
            return None
        return f"got {' | '.join(answer.texts)!r:.200}, not {expected[0]!r:.200}"

    return check


def new_name() -> str:
    """Return a unique name, so that mixed-up calls are noticed."""
    return f"user-{secrets.token_hex(4)}"


def weather(user: McpUser, location: str | None = None) -> Errand:
    """Return the errand of asking for the weather, by default in some city."""
    location, name = location or random.choice(CITIES), new_name()
    return Errand(
        "get_weather",
        {"location": location},
        is_text(
            f"Current weather in {location}:\nTemperature: 72°F\nConditions: Partly cloudy\n(looked up for {name})",
        ),
        {"github_login": {"name": name}},
        user.think,
    )


def work_item(user: McpUser) -> Errand:
    """Return the errand of resolving a bug: usually as a duplicate, which takes another question."""
    item, original = random.sample(range(1, 100_000), 2)
    if random.random() < 0.75:
        resolution = "Duplicate"
        text = (
            f"Bug #{item} resolved as Duplicate of Bug #{original}. State set to Resolved and duplicate link created."
        )
    else:
        resolution = random.choice(RESOLUTIONS)
        text = f"Bug #{item} resolved as {resolution}. State set to Resolved."
    return Errand(
        "update_work_item",
        {"workItemId": item, "fields": {"System.State": "Resolved"}},
        is_text(text),
        {"resolution": {"resolution": resolution}, "duplicate_of": {"duplicateOfId": original}},
        user.think,
    )


def accounts(user: McpUser) -> Errand:
    """Return the errand of linking two accounts, whichever release of the tool finishes the call."""
    github, google, microsoft = new_name(), new_name(), new_name()
    return Errand(
        "link_accounts",
        {},
        is_text(
            f"Linked GitHub account {github} and Google account {google}.",
            f"Linked GitHub account {github} and Microsoft account {microsoft}.",
        ),
        {
            "github_login": {"name": github},
            "google_login": {"name": google},
            "microsoft_login": {"name": microsoft},
        },
        user.think,
    )
