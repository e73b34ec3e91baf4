"""Where the users' bearer token comes from: the environment, a file, or a command that prints one."""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

VARIABLES: Final = ("LOADTEST_TOKEN", "LOADTEST_TOKEN_FILE", "LOADTEST_TOKEN_COMMAND")
RENEW_SECONDS: Final = 30.0
"""How long before it expires a token is replaced."""


class TokenError(Exception):
    """A configured source has no token. The message names the source, and never shows a token."""


class Tokens:
    """The users' bearer token, replaced shortly before it expires.

    A JWT with `exp` is read again before it expires; any other token is used for the whole run.

    Args:
        read: returns a token; None for users without one.
        clock: returns the time in seconds since 1970.
    """

    def __init__(self, read: Callable[[], str] | None = None, clock: Callable[[], float] = time.time) -> None:
        self._read = read
        self._clock = clock
        self._token = ""
        self._renew_at = 0.0
        self._lock = threading.Lock()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Tokens:
        """Return the source that the environment names.

        Raises:
            TokenError: it names several.
        """
        given = [name for name in VARIABLES if environ.get(name)]
        if len(given) > 1:
            raise TokenError(f"{' and '.join(given)} are set: set only one of them")
        if not given:
            return cls()
        value = environ[given[0]]
        match given[0]:
            case "LOADTEST_TOKEN_FILE":
                return cls(lambda: _from_file(Path(value)))
            case "LOADTEST_TOKEN_COMMAND":
                return cls(lambda: _from_command(value))
            case _:
                return cls(lambda: value)

    def current(self) -> str:
        """Return the token to use now; empty for none.

        Raises:
            TokenError: the source has none.
        """
        # One user renews it while the others use the previous one; all have to wait for the first one only.
        if self._read is not None and self._is_due() and self._lock.acquire(blocking=not self._token):
            try:
                if self._is_due():
                    self._token = self._read().strip()
                    self._renew_at = max(_end_of(self._token) - RENEW_SECONDS, self._clock() + 1)
            finally:
                self._lock.release()
        return self._token

    def _is_due(self) -> bool:
        return self._clock() >= self._renew_at


def _from_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise TokenError(f"LOADTEST_TOKEN_FILE: {path} cannot be read: {error.strerror}") from None


def _from_command(command: str) -> str:
    try:
        run = subprocess.run(shlex.split(command), capture_output=True, text=True, check=True, timeout=RENEW_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise TokenError(f"LOADTEST_TOKEN_COMMAND: {command!r} returned no token: {type(error).__name__}") from None
    return run.stdout


def _end_of(token: str) -> float:
    """Return when a JWT expires, in seconds since 1970; infinity for a token without an expiry."""
    try:
        payload = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return float("inf")
