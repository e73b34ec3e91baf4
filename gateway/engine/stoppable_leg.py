"""Pure: how a leg ends, and stays ended whatever the author's function does."""

from __future__ import annotations

from typing import Any, NoReturn

from gateway.engine.host import Host
from gateway.engine.keys import check_key
from gateway.engine.outcomes import Failed, Outcome
from gateway.errors import AuthoringError

MAX_IGNORED_STOPS = 1000
"""How often a function may continue after its leg has ended before the leg abandons it."""


class LegStopped(BaseException):
    """Ends the author's function early. Derives from `BaseException`, so `except Exception` does not catch it.

    The leg also remembers its outcome, so a function that swallows even this cannot continue. Questions, steps and
    checkpoints raise it again, and the return value is ignored. A function that keeps trying is abandoned.
    """


class StoppableLeg:
    """A run of the author's function that can end early.

    Attributes:
        reached: the keys of the questions and steps that the function has come to, in order.
    """

    outcome: Outcome | None = None
    given_up: bool = False
    host: Host
    reached: dict[str, None]
    _ignored_stops: int = 0

    def check_running(self) -> None:
        """Raise the stop signal again if this leg has already ended (replay rule 3)."""
        if self.outcome is not None:
            raise LegStopped

    async def _stop_again(self) -> NoReturn:
        """Raise the stop signal again, or suspend for good a function that keeps ignoring it.

        Callers check `outcome` first, so a leg that continues does not pay for a coroutine.
        """
        self._ignored_stops += 1
        if self._ignored_stops > MAX_IGNORED_STOPS:
            self.given_up = True
            await self.host.park()
        raise LegStopped

    def broken(self, error: AuthoringError) -> AuthoringError:
        """Record a broken rule as the outcome: otherwise a loop around `except Exception` would run forever."""
        self._stopping(Failed(error))
        return error

    def stop(self, outcome: Outcome) -> NoReturn:
        """End the leg; the first outcome is the one that counts."""
        raise self._stopping(outcome)

    def _stopping(self, outcome: Outcome) -> LegStopped:
        """Record how the leg ends, and return the signal for the caller to raise: each frame it passes costs time."""
        if self.outcome is None:
            self.outcome = outcome
        return LegStopped()

    def _claim(self, key: Any) -> None:
        check_key(key)
        if key in self.reached:
            raise AuthoringError(
                f"the key {key!r} is used twice in one call; give each question and each step its own key, such as "
                f'f"{key}-{{i}}" in a loop'
            )
        self.reached[key] = None
