"""The metrics of upstreams, for replicas and workers.

Labels come from the configuration, or from fixed sets. No caller and no upstream can add a value.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway.observability.counters import Counts, Distribution, Distributions, ReadCount
from gateway.runtime.sources import Clock

UPSTREAM_OUTCOMES: Final = frozenset({"completed", "input_required", "error", "cancelled", "failed"})
"""How a request to an upstream ends: `error` is a JSON-RPC error; another metric has the reason for `failed`."""

SESSION_STATES: Final = ("opening", "in_use", "idle")
EXIT_KINDS: Final = frozenset({"code_zero", "code_nonzero", "signal", "other"})
HELD_ENDS: Final = frozenset({"completed", "expired", "abandoned", "cancelled", "timed_out", "asked_too_much"})
"""How a call ends that has waited for its user: `completed` is an end of the upstream's own."""
HELD_LIMITS: Final = frozenset({"process", "caller", "bytes"})

_USER_SECONDS_BUCKETS: Final = (1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)

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
    ("gateway_upstream_session_failures", "Sessions with upstreams that could not be opened, by reason.", "reason"),
    ("gateway_upstream_sessions_lost", "Open sessions that upstreams have ended, or lost."),
    ("gateway_upstream_program_exits", "Programs of upstreams that have ended by themselves.", "kind"),
    ("gateway_upstream_held_ended", "Calls that waited for their users and have ended, by how.", "how"),
    ("gateway_upstream_held_refused", "Calls and questions that a limit of held calls refused.", "limit"),
)
WARNING_SECONDS: Final = 3600.0
"""How long the log does not repeat that an upstream deviates in one way."""
_GAUGES: Final = (
    ("gateway_upstream_entries", "Tools, prompts, resources and templates of upstreams that are served."),
    ("gateway_upstream_breaker_open", "1 while requests to an upstream are refused after repeated failures."),
    ("gateway_upstream_in_flight", "Requests that upstreams work on."),
    ("gateway_upstream_held_calls", "Calls that this process holds while their users answer."),
    (
        "gateway_upstream_restart_pause_seconds",
        "The pause before a program that has ended is started again; 0 once it was.",
    ),
)


class ChildCounts(Protocol):
    """How many child processes there are, and may be."""

    @property
    def running(self) -> int:
        """How many run now."""
        ...

    @property
    def most(self) -> int:
        """How many may run."""
        ...

    @property
    def watchers_lost(self) -> int:
        """How often the process that watches them has died."""
        ...


class SessionCounts:
    """How many sessions one pool has, by state. At most `most` are open at once."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.by_state: dict[str, int] = {}

    @property
    def is_used(self) -> bool:
        """Whether there is a session."""
        return any(self.by_state.get(state) for state in SESSION_STATES)

    def move(self, before: str, after: str) -> None:
        """Count one session in another state; that of one that is not open is ""."""
        if not self.by_state:
            self.by_state = dict.fromkeys(("", *SESSION_STATES), 0)
        self.by_state[before] -= 1
        self.by_state[after] += 1


class _SessionCollector(Collector):
    """Shows the sessions with upstreams that had one. A replaced upstream may have two pools for some time."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.pools: dict[str, list[SessionCounts]] = {}
        registry.register(self)

    def describe(self) -> list[GaugeMetricFamily]:
        return [
            GaugeMetricFamily(
                "gateway_upstream_sessions", "Sessions with upstreams, by state.", labels=["upstream", "state"]
            ),
            GaugeMetricFamily(
                "gateway_upstream_sessions_limit", "The most sessions with an upstream.", labels=["upstream"]
            ),
        ]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        sessions, limits = self.describe()
        for upstream, pools in list(self.pools.items()):
            shown = [pool.by_state for pool in pools if pool.by_state]
            if shown:
                limits.add_metric([upstream], pools[-1].most)
                for state in SESSION_STATES:
                    sessions.add_metric([upstream, state], sum(each[state] for each in shown))
        yield from (sessions, limits)


class UpstreamMetrics:
    """Counts what happens with upstreams."""

    def __init__(self, registry: CollectorRegistry, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._warned_at: dict[tuple[str, str], float] = {}
        counters = [
            Counts(name, documentation, ["upstream", *labels], registry) for name, documentation, *labels in _COUNTERS
        ]
        self._requests, self._failures, self._dropped, self._healed, self._refreshes = counters[:5]
        self._session_failures, self._sessions_lost, self._exits, self._held_ends, self._held_refusals = counters[5:]
        self._seconds = Distributions(
            "gateway_upstream_request_seconds",
            "How long upstreams took to answer requests.",
            ["upstream", "method"],
            bounds=_SECONDS_BUCKETS,
            registry=registry,
        )
        self._opening_seconds = Distributions(
            "gateway_upstream_session_open_seconds",
            "How long sessions with upstreams took to open, with the start of their programs.",
            ["upstream"],
            bounds=_SECONDS_BUCKETS,
            registry=registry,
        )
        self._user_seconds = Distributions(
            "gateway_upstream_held_seconds",
            "How long users took to answer the questions of calls that this process holds.",
            ["upstream"],
            bounds=_USER_SECONDS_BUCKETS,
            registry=registry,
        )
        self._sessions = _SessionCollector(registry)
        self._entries, self._breakers, self._in_flight, self._held, self._pauses = (
            Gauge(name, documentation, ["upstream"], registry=registry) for name, documentation in _GAUGES
        )
        self._durations: dict[tuple[str, str], Distribution] = {}
        self._in_flight_of: dict[str, Gauge] = {}
        self._children: ChildCounts | None = None
        self._running = Gauge("gateway_children", "Child processes that run.", registry=registry)
        self._most = Gauge("gateway_children_limit", "The most child processes.", registry=registry)
        lost = "How often the process that watches child processes has died."
        ReadCount("gateway_child_watchers_lost", lost, self._watchers_lost, registry)

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

    def dropped(self, upstream: str, what: str, count: int = 1) -> None:
        """Count what an upstream sent and nobody gets."""
        if count:
            self._dropped.labels(upstream, what).value += count

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

    def held(self, upstream: str, more: int) -> None:
        """Count calls that begin to wait for their users, or no longer do (-1)."""
        self._held.labels(upstream).inc(more)

    def user_answered(self, upstream: str, seconds: float) -> None:
        """Count answers to what a held call asked, and how long the user took."""
        self._user_seconds.labels(upstream).observe(seconds)

    def held_ended(self, upstream: str, how: str) -> None:
        """Count the end of a call that has asked; see `HELD_ENDS`."""
        self._held_ends.labels(upstream, how).value += 1

    def held_refused(self, upstream: str, limit: str) -> None:
        """Count a call that was not begun, or a question that was not asked; see `HELD_LIMITS`."""
        self._held_refusals.labels(upstream, limit).value += 1

    def show_children(self, children: ChildCounts) -> None:
        """Show the child processes of this process."""
        self._children = children
        self._running.set_function(lambda: children.running)
        self._most.set(children.most)

    def _watchers_lost(self) -> int:
        return 0 if self._children is None else self._children.watchers_lost

    def sessions(self, upstream: str, most: int) -> SessionCounts:
        """Return what counts the sessions of a new pool."""
        pools = self._sessions.pools.get(upstream, [])
        counts = SessionCounts(most)
        self._sessions.pools[upstream] = [*(pool for pool in pools if pool.is_used), counts]
        return counts

    def session_opened(self, upstream: str, seconds: float) -> None:
        """Count a session that was opened, and how long that took."""
        self._opening_seconds.labels(upstream).observe(seconds)

    def session_failed(self, upstream: str, reason: str) -> None:
        """Count a session that could not be opened."""
        self._session_failures.labels(upstream, reason).value += 1

    def session_lost(self, upstream: str) -> None:
        """Count a session that the gateway has not ended."""
        self._sessions_lost.labels(upstream).value += 1

    def program_ended(self, upstream: str, kind: str) -> None:
        """Count a program that has ended by itself."""
        self._exits.labels(upstream, kind).value += 1

    def restarts_after(self, upstream: str, seconds: float) -> None:
        """Set the pause before a program is started again."""
        self._pauses.labels(upstream).set(seconds)

    def forget(self, upstream: str) -> None:
        """Remove the gauges of an upstream that is no longer configured; counters stay, and calls that are held."""
        self._sessions.pools.pop(upstream, None)
        for gauge in (self._entries, self._breakers, self._in_flight, self._pauses):
            gauge.remove_by_labels({"upstream": upstream})
        self._in_flight_of.pop(upstream, None)
        self._warned_at = {place: at for place, at in self._warned_at.items() if place[0] != upstream}
