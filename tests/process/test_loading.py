"""The settings determine which libraries a process loads: one that it never uses would waste memory."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.cluster import new_key

pytestmark = pytest.mark.slow

TOP = Path(__file__).parent.parent.parent
SERVING = {
    "GATEWAY_TOOLS": "gateway.demo",
    "GATEWAY_AUDIENCE": "tests",
    "GATEWAY_JWT_SECRET": "s" * 32,
    "GATEWAY_METRICS_PORT": "off",
}
LIBRARIES = ("redis", "opentelemetry.sdk", "gateway.observability.tracing")
STORE = {"GATEWAY_REDIS_URL": "redis://127.0.0.1:1/0"}
TRACES = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
CASES = [
    ({}, set()),
    (STORE, {"redis"}),
    (TRACES, {"opentelemetry.sdk", "gateway.observability.tracing"}),
]
PROGRAM = f"""
import os
import sys
from gateway.process.app import create_app

for settings in {[settings for settings, _ in CASES]}:
    if os.fork() == 0:
        os.environ.update(settings)
        app = create_app()
        print(*[name for name in {LIBRARIES} if name in sys.modules], flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


@functools.cache
def loaded_libraries() -> list[set[str]]:
    """Return the libraries that a process has loaded in each case. All cases have one import of the gateway."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("GATEWAY_", "OTEL_"))}
    environ |= {**SERVING, "GATEWAY_SEAL_KEYS": new_key()}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environ, cwd=TOP, capture_output=True, text=True, check=True
    )
    return [set(line.split()) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(("settings", "loaded"), CASES)
def test_a_replica_loads_redis_for_its_task_store_and_opentelemetry_for_its_traces(
    settings: dict[str, str], loaded: set[str]
) -> None:
    found = loaded_libraries()[[each for each, _ in CASES].index(settings)]
    # redis-py loads OpenTelemetry wherever it is installed.
    assert loaded <= found <= loaded | ({"opentelemetry.sdk"} if "redis" in loaded else set())
