"""The settings determine which libraries a process loads: one that it never uses would waste memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.cluster import new_key

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


@pytest.mark.parametrize(
    ("settings", "loaded"),
    [
        ({}, set()),
        (STORE, {"redis"}),
        (TRACES, {"opentelemetry.sdk", "gateway.observability.tracing"}),
    ],
)
def test_a_replica_loads_redis_for_its_task_store_and_opentelemetry_for_its_traces(
    settings: dict[str, str], loaded: set[str]
) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("GATEWAY_", "OTEL_"))}
    environ |= {**SERVING, "GATEWAY_SEAL_KEYS": new_key(), **settings}
    code = (
        "import sys; from gateway.process.app import create_app; app = create_app();"
        f"print(*[name for name in {LIBRARIES!r} if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env=environ, cwd=TOP, capture_output=True, text=True, check=True
    )
    # redis-py loads OpenTelemetry wherever it is installed.
    assert loaded <= set(result.stdout.split()) <= loaded | ({"opentelemetry.sdk"} if "redis" in loaded else set())
