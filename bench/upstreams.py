"""Other servers behind gateways: ours, fastmcp's proxy and Envoy's `mcp_router`, in interleaved rounds.

A cheap server stands behind each gateway, so that its cost is not theirs. It shares a core with the load; the gateway
that is measured has a core of its own.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench import servers
from bench.cases import Plans, Target, call, check_complete, echo_plans, request
from bench.goals import Goal, Verdict
from bench.load import Exchange, LoadError, Measurement, measure
from bench.options import Options
from bench.report import Section
from bench.servers import Cores, Server
from bench.tables import table

OURS: Final = "ours"
WITH_UPSTREAMS: Final = "ours, with 10 upstreams"
ENVOY: Final = "Envoy's mcp_router"
FASTMCP: Final = "fastmcp's proxy"
SDK: Final = "mcp SDK, directly"
THROUGH: Final = "mcp SDK, behind ours"
PROXIED: Final = "echo of an upstream"
LOCAL: Final = "local echo"
LIST: Final = "tools/list, a page of 2,500 tools"
ALONE: Final = "echo of an upstream, one caller"
BESIDE: Final = "the same beside a caller whose calls fail, hang, are huge and given up"
IN_SESSION: Final = "echo of an upstream, in a session over HTTP"
IN_CHILD: Final = "echo of an upstream that is a program"
SHARED: Final = "shared"
"""The upstream of both callers."""
STRICT: Final = {"timeout_seconds": 1, "max_result_bytes": 2**20, "max_in_flight": 16}
"""Its options: so calls that hang end, and those that are huge are cut."""
NO_OPTIONS: Final[Mapping[str, Any]] = {}
CONNECTIONS_OF_ONE: Final = 8
SETTLE_SECONDS: Final = 2.0
"""Load before such a measurement: the first calls that hang have ended then."""
WARMUP: Final = 100
IDLE_SESSIONS: Final = 1000
"""How many sessions are open before memory is measured, and how many are opened then. Each has a caller of its own."""
UPSTREAMS: Final = 10
TOOLS_EACH: Final = 250

BESIDE_ENVOY: Final = Goal("CPU time of a proxied echo, identity and audit on, compared with Envoy's mcp_router", 3)
BESIDE_FASTMCP: Final = Goal("CPU time of a proxied echo, compared with fastmcp's proxy", 0.01)
TAIL: Final = Goal("99th percentile of an echo of the SDK at 32 connections, compared with calling it directly", 1.5)
FAIR: Final = Goal("99th percentile of a caller's echo beside one whose calls all go wrong, compared with alone", 1.5)
SESSIONS: Final = Goal("CPU time of an echo in a session over HTTP, compared with a stateless one", 2)
CHILDREN: Final = Goal("CPU time of an echo of a program, compared with a stateless one over HTTP", 2)
IDLE: Final = Goal("memory of an idle session with its stream, 1,000 at once", 32, " KiB")
LISTS: Final = Goal("CPU time of tools/list of 10 upstreams × 250 tools, compared with 2,500 local tools", 1.03)
LOCAL_TOOLS: Final = Goal("CPU time of a local echo beside 10 upstreams, compared with none", 1.03)


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement at one server.

    Attributes:
        name: of the case.
        server: its name in the report.
        make_plans: makes the plans of the load.
        by_one: whether one caller has all connections, and not each another one.
        beside: the prefix of the upstream to which another caller sends calls that all go wrong; "" for none.
    """

    name: str
    server: str
    make_plans: Callable[[Target], Plans]
    by_one: bool = False
    beside: str = ""


def section(options: Options, cores: Cores) -> Section:
    """Measure gateways with upstreams and sum them up.

    Raises:
        ServerError, LoadError: something cannot be measured.
    """
    measured: dict[tuple[str, str], list[Measurement]] = {}
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        running = _start(stack, cores, Path(folder))
        os.sched_setaffinity(0, {cores.load})
        for number in range(options.rounds):
            print(f"upstreams: round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            for case in CASES:
                found = _measured(case, running[case.server], options, cores)
                measured.setdefault((case.name, case.server), []).append(found)
    return _summed_up(measured, idle_session_kib(cores), options)


def _measured(case: Case, server: Server, options: Options, cores: Cores) -> Measurement:
    tokens = [server.token] * CONNECTIONS_OF_ONE if case.by_one else server.tokens(options.connections)
    with servers.hostile(cores, server, case.beside) if case.beside else nullcontext():
        return measure(
            server.port,
            case.make_plans(Target(server.port, tokens)),
            warmup_seconds=SETTLE_SECONDS if case.by_one else options.warmup_seconds,
            seconds=options.seconds,
            server_cpu=server.cpu_seconds,
        )


def _start(stack: ExitStack, cores: Cores, folder: Path) -> dict[str, Server]:
    """Start all servers. Ours has 2,500 local tools and two upstreams; its twin has few tools and ten upstreams."""
    upstream = stack.enter_context(servers.upstream(cores))
    large = stack.enter_context(servers.upstream(cores, TOOLS_EACH))
    sdk = stack.enter_context(servers.sdk(cores))
    few = {
        "up": _entry(upstream),
        "sdk": _entry(sdk),
        SHARED: _entry(upstream, STRICT),
        "session": _entry(upstream, {"era": "session"}),
        "child": {"command": sys.executable, "args": ["-m", "bench.peers.program", str(cores.load)]},
    }
    many = {f"up{number}": _entry(large) for number in range(UPSTREAMS)}
    settings = servers.production(**servers.NEVER_OVERLOADED, BENCH_TOOLS=str(UPSTREAMS * TOOLS_EACH))
    ours = settings | {"GATEWAY_TOOLS": "bench.many_tools", "GATEWAY_UPSTREAMS": _file(folder / "few.json", few)}
    twin = settings | {"GATEWAY_TOOLS": "bench.race_tools", "GATEWAY_UPSTREAMS": _file(folder / "many.json", many)}
    # The SDK keeps its core when it is called through ours, which shares the core of the load then.
    elsewhere = Cores(server=cores.load, load=cores.load)
    return {
        OURS: stack.enter_context(servers.ours(cores, ours)),
        WITH_UPSTREAMS: stack.enter_context(servers.ours(cores, twin)),
        THROUGH: stack.enter_context(servers.ours(elsewhere, ours)),
        ENVOY: stack.enter_context(servers.envoy(cores, upstream)),
        FASTMCP: stack.enter_context(servers.fastmcp_proxy(cores, upstream)),
        SDK: sdk,
    }


def idle_session_kib(cores: Cores) -> float:
    """Return how much memory one session takes that was used once, with what is kept about its caller."""
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        upstream = stack.enter_context(servers.upstream(cores))
        options = {"era": "session", "max_connections": WARMUP + IDLE_SESSIONS + 1, "idle_seconds": 600}
        file = _file(Path(folder) / "session.json", {"session": _entry(upstream, options)})
        settings = servers.production(**servers.NEVER_OVERLOADED, GATEWAY_UPSTREAMS=file)
        server = stack.enter_context(servers.ours(cores, settings))
        tokens = server.tokens(WARMUP + IDLE_SESSIONS)
        before = 0.0
        for number, token in enumerate(tokens):
            if number == WARMUP:
                before = server.resident_mib()
            _called_once(server.port, number, token)
        return (server.resident_mib() - before) * 1024 / IDLE_SESSIONS


def _called_once(port: int, number: int, token: str | None) -> None:
    """Send one call on a connection of its own.

    Raises:
        LoadError: its answer is wrong.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(call(port, number, "session__echo", {"text": "hello"}, token=token))
        response = http.client.HTTPResponse(connection)
        response.begin()
        problem = check_complete(response.read(), number=number, text="hello")
    if problem is not None:
        raise LoadError(problem)


def _entry(server: Server, options: Mapping[str, Any] = NO_OPTIONS) -> dict[str, Any]:
    return {"url": f"http://127.0.0.1:{server.port}/mcp", "gateway": dict(options)}


def _file(path: Path, upstreams: Mapping[str, Any]) -> str:
    """Write a file of upstreams, and return its path."""
    path.write_text(json.dumps({"mcpServers": upstreams}))
    return str(path)


def _list_plans(target: Target) -> Plans:
    def check(body: bytes) -> str | None:
        tools = json.loads(body).get("result", {}).get("tools", [])
        return None if len(tools) == TOOLS_EACH else f"expected a page of {TOOLS_EACH} tools, got {body[:300]!r}"

    def exchange(number: int, token: str | None) -> Exchange:
        return Exchange(request(target.port, number, "tools/list", "", {}, token=token), check)

    return [[exchange(number, token)] for number, token in enumerate(target.tokens)]


CASES: Final = (
    Case(PROXIED, OURS, partial(echo_plans, tool="up__echo")),
    Case(IN_SESSION, OURS, partial(echo_plans, tool="session__echo")),
    Case(IN_CHILD, OURS, partial(echo_plans, tool="child__echo")),
    Case(PROXIED, ENVOY, partial(echo_plans, tool="up__echo")),
    Case(PROXIED, FASTMCP, partial(echo_plans, tool="up_echo")),
    Case(PROXIED, SDK, echo_plans),
    Case(PROXIED, THROUGH, partial(echo_plans, tool="sdk__echo")),
    Case(ALONE, OURS, partial(echo_plans, tool=f"{SHARED}__echo"), by_one=True),
    Case(BESIDE, OURS, partial(echo_plans, tool=f"{SHARED}__echo"), by_one=True, beside=SHARED),
    Case(LOCAL, OURS, echo_plans),
    Case(LOCAL, WITH_UPSTREAMS, echo_plans),
    Case(LIST, OURS, _list_plans),
    Case(LIST, WITH_UPSTREAMS, _list_plans),
)


def _summed_up(measured: Mapping[tuple[str, str], list[Measurement]], idle_kib: float, options: Options) -> Section:
    numbers = {
        place: {
            "requests_per_second": statistics.median(each.requests_per_second for each in found),
            "cpu_us_per_request": statistics.median(each.cpu_us_per_request for each in found),
            "p50_ms": statistics.median(each.latency_ms(0.5) for each in found),
            "p99_ms": statistics.median(each.latency_ms(0.99) for each in found),
        }
        for place, found in measured.items()
    }
    wrong = [
        f"{server}, {case}: {problem}"
        for (case, server), found in measured.items()
        for each in found
        for problem in each.wrong
    ]
    rows = [
        (
            server,
            case,
            f"{row['requests_per_second']:,.0f}",
            f"{row['cpu_us_per_request']:,.0f}",
            f"{row['p50_ms']:.2f} / {row['p99_ms']:.2f}",
        )
        for (case, server), row in numbers.items()
    ]
    lines = [
        "## Upstreams",
        "",
        f"Medians of {options.rounds} interleaved rounds of {options.seconds:g} s each, {options.connections} "
        f"keep-alive connections, or {CONNECTIONS_OF_ONE} of one caller. Ours checks a token for each connection's "
        "user, limits their rates, counts metrics and writes an audit log; the others do none of this. The CPU time is "
        "that of the gateway's process alone.",
        "",
        *table(("server", "case", "req/s", "CPU µs a request", "p50 / p99 ms"), rows, texts=2),
    ]
    document = {
        "medians": [{"server": server, "case": case, **row} for (case, server), row in numbers.items()],
        "rounds": options.rounds,
        "seconds": options.seconds,
        "connections": options.connections,
        "idle_session_kib": idle_kib,
    }
    verdicts = [] if wrong else [*_verdicts(numbers), IDLE.judge(idle_kib)]
    return Section("upstreams", "replicas, `gateway serve`", "\n".join(lines) + "\n", document, verdicts, wrong)


def _verdicts(numbers: Mapping[tuple[str, str], Mapping[str, float]]) -> list[Verdict]:
    def ratio(goal: Goal, what: str, ours: tuple[str, str], theirs: tuple[str, str]) -> Verdict:
        return goal.judge(
            numbers[ours][what] / numbers[theirs][what], _shown(numbers[ours][what], numbers[theirs][what])
        )

    def _shown(ours: float, theirs: float) -> str:
        return f"{ours / theirs:.3f} ×: {ours:,.1f} and {theirs:,.1f}"

    cpu = "cpu_us_per_request"
    return [
        ratio(BESIDE_ENVOY, cpu, (PROXIED, OURS), (PROXIED, ENVOY)),
        ratio(BESIDE_FASTMCP, cpu, (PROXIED, OURS), (PROXIED, FASTMCP)),
        ratio(SESSIONS, cpu, (IN_SESSION, OURS), (PROXIED, OURS)),
        ratio(CHILDREN, cpu, (IN_CHILD, OURS), (PROXIED, OURS)),
        ratio(TAIL, "p99_ms", (PROXIED, THROUGH), (PROXIED, SDK)),
        ratio(FAIR, "p99_ms", (BESIDE, OURS), (ALONE, OURS)),
        ratio(LISTS, cpu, (LIST, WITH_UPSTREAMS), (LIST, OURS)),
        ratio(LOCAL_TOOLS, cpu, (LOCAL, WITH_UPSTREAMS), (LOCAL, OURS)),
    ]
