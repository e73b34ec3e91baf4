"""Decides which commands of redis-py are repeated: why one failed, and whether it had any effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import TimeoutError as RedisTimeout

from gateway.observability.process_metrics import RedisErrorKind
from gateway.storage.lua.task_scripts import LATE

_REFUSALS = ("used memory > 'maxmemory'", "READONLY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN")
"""Texts in the errors of a server that refuses to write. Redis 6.2 wraps the errors of commands in a script in an error
of its own, so only the text identifies them."""

_SCRIPT_REFUSALS = ("executing the script can't run this command", "ACL failure in script")
"""Texts in the errors of a script that may not run a command, in every release of the server."""

_CLOSED = "the handler is closed"
"""uvloop's message for a write to a connection that is already closed."""


FAILURES = (RedisError, RedisClusterException, OSError, TimeoutError)
"""What redis-py raises when a command fails. If no node of a cluster accepts it, the error is not a `RedisError`."""


class NotReached(ConnectionLost):
    """There is no connection to the server, so nothing was sent to it. The cause gives the reason."""


async def sent(send: Callable[[], Awaitable[Any]]) -> Any:
    """Send a command. A write to a connection that was just closed raises `ConnectionError`, also from uvloop."""
    try:
        return await send()
    except RuntimeError as error:
        if not str(error).endswith(_CLOSED):
            raise
        raise ConnectionLost(str(error)) from None


async def repeatable(send: Callable[[], Awaitable[Any]]) -> Any:
    """Send a command, and send it again if the connection was lost. Every script of ours can be repeated.

    The first attempt may have taken effect before the connection was lost. So no reply to the second attempt can show
    that the command had no effect.
    """
    try:
        return await sent(send)
    except NotReached:
        raise
    except ConnectionLost as error:
        lost = error
    try:
        replies = await sent(send)
    except RedisError as error:
        raise lost if did_nothing(error) else error from None
    if isinstance(replies, list):
        return [lost if did_nothing(reply) else reply for reply in replies]
    return replies


def did_nothing(error: Any) -> bool:
    """Return whether a command certainly had no effect."""
    if isinstance(error, (NotReached, BusyLoadingError, ReadOnlyError)) or is_late(error):
        return True
    return isinstance(error, ResponseError) and any(text in str(error) for text in _REFUSALS)


def is_late(error: Any) -> bool:
    """Return whether a script arrived after its deadline."""
    return isinstance(error, ResponseError) and str(error).startswith(LATE)


def is_refusal_of_size(error: BaseException) -> bool:
    """Return whether the server reports a protocol error, which for our commands means that a value is too large."""
    return isinstance(error, ResponseError) and str(error).startswith("Protocol error")


def cause_of(error: BaseException) -> BaseException:
    """Return the original error."""
    return error.__cause__ or error if isinstance(error, NotReached) else error


def refused_access(error: BaseException) -> str | None:
    """Return what the server permanently denies this process: its login, or a command or key. None for other errors."""
    while True:
        if isinstance(error, AuthenticationError):
            return "the server refused the login; check the user and the password"
        if isinstance(error, NoPermissionError) or any(text in str(error) for text in _SCRIPT_REFUSALS):
            return (
                f"the server denied the user a command or a key: {str(error).rstrip('.')}; see docs/run/tasks.md#redis"
            )
        if error.__cause__ is None:
            return None
        error = error.__cause__


def kind_of(error: BaseException) -> RedisErrorKind:
    """Return the kind that a failure is counted under."""
    if isinstance(error, (RedisTimeout, TimeoutError)):
        return RedisErrorKind.TIMEOUT
    if isinstance(error, (ConnectionLost, OSError)):
        return RedisErrorKind.CONNECTION
    return RedisErrorKind.FULL if "used memory > 'maxmemory'" in str(error) else RedisErrorKind.OTHER
