"""Drive a running `gateway dev` with the official MCP client; show where each leg runs and how tasks progress.

Exits with 1 if a call returns a wrong result, or if a call with several legs stays on one replica. A tool that should
become a task, but does not, counts as a failure too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import mcp_types
from mcp.client.client import Client
from mcp.client.context import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client

from scripts.tasks_client import Task, Tasks

START_SECONDS = 30
CALL_SECONDS = 30
BAR_CHARACTERS = 12

ANSWERS: dict[str, dict[str, str | int | float | bool | list[str] | None]] = {
    "name": {"name": "octocat"},
    "resolution": {"resolution": "Duplicate"},
    "duplicateOfId": {"duplicateOfId": 4301},
    "input": {"input": "Hello World!"},
    "size": {"size": "small"},
    "confirm": {"confirm": True},
}

CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("get_weather", {"location": "New York"}, "Current weather in New York"),
    (
        "update_work_item",
        {"workItemId": 4522, "fields": {"System.State": "Resolved"}},
        "Bug #4522 resolved as Duplicate of Bug #4301",
    ),
    ("link_accounts", {}, "Linked GitHub account octocat"),
    ("crunch", {"units": 5, "unitMs": 10}, "Computed 5 units"),
]

TASKS: list[tuple[str, dict[str, Any], str]] = [
    ("echo", {}, "Echo: Hello World!"),
    ("report", {"city": "New York", "sections": 6}, "6. Parks in New York"),
    ("provision_vm", {}, "of size small is running (provisioned in the background)"),
]
"""Tools that become tasks: name, arguments and expected answer."""


@dataclass
class Leg:
    """One HTTP request of a call, and its result."""

    replica: str
    brought: int
    outcome: str
    state: int


@dataclass
class Recorder:
    """Watches the client's HTTP traffic for `tools/call` and prints each leg as it ends."""

    legs: list[Leg] = field(default_factory=list)

    async def on_response(self, response: httpx2.Response) -> None:
        """Record one response; the client reads it again from memory."""
        request = json.loads(response.request.content or b"{}")
        if request.get("method") != "tools/call":
            return
        body = json.loads(await response.aread())
        result = body.get("result", {})
        outcome = "completed"
        if result.get("resultType") == "input_required":
            outcome = "asks " + ", ".join(result["inputRequests"])
        elif result.get("resultType") == "task":
            outcome = f"continues as task {result['taskId'][:8]}…"
        elif "error" in body or result.get("isError"):
            outcome = "failed"
        leg = Leg(
            replica=response.headers.get("x-gateway-replica", "?"),
            brought=len(request["params"].get("requestState") or ""),
            outcome=outcome,
            state=len(result.get("requestState", "")),
        )
        self.legs.append(leg)
        show_leg(len(self.legs), leg)


def show_leg(number: int, leg: Leg) -> None:
    """Print one line: where the leg ran, how it ended, and the state that the client carries now."""
    carries = f"client carries {leg.state} bytes of sealed state" if leg.state else ""
    brought = f"(received {leg.brought} bytes)" if leg.brought else ""
    print(f"  leg {number}  on {leg.replica:<4} {brought:<21} {leg.outcome:<36} {carries}".rstrip(), flush=True)


@dataclass
class TaskView:
    """Prints the status of tasks as it changes."""

    seen: list[str] = field(default_factory=list)

    def on_change(self, task: Task) -> None:
        """Print one line for a change."""
        self.seen.append(task.status)
        done, total = task.progress.get("progress", 0), task.progress.get("total")
        bar = ""
        if total:
            filled = round(BAR_CHARACTERS * done / total)
            bar = f"[{'#' * filled}{'.' * (BAR_CHARACTERS - filled)}] "
        asks = f"asks {', '.join(task.input_requests)}" if task.input_requests else ""
        print(f"  task   {task.status:<15} {bar}{task.status_message or asks}".rstrip(), flush=True)


async def answer(
    context: ClientRequestContext,  # noqa: ARG001 - the client's signature
    params: mcp_types.ElicitRequestParams,
) -> mcp_types.ElicitResult:
    """Answer a question as a user would, and print both."""
    assert isinstance(params, mcp_types.ElicitRequestFormParams)
    first = next(iter(params.requested_schema["properties"]))
    print(f"         ? {params.message}\n         > {next(iter(ANSWERS[first].values()))}", flush=True)
    return mcp_types.ElicitResult(action="accept", content=ANSWERS[first])


async def drive(url: str) -> int:
    """Make every call once; return the exit code."""
    recorder = Recorder()
    tasks = TaskView()
    problems: list[str] = []
    async with (
        httpx2.AsyncClient(event_hooks={"response": [recorder.on_response]}, timeout=CALL_SECONDS) as http,
        Client(
            streamable_http_client(url, http_client=http),
            elicitation_callback=answer,
            extensions=[Tasks(tasks.on_change)],
        ) as client,
    ):
        for tool, arguments, expected in CALLS:
            problems += await call(client, tool, arguments, expected, recorder)
        served = {entry.name for entry in (await client.list_tools()).tools}
        if "echo" not in served:
            print(
                "\nTasks are off, so the tools that become tasks are skipped. `gateway dev` says how to turn tasks on."
            )
        else:
            for tool, arguments, expected in TASKS:
                tasks.seen.clear()
                problems += await call(client, tool, arguments, expected, recorder)
                if "completed" not in tasks.seen:
                    problems.append(f"{tool} did not become a task that completed")
    print()
    for problem in problems:
        print(f"demo: {problem}")
    if not problems:
        print("Every call with several legs changed replicas, and no replica kept any state in between.")
    return 1 if problems else 0


async def call(client: Client, tool: str, arguments: dict[str, Any], expected: str, recorder: Recorder) -> list[str]:
    """Make one call, print its course, and return its problems."""
    recorder.legs.clear()
    problems = []
    print(f"\n{tool} {json.dumps(arguments)}", flush=True)
    result = await client.call_tool(tool, arguments)
    text = "\n".join(block.text for block in result.content if isinstance(block, mcp_types.TextContent))
    print("  = " + text.replace("\n", "\n    "), flush=True)
    if expected not in text:
        problems.append(f"{tool} did not answer {expected!r}")
    replicas = {leg.replica for leg in recorder.legs}
    if len(recorder.legs) > 1 and len(replicas) < 2:
        problems.append(f"{tool} took {len(recorder.legs)} legs, all on {', '.join(replicas)}")
    return problems


def is_ready(url: str) -> bool:
    """Return whether a gateway answers at `url`."""
    try:
        with urllib.request.urlopen(url.removesuffix("/mcp") + "/readyz", timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextlib.contextmanager
def gateway(url: str) -> Iterator[str]:
    """Yield the URL of a running gateway: the one at `url`, or one that is started for this demo only."""
    if is_ready(url):
        yield url
        return
    print(f"Nothing runs at {url}. Starting `gateway dev` for this demo; `make run` starts one that keeps running.")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = subprocess.Popen(
        [sys.executable, "-m", "gateway", "dev", "--port", str(port)],
        env={**os.environ, "GATEWAY_METRICS_PORT": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert own.stdout is not None
        for line in own.stdout:
            print(f"  | {line}", end="")
            if is_ready(f"http://127.0.0.1:{port}/mcp"):
                break
        if own.poll() is not None:
            raise SystemExit("demo: `gateway dev` did not start")
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        own.send_signal(signal.SIGINT)
        own.communicate(timeout=START_SECONDS)


def main() -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080/mcp", help="where `gateway dev` listens")
    with gateway(parser.parse_args().url) as url:
        return asyncio.run(drive(url))


if __name__ == "__main__":
    sys.exit(main())
