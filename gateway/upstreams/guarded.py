"""Sends requests to an upstream within its limits: its places, its rate, its breaker, and the failures of callers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, Unpack

from gateway.upstreams.breaker import Breaker
from gateway.upstreams.bulkhead import Bulkhead
from gateway.upstreams.failing import Failing, FailingCalls
from gateway.upstreams.failures import HeldFailure, Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.ports import Changes, RequestOptions, Requests, UpstreamCaller


class UpstreamClient(Requests, Protocol):
    """Sends requests to one upstream, without any limits, and listens to its changes."""

    @property
    def probe_method(self) -> str:
        """The method of a request by which the gateway finds out whether the upstream answers."""
        ...

    def listen(self, wanted: Mapping[str, Any], *, requester: UpstreamCaller) -> AbstractAsyncContextManager[Changes]:
        """Open a stream of changes."""
        ...


class GuardedClient:
    """A client for the requests of callers. It keeps to the limits of the upstream."""

    def __init__(self, upstream: str, client: UpstreamClient, breaker: Breaker, bulkhead: Bulkhead) -> None:
        self._upstream = upstream
        self._client = client
        self._breaker = breaker
        self._bulkhead = bulkhead
        self._failing = FailingCalls()

    async def request(
        self, method: str, params: Mapping[str, Any], **options: Unpack[RequestOptions]
    ) -> dict[str, Any]:
        """Send a request and return its result; see `StatelessClient.request`. The wait for a place is not counted.

        An open breaker raises `UpstreamFailure` too, and so does a call like those of the same caller that have failed
        again and again. If no place became free in time, `Overloaded` is raised. Nothing was sent then.
        """
        principal = options["requester"].principal
        # Callers without a token cannot be told apart: what one of them causes must not stop the others.
        call = (principal, params["name"]) if principal is not None and "name" in params else None
        if self._breaker.is_open or (self._failing.rows and self._failing.refuses(call)):
            raise self._refused()
        async with self._bulkhead.place(principal):
            if self._breaker.is_open:
                raise self._refused()
            with _Judged(self._breaker, self._failing, call):
                return await self._client.request(method, params, **options)

    def _refused(self) -> UpstreamFailure:
        return UpstreamFailure(self._upstream, Reason.BREAKER_OPEN, sent=False)


class _Judged:
    """Reports how a request ended: to the breaker if that concerns everybody, else for the call."""

    def __init__(self, breaker: Breaker, failing: FailingCalls, call: Failing) -> None:
        self._breaker = breaker
        self._failing = failing
        self._call = call

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        """Report the end."""
        if error is None or isinstance(error, UpstreamError):
            self._breaker.succeeded()
            if self._failing.rows:
                self._failing.succeeded(self._call)
        elif isinstance(error, UpstreamFailure):
            if error.concerns_all:
                self._breaker.failed()
            elif error.sent and not isinstance(error, HeldFailure):
                self._failing.failed(self._call)
