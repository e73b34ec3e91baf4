"""What an error of redis-py tells about a command: why it failed, and whether anything of it was done."""

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
from gateway.storage.task_scripts import LATE

_REFUSALS = ("used memory > 'maxmemory'", "READONLY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN")
"""What is in the errors of a server that does nothing of what is asked. Redis 6.2 wraps what a script was told into an
error of its own, so only the text tells."""

_SCRIPT_REFUSALS = ("executing the script can't run this command", "ACL failure in script")
"""What is in the errors of a script that may not run a command, whatever the server's release calls them."""

_CLOSED = "the handler is closed"
"""How uvloop says that a connection was closed before something is written to it."""


FAILURES = (RedisError, RedisClusterException, OSError, TimeoutError)
"""What redis-py raises when a command fails. That no node of a cluster lets it in is no `RedisError` to it."""


class NotReached(ConnectionLost):
    """There is no connection to the server, so nothing was sent to it. The cause says why."""


async def repeatable(send: Callable[[], Awaitable[Any]]) -> Any:
    """Send, once more if the connection turns out to be lost. Every script of ours can be repeated.

    What was sent may have been done before the connection was lost. So nothing that the server says to the second
    attempt tells that nothing was done.
    """
    try:
        return await send()
    except NotReached:
        raise
    except ConnectionLost as error:
        lost = error
    except RuntimeError as error:
        if not str(error).endswith(_CLOSED):
            raise
        lost = ConnectionLost(str(error))
    try:
        replies = await send()
    except RedisError as error:
        raise lost if did_nothing(error) else error from None
    if isinstance(replies, list):
        return [lost if did_nothing(reply) else reply for reply in replies]
    return replies


def did_nothing(error: Any) -> bool:
    """Tell whether it is certain that nothing of a command was done."""
    if isinstance(error, (NotReached, BusyLoadingError, ReadOnlyError)) or is_late(error):
        return True
    return isinstance(error, ResponseError) and any(text in str(error) for text in _REFUSALS)


def is_late(error: Any) -> bool:
    """Tell whether a script came after its deadline."""
    return isinstance(error, ResponseError) and str(error).startswith(LATE)


def is_refusal_of_size(error: BaseException) -> bool:
    """Tell whether a server says that what it is sent is none of its protocol: the size of a value, in our case."""
    return isinstance(error, ResponseError) and str(error).startswith("Protocol error")


def cause_of(error: BaseException) -> BaseException:
    """Return what went wrong in the first place."""
    return error.__cause__ or error if isinstance(error, NotReached) else error


def refused_access(error: BaseException) -> str | None:
    """Return what the server refuses to this process for good: its login, or a command or key; None for all else."""
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
    """Return what a failure counts as."""
    if isinstance(error, (RedisTimeout, TimeoutError)):
        return RedisErrorKind.TIMEOUT
    if isinstance(error, (ConnectionLost, OSError)):
        return RedisErrorKind.CONNECTION
    return RedisErrorKind.FULL if "used memory > 'maxmemory'" in str(error) else RedisErrorKind.OTHER
