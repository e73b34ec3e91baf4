"""More rows in Locust's statistics: one per tool for whole calls, one per replica for the legs that it answered.

They do not count towards `Aggregated`, which stays the sum of HTTP requests.
"""

from __future__ import annotations

from locust.env import Environment
from locust.stats import StatsError

from loadtest.client import call_listeners, leg_listeners
from loadtest.rawdata import Call, Leg


def add_rows(environment: Environment) -> None:
    """Add rows for calls and replicas to the statistics of this run."""
    stats = environment.stats

    def on_leg(leg: Leg) -> None:
        if (
            leg.replica and leg.method != "subscriptions/listen"
        ):  # a stream has no latency: the client decides when it ends
            stats.get(leg.replica, "replica").log(round(leg.seconds * 1000), 0)

    def on_call(call: Call) -> None:
        if call.outcome == "unfinished":
            return
        row = stats.get(call.tool, "call")
        row.log(round(call.seconds * 1000), 0)
        if call.outcome != "finished":
            problem = f"{call.outcome}: {call.reason}"
            row.log_error(problem)
            key = StatsError.create_key("call", call.tool, problem)
            stats.errors.setdefault(key, StatsError("call", call.tool, problem)).occurred()

    leg_listeners.append(on_leg)
    call_listeners.append(on_call)
