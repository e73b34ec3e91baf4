"""The metrics of admission control."""

from __future__ import annotations

from gateway.admission.inflight import InFlight
from gateway.observability.counters import Counts
from gateway.observability.metrics import Telemetry


def show_load(load: InFlight, telemetry: Telemetry) -> None:
    """Show the state of admission control, which is read at each scrape."""
    for name, documentation, value in (
        ("gateway_inflight_limit", "How many requests may be worked on at once now.", lambda: load.limit),
        ("gateway_requests_in_flight", "Requests that are worked on or wait now.", lambda: load.in_flight),
        ("gateway_requests_waiting", "Requests that wait for a place now.", lambda: load.waiting),
        ("gateway_callers_waiting", "Callers that wait for a place now.", lambda: load.callers_waiting),
        (
            "gateway_queue_wait_p90_seconds",
            "Time from a request's headers to its leg, 90th percentile, including requests that still wait.",
            lambda: load.queue_wait_p90,
        ),
        (
            "gateway_queue_target_seconds",
            "Target for the time that requests wait for their leg, 90th percentile.",
            lambda: load.shedding.target_seconds,
        ),
        ("gateway_draining", "Whether this replica is draining: 1 or 0.", lambda: load.shedding.draining),
    ):
        telemetry.gauge(name, documentation).set_function(value)
    Counts(
        "gateway_share_refusals",
        "Requests refused because their caller already had its share of a busy replica.",
        (),
        telemetry.registry,
    ).show(load.share_refusals)
