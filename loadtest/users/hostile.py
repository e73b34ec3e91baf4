"""Users that send states they should not have: each must be rejected in the same words, and do no harm."""

from __future__ import annotations

import random
import secrets
from typing import Final

from locust import tag, task

from loadtest.users.base import McpUser
from loadtest.users.ephemeral import new_name, weather, work_item

_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


class HostileUser(McpUser):
    """Sends one bad state in each call, then continues with the good one, which must still open."""

    kind = "hostile"
    weight = 1

    def on_start(self) -> None:
        """Start without a state of another call."""
        super().on_start()
        self._foreign = ""

    @task(2)
    @tag("tampered")
    def bring_a_tampered_state(self) -> None:
        """Send the state of this call with a small change."""
        self.mcp.spoil(weather(self), random.choice((change_a_character, cut_off, put_in_front, made_up)))

    @task(2)
    @tag("foreign")
    def bring_a_foreign_state(self) -> None:
        """Send the state of a weather call for another place, also to another tool."""
        errand = random.choice((weather(self, new_name()), work_item(self)))

        def spoil(state: str) -> str:
            foreign = self._foreign or cut_off(state)
            if errand.tool == "get_weather":
                self._foreign = state
            return foreign

        self.mcp.spoil(errand, spoil)


def change_a_character(state: str) -> str:
    """Return the state with a changed character somewhere after its label."""
    place = random.randrange(state.index(".") + 1, len(state))
    return state[:place] + random.choice(_ALPHABET.replace(state[place], "")) + state[place + 1 :]


def cut_off(state: str) -> str:
    """Return the state without some of its end."""
    return state[: -random.randint(1, len(state) - 1)]


def put_in_front(state: str) -> str:
    """Return the state with something in front."""
    return random.choice(_ALPHABET) + state


def made_up(state: str) -> str:
    """Return an invented state that looks like one of this deployment."""
    label = state[: state.index(".") + 1]
    return label + secrets.token_urlsafe(len(state))[: len(state) - len(label)]
