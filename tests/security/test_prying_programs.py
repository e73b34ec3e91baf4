"""A program of the same user reads whatever it can of the gateway's processes, from before they start. It finds no key.

Secrets in files are never seen. Those in variables can be seen until a process hides itself, as documented.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.sealing.keyring import generate_entry
from loadtest.cluster import free_port, wait_until
from tests.security.unprivileged import Unprivileged, unprivileged

PRYING = Path(__file__).with_name("prying.py")
STARTED = frozenset({"r1", "r2", "h1", "w1"})
WHOLE_ROUNDS = 10
"""How often everything is looked at once more after all have started."""
PROGRAMS = 2
"""The first one to look around, and the child of the holder."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def somebody() -> Iterator[Unprivileged]:
    with unprivileged() as somebody:
        yield somebody


@dataclass
class Planted:
    """Secrets of each kind: settings, and what the file of upstreams takes from variables and files."""

    settings: Mapping[str, str]
    variables: Mapping[str, str]

    @property
    def words(self) -> list[str]:
        """All secrets, in order."""
        return [*self.settings.values(), *self.variables.values()]


def planted(redis: str) -> Planted:
    settings = {
        "GATEWAY_SEAL_KEYS": generate_entry(secrets.token_bytes),
        "GATEWAY_JWT_SECRET": secrets.token_hex(32),
        "GATEWAY_TOKEN_EXCHANGE_CLIENT_SECRET": secrets.token_hex(16),
    }
    if redis:
        settings["GATEWAY_REDIS_URL"] = redis
    return Planted(settings, {name: secrets.token_hex(16) for name in ("SHOP_TOKEN", "CLIENT_SECRET")})


def in_files(somebody: Unprivileged, found: Mapping[str, str]) -> dict[str, str]:
    return {name: str(somebody.write(name.lower(), value)) for name, value in found.items()}


def upstreams(somebody: Unprivileged, pry: list[str], places: Mapping[str, str]) -> Path:
    """Write a file of upstreams: two with credentials, and the program itself."""
    nowhere = f"http://127.0.0.1:{free_port()}"
    credentials = {
        "kind": "client_credentials",
        "token_url": f"{nowhere}/token",
        "client_id": "gateway",
        "client_secret": places["CLIENT_SECRET"],
    }
    env = {name: value for name, value in somebody.variables.items() if name == "LD_LIBRARY_PATH"}
    entries = {
        "shop": {"url": f"{nowhere}/mcp", "headers": {"Authorization": f"Bearer {places['SHOP_TOKEN']}"}},
        "bugs": {"url": f"{nowhere}/mcp", "gateway": {"credentials": credentials}},
        "prying": {"command": somebody.python, "args": ["-S", *pry], "env": env},
    }
    return somebody.write("upstreams.json", json.dumps({"mcpServers": entries}))


@pytest.mark.parametrize("given", ["files", "variables", "variables_and_own_store"])
def test_a_program_finds_no_secret_of_dev_its_replicas_workers_and_watchers(somebody: Unprivileged, given: str) -> None:
    redis = f"redis://:{secrets.token_hex(16)}@127.0.0.1:{free_port()}/0" if given != "variables_and_own_store" else ""
    plant = planted(redis)
    report = somebody.write(f"{given}.report", "")
    pry = [str(_program(somebody)), str(somebody.write("words", "\n".join(w[::-1] for w in plant.words))), str(report)]
    if given == "files":
        settings = {f"{name}_FILE": path for name, path in in_files(somebody, plant.settings).items()}
        places = {name: f"${{file:{path}}}" for name, path in in_files(somebody, plant.variables).items()}
        variables: Mapping[str, str] = {}
    else:
        settings, variables = dict(plant.settings), plant.variables
        places = {name: f"${{{name}}}" for name in variables}
    others = {
        "GATEWAY_UPSTREAMS": str(upstreams(somebody, pry, places)),
        "GATEWAY_TOKEN_EXCHANGE_URL": f"http://127.0.0.1:{free_port()}/token",
        "GATEWAY_TOKEN_EXCHANGE_CLIENT_ID": "gateway",
        "GATEWAY_METRICS_PORT": "off",
    }
    with contextlib.ExitStack() as stack:
        prying = stack.enter_context(ended(somebody.start([somebody.python, "-S", *pry], {})))
        wait_until(lambda: rounds(report) > 1, "the program looks around")
        run_dev(stack, somebody, {**settings, **variables, **others})
        wait_until(lambda: len(lookers(report)) >= PROGRAMS, "the program of the holder looks around")
        started_at, last = time.time(), rounds(report)
        wait_until(lambda: rounds(report) >= last + WHOLE_ROUNDS, "more looks")
        assert prying.poll() is None
    found = [each for each in lines(report) if "secrets" in each]
    print(f"{given}: {summary(found)}")  # noqa: T201
    if given == "files":
        assert found == []
    assert [each for each in found if each["at"] > started_at] == []
    assert {each["where"] for each in found} <= {"environ"}
    assert [each for each in found if "\0-m\0gateway\0" not in each.get("command", "\0-m\0gateway\0")] == []


def run_dev(stack: contextlib.ExitStack, somebody: Unprivileged, env: Mapping[str, str]) -> None:
    """Start `gateway dev`, and wait until all its processes run."""
    command = [somebody.python, "-m", "gateway", "dev", "--port", "0", "--replicas", "2", "--workers", "1"]
    dev = stack.enter_context(ended(somebody.start(command, env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)))
    assert dev.stdout is not None
    said, running = "", set()
    for line in dev.stdout:
        said += line
        running |= set(re.findall(r"(\w+) is (?:ready|running): pid", line))
        if running >= STARTED:
            return
    raise AssertionError(said)


@contextlib.contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """End a process with the context."""
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def _program(somebody: Unprivileged) -> Path:
    return somebody.write("prying.py", PRYING.read_text())


def lines(report: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in report.read_text().split("\n")[:-1]]


def rounds(report: Path) -> int:
    return sum("rounds" in each for each in lines(report))


def lookers(report: Path) -> set[int]:
    return {each["by"] for each in lines(report) if "by" in each}


def summary(found: list[dict[str, Any]]) -> str:
    """Return how long secrets could be seen, by command."""
    ages: dict[str, float] = {}
    for each in found:
        command = each.get("command", "?").replace("\0", " ")[-60:]
        ages[command] = max(ages.get(command, 0), each["age"])
    return ", ".join(f"{command!r} until {age:.2f} s" for command, age in ages.items()) or "nothing"
