"""`gateway size`: calculates the deployment for a load, and prints it for people or programs."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from gateway.sizing.costs import MEASURED, GatewayCosts
from gateway.sizing.model import PREFIXES_REMEMBERED, Demand, Group, LostZone, Policy, SizedDeployment, size

_SHARES: Final = {"task_share", "utilization", "lost_utilization", "upgrade_share", "redis_utilization"}
_MAY_BE_ZERO: Final = {
    *("rounds", "think_seconds", "state_bytes", "tool_cpu_seconds", "tool_wait_seconds", "task_share"),
    *("task_seconds", "task_cpu_seconds", "task_rounds", "task_steps", "task_polls", "task_bytes", "upgrade_share"),
}
_MAY_BE_ONE: Final = {"task_share"}
_COLUMNS: Final = 80
_UNITS: Final = ("B", "KB", "MB", "GB", "TB")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe the load, and how the deployment is run."""
    _add_fields(parser.add_argument_group("load, at the busiest moment"), Demand)
    _add_fields(parser.add_argument_group("deployment"), Policy)
    costs = parser.add_argument_group("capacity of one replica")
    costs.add_argument(
        "--costs",
        type=Path,
        default=MEASURED,
        metavar="FILE",
        help="costs measured on your machine; run `python -m loadtest size --measure` in a checkout to write this file",
    )
    costs.add_argument(
        "--legs-per-second",
        type=_number("legs_per_second"),
        metavar="N",
        help="how many legs one replica serves with your tools when its core is always busy; overrides the costs",
    )
    parser.add_argument("--json", action="store_true", help="print the deployment as JSON")


def _add_fields(group: argparse._ArgumentGroup, of: type[Demand | Policy]) -> None:
    for field in dataclasses.fields(of):
        group.add_argument(
            _option_of(field.name),
            type=_number(field.name, whole=field.type == "int"),
            default=field.default,
            metavar="N",
            help=f"{field.metadata['text']} (default: {field.default:g})",
        )


def _option_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _number(name: str, *, whole: bool = False) -> Any:
    def read(text: str) -> float:
        number = int(text) if whole else float(text)
        if not math.isfinite(number) or number < 0 or (number == 0 and name not in _MAY_BE_ZERO):
            raise argparse.ArgumentTypeError(f"{text} is not a positive number")
        if name in _SHARES and (number > 1 or (number == 1 and name not in _MAY_BE_ONE)):
            raise argparse.ArgumentTypeError(f"{text} is not a share below 1")
        return number

    read.__name__ = "number"
    return read


def perform(given: argparse.Namespace) -> int:
    """Print the deployment that the options ask for, and return the exit code.

    Raises:
        ConfigurationError: the file of costs cannot be used.
    """
    demand, policy = _read(Demand, given), _read(Policy, given)
    costs = GatewayCosts.load(given.costs)
    deployment = size(demand, policy, costs, given.legs_per_second)
    if given.json:
        print(json.dumps(dataclasses.asdict(deployment), indent=2))
        return 0
    for line in describe(deployment, costs):
        print(line)
    return 0


def _read(kind: Any, given: argparse.Namespace) -> Any:
    return kind(**{field.name: getattr(given, field.name) for field in dataclasses.fields(kind)})


def describe(deployment: SizedDeployment, costs: GatewayCosts) -> Iterator[str]:
    """Yield a deployment in lines, for people."""
    yield "Load, at the busiest moment"
    yield from _asked(deployment)
    yield "\nDeployment"
    yield from _needed(deployment)
    yield f"\nSeal key, replaced every {deployment.policy.key_days:g} days"
    yield from _key_use(deployment)
    if deployment.lost_zone:
        yield "\nIf a zone is lost at that moment"
        yield from _lost_zone(deployment, deployment.lost_zone)
    yield f"\nCosts were measured on: {costs.measured_on}"
    assumed = " ".join(_assumed(deployment.demand))
    if assumed:
        yield "\nAssumed, because no option says otherwise"
        yield textwrap.indent(textwrap.fill(assumed, _COLUMNS, break_on_hyphens=False), "  ")


def _assumed(demand: Demand) -> Iterator[str]:
    """Yield the options for the load that have their defaults; those of tasks only if there are any."""
    for field in dataclasses.fields(demand):
        matters = demand.task_share or field.name == "task_share" or not field.name.startswith("task_")
        if matters and getattr(demand, field.name) == field.default:
            yield f"{_option_of(field.name)}={field.default:g}"


def _asked(deployment: SizedDeployment) -> Iterator[str]:
    demand = deployment.demand
    yield _row("calls", f"{demand.calls_per_second:,.0f} a second, {demand.tasks_per_second:,.0f} of them tasks")
    legs = f"{demand.legs_per_second:,.0f} of them legs of calls"
    yield _row("requests", f"{demand.requests_per_second:,.0f} a second, {legs}")
    yield _row("in", f"{_amount(deployment.inbound_bytes_per_second)}/s to replicas")
    yield _row("out", f"{_amount(deployment.outbound_bytes_per_second)}/s to clients")


def _needed(deployment: SizedDeployment) -> Iterator[str]:
    redis = deployment.redis
    yield _row("one replica", f"serves {deployment.capacity:,.0f} legs a second if its core is always busy")
    yield _row("replicas", _group(deployment.replicas))
    if not deployment.workers:
        yield _row("workers", "no workers or Redis, because there are no tasks")
        return
    yield _row("workers", _group(deployment.workers))
    yield _row("Redis", f"{_count(redis.servers, 'primary', 'primaries')}, decided by {redis.decided_by}")
    yield _row("", f"{_amount(redis.memory_bytes)} stored, {redis.requests_per_second:,.0f} requests a second,")
    yield _row("", f"up to {redis.idle_reads_per_second:,.0f} reads a second by idle workers,")
    yield _row("", f"{redis.connections:,} connections")


def _key_use(deployment: SizedDeployment) -> Iterator[str]:
    use = deployment.key_use
    yield _row("seals", f"{use.seals_per_second:,.0f} a second, {use.seals:.1e} in total")
    if use.safe_years is not None:
        safe = f"the limit of 2^-32 would be reached after {use.safe_years:,.1f} years"
        yield _row("repeated nonce", f"probability below {use.nonce_risk:.0e}; {safe}")
    fits = use.live_prefixes <= PREFIXES_REMEMBERED
    told = "all are cached" if fits else f"{PREFIXES_REMEMBERED:,} are cached, the others are derived each time"
    yield _row("nonce prefixes", f"{use.live_prefixes:,.0f} in use; {told}")


def _lost_zone(deployment: SizedDeployment, lost: LostZone) -> Iterator[str]:
    yield _row("spare capacity", f"{lost.processes:,} of all replicas and workers")
    yield _row("legs lost", f"{lost.legs_lost:,.0f}; clients send them again")
    yield _row("calls kept", f"{lost.calls_kept:,.0f} wait for their users and continue elsewhere")
    if deployment.workers:
        yield _row("tasks", f"{lost.tasks_repeated:,.0f} resume elsewhere after {lost.silence_seconds:.0f} seconds")


def _row(name: str, text: str) -> str:
    return f"  {name:16} {text}"


def _group(group: Group) -> str:
    lost = "" if group.lost_utilization is None else f", {group.lost_utilization:.0%} with a zone lost"
    return (
        f"{group.count:,}, decided by {group.decided_by}; cores {group.utilization:.0%} busy{lost}."
        f" {group.in_normal_times:,} would be enough without failures and upgrades"
    )


def _count(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def _amount(number: float) -> str:
    """Format a number of bytes for people."""
    power = min(int(math.log10(max(1.0, number))) // 3, len(_UNITS) - 1)
    return f"{number / 1000**power:,.3g} {_UNITS[power]}" if power else f"{number:.0f} B"
