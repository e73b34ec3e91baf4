"""Requests to upstreams as metrics and traces show them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.protocol.upstream.responses import INPUT_REQUIRED, Result
from gateway.runtime.sources import Clock
from gateway.upstreams.failures import UpstreamError, UpstreamFailure
from gateway.upstreams.ports import Questions

if TYPE_CHECKING:  # a process without traces never loads OpenTelemetry, which takes memory
    from gateway.observability.tracing import Traces

_CANCELLED: Final = "cancelled"


class MeasuredRequests:
    """Counts the requests to one upstream by how they end, and makes a span for each."""

    def __init__(
        self, upstream: str, telemetry: UpstreamMetrics, tracing: Traces | None, clock: Clock = time.monotonic
    ) -> None:
        self._upstream = upstream
        self._telemetry = telemetry
        self._tracing = tracing
        self._clock = clock

    async def run(
        self, method: str, send: Callable[[str | None], Awaitable[Result]], questions: Questions | None = None
    ) -> dict[str, Any]:
        """Send a request, and return its result. `send` gets the `traceparent`, if there is one.

        The time in which `questions` wait for their answers is not the upstream's.
        """
        began = self._clock()
        outcome = _CANCELLED
        trace = None if self._tracing is None else self._tracing.upstream_request(self._upstream, method)
        try:
            result = await send(None if trace is None else trace.traceparent)
        except UpstreamError:
            outcome = "error"
            raise
        except UpstreamFailure as failure:
            outcome = failure.reason.value
            self._telemetry.failed(self._upstream, failure.reason)
            raise
        else:
            outcome = INPUT_REQUIRED if result.asks else "completed"
            if result.overstepped:
                self._telemetry.dropped(self._upstream, "meta")
            return result.value
        finally:
            seconds = self._clock() - began - (0.0 if questions is None else questions.asked_seconds)
            self._telemetry.request_ended(self._upstream, method, outcome, seconds)
            if trace is not None:
                trace.end(outcome)
