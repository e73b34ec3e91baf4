"""The metrics of upstreams, for replicas and workers.

Labels come from the configuration, or from fixed sets. No caller and no upstream can add a value.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from gateway.observability.counters import Counts, Distribution, Distributions
from gateway.runtime.sources import Clock

UPSTREAM_OUTCOMES: Final = frozenset({"completed", "input_required", "error", "cancelled", "failed"})
"""How a request to an upstream ends: `error` is a JSON-RPC error; another metric has the reason for `failed`."""

_SECONDS_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_COUNTERS: Final = (
    ("gateway_upstream_requests", "Requests to upstreams that have ended.", "method", "outcome"),
    ("gateway_upstream_failures", "Requests to upstreams without a result, by reason.", "reason"),
    (
        "gateway_upstream_dropped",
        "Things that upstreams sent and nobody gets, such as invalid tools or questions that may not be asked.",
        "what",
    ),
    ("gateway_upstream_healed", "Deviations of upstreams from the protocol that were healed.", "kind"),
    ("gateway_upstream_list_refreshes", "Attempts to read the lists of upstreams.", "result"),
)
WARNING_SECONDS: Final = 3600.0
"""How long the log does not repeat that an upstream deviates in one way."""
_GAUGES: Final = (
    ("gateway_upstream_entries", "Tools, prompts, resources and templates of upstreams that are served."),
    ("gateway_upstream_breaker_open", "1 while requests to an upstream are refused after repeated failures."),
    ("gateway_upstream_in_flight", "Requests that upstreams work on."),
)


class UpstreamMetrics:
    """Counts what happens with upstreams."""

    def __init__(self, registry: CollectorRegistry, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._warned_at: dict[tuple[str, str], float] = {}
        self._requests, self._failures, self._dropped, self._healed, self._refreshes = (
            Counts(name, documentation, ["upstream", *labels], registry) for name, documentation, *labels in _COUNTERS
        )
        self._seconds = Distributions(
            "gateway_upstream_request_seconds",
            "How long upstreams took to answer requests.",
            ["upstream", "method"],
            bounds=_SECONDS_BUCKETS,
            registry=registry,
        )
        self._entries, self._breakers, self._in_flight = (
            Gauge(name, documentation, ["upstream"], registry=registry) for name, documentation in _GAUGES
        )
        self._durations: dict[tuple[str, str], Distribution] = {}
        self._in_flight_of: dict[str, Gauge] = {}

    def request_ended(self, upstream: str, method: str, outcome: str, seconds: float) -> None:
        """Count a request to an upstream that has ended, and how long it took. Failures have a metric of their own."""
        shown = outcome if outcome in UPSTREAM_OUTCOMES else "failed"
        self._requests.labels(upstream, method, shown).value += 1
        place = upstream, method
        duration = self._durations.get(place)
        if duration is None:
            duration = self._durations[place] = self._seconds.labels(*place)
        duration.observe(seconds)

    def failed(self, upstream: str, reason: str) -> None:
        """Count a failure."""
        self._failures.labels(upstream, reason).value += 1

    def dropped(self, upstream: str, what: str) -> None:
        """Count something that an upstream sent and nobody gets."""
        self._dropped.labels(upstream, what).value += 1

    def healed(self, upstream: str, kind: str) -> bool:
        """Count a deviation that was healed. Return whether the log should have it, which is once an hour."""
        self._healed.labels(upstream, kind).value += 1
        now, place = self._clock(), (upstream, kind)
        warned_at = self._warned_at.get(place)
        if warned_at is not None and now < warned_at + WARNING_SECONDS:
            return False
        self._warned_at[place] = now
        return True

    def healed_kinds(self, upstream: str) -> Sequence[str]:
        """Return the kinds of deviations of an upstream that were healed."""
        return sorted(kind for each, kind in self._warned_at if each == upstream)

    def listed(self, upstream: str, *, succeeded: bool) -> None:
        """Count an attempt to read the lists of an upstream."""
        self._refreshes.labels(upstream, "read" if succeeded else "failed").value += 1

    def serves(self, upstream: str, entries: int) -> None:
        """Set how many entries of an upstream are served."""
        self._entries.labels(upstream).set(entries)

    def breaker(self, upstream: str, *, is_open: bool) -> None:
        """Set whether requests to an upstream are refused after repeated failures."""
        self._breakers.labels(upstream).set(is_open)

    def in_flight(self, upstream: str, requests: int) -> None:
        """Set how many requests an upstream works on."""
        gauge = self._in_flight_of.get(upstream)
        if gauge is None:
            gauge = self._in_flight_of[upstream] = self._in_flight.labels(upstream)
        gauge.set(requests)

    def forget(self, upstream: str) -> None:
        """Remove the gauges of an upstream that is no longer configured; its counters stay."""
        for gauge in (self._entries, self._breakers, self._in_flight):
            gauge.remove_by_labels({"upstream": upstream})
        self._in_flight_of.pop(upstream, None)
        self._warned_at = {place: at for place, at in self._warned_at.items() if place[0] != upstream}
