"""What callers learn about a failed call: enough to react, and nothing internal."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.authoring.arguments import InvalidArguments
from gateway.authoring.mistakes import cut_to_author, explain, place_of_error
from gateway.authoring.served import Served
from gateway.authoring.tools import Tool
from gateway.engine.journal import Journal
from gateway.engine.leg_policy import LegPolicy
from gateway.engine.outcomes import LegTimedOut
from gateway.errors import (
    AskError,
    CannotContinue,
    InternalError,
    InvalidParams,
    NotAnswered,
    ProtocolError,
    RelayFailed,
    ResultTooLarge,
    RpcError,
    code_advice,
)
from gateway.protocol.strict_json import encode
from gateway.runtime.sources import RandomBytes

log = logging.getLogger(__name__)

REFERENCE_BYTES: Final = 6
"""Length of the reference id that links a crash as the client sees it to the log."""


class Failures:
    """Turns failures into results and errors."""

    def __init__(self, random_bytes: RandomBytes, policy: LegPolicy) -> None:
        self._random_bytes = random_bytes
        self._policy = policy

    def result(self, served: Served, error: Exception, journal: Journal) -> dict[str, Any]:
        """Return the result of a failed tool: the blocks it had emitted, then what went wrong.

        Raises:
            RpcError: the failure is reported as a JSON-RPC error; for a prompt or resource it always is.
        """
        # Blocks that are too large for a result are too large for this one.
        emitted = () if isinstance(error, ResultTooLarge) else journal.segments
        return failed_result(self._message(served, error), emitted)

    def _message(self, served: Served, error: Exception) -> str:
        if isinstance(error, RpcError) and _is_reportable(error):
            raise error
        if isinstance(error, InvalidArguments):
            message = f"Invalid arguments for {served.name}: {error}"
            if isinstance(served, Tool):
                return message
            raise InvalidParams(message)
        if isinstance(error, AskError) and not isinstance(served, Tool):
            raise NotAnswered(error)
        if isinstance(error, ResultTooLarge):
            log.error("result too large", extra={"tool": served.name, "reason": str(error)})
        told = isinstance(error, (AskError, CannotContinue))
        message = str(error) if told else self._crash(served, error)
        if isinstance(served, Tool):
            return message
        raise RelayFailed(message) if told and served.upstream else InternalError(message)

    def _crash(self, served: Served, error: Exception) -> str:
        name, reference = served.name, self._random_bytes(REFERENCE_BYTES).hex()
        fields = {"tool": name, "reference": reference}
        if isinstance(error, LegTimedOut):
            log.warning("tool timed out", extra={**fields, "limit_seconds": error.seconds})
            return f"{name} did not finish within {error.seconds:g} seconds (reference {reference})"
        if not self._policy.show_errors:
            log.error("tool failed", extra=fields, exc_info=error)
            return f"{name} failed (reference {reference})"
        where = place_of_error(error, served.place)
        cut_to_author(error)
        log.error("tool failed", extra={**fields, "where": where}, exc_info=error)
        return f"{name} failed: {explain(error)} ({where}, reference {reference})"


def failed_result(message: str, emitted: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return the fields of a `CallToolResult` that explains to the language model what went wrong."""
    return {"content": [*emitted, {"type": "text", "text": message}], "isError": True}


def _is_reportable(error: RpcError) -> bool:
    """Return whether an error may be reported as it is.

    The author's own may have no JSON form, or a code that is not theirs because it was changed: that counts as a crash.
    """
    try:
        encode([error.message, error.data])
    except (TypeError, ValueError, RecursionError):
        return False
    if isinstance(error, ProtocolError) and code_advice(error.code):
        return False
    return type(error.code) is int and isinstance(error.message, str)
