"""A mounted gateway cleans up when its lifespan ends, and does not touch the tracing and logging of its host."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI
from opentelemetry import trace

import gateway
from gateway.errors import ConfigurationError
from loadtest.cluster import free_port, new_key
from tests.asgi import Client, raw_headers
from tests.identity import ISSUER
from tests.integration.raw import tool_call

SETTINGS: dict[str, Any] = {"seal_keys": new_key(), "audience": "tests", "auth": "none"}
ECHO = tool_call("echo", {"text": "hello"})

opens = True


@gateway.lifespan
async def fragile() -> AsyncIterator[None]:
    """Open only where `opens` says so."""
    if not opens:
        raise OSError("out of order")
    yield


def mounted(**settings: Any) -> FastAPI:
    app = FastAPI()
    gateway.mount(app, "/tools", **{"tools": ["tests.integration.tools", __name__], **SETTINGS, **settings})
    return app


async def call(app: FastAPI) -> None:
    """Start the host, call a tool once, and end the host."""
    async with app.router.lifespan_context(app):
        answer = await Client(app).send([msgspec.json.encode(ECHO)], raw_headers(ECHO), path="/tools/mcp")
        assert answer.text == "hello"


def kept(audit: Path) -> tuple[int, int]:
    """Count the threads that write lines, and the descriptors of the audit log."""
    writers = [thread for thread in threading.enumerate() if thread.name == "log writer"]
    is_audit = [entry.exists() and entry.samefile(audit) for entry in Path("/proc/self/fd").iterdir()]
    return len(writers), sum(is_audit)


def lines_in(audit: Path) -> int:
    return audit.read_text().count("audit=leg")


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    audit = tmp_path / "audit"
    audit.touch()
    return audit


async def test_each_lifespan_writes_its_audit_lines_and_closes_the_file(audit: Path) -> None:
    app = mounted(audit_log=str(audit))
    before = kept(audit)
    for number in range(1, 4):
        await call(app)
        assert lines_in(audit) == number
    assert kept(audit) == before


async def test_a_start_that_fails_closes_the_audit_log(audit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "opens", False)
    before = kept(audit)
    with pytest.raises(ConfigurationError, match="out of order"):
        await call(mounted(audit_log=str(audit)))
    assert kept(audit) == before


async def test_a_gateway_that_cannot_be_built_closes_the_audit_log(audit: Path, tmp_path: Path) -> None:
    keys = tmp_path / "jwks.json"
    keys.write_text("no keys")
    before = kept(audit)
    with pytest.raises(ConfigurationError, match="JWK"):
        await call(mounted(audit_log=str(audit), auth="jwt", jwt_issuer=ISSUER, jwks_file=str(keys)))
    assert kept(audit) == before


async def test_the_tracer_provider_and_the_log_handlers_of_the_host_stay(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    provider = trace.get_tracer_provider()
    filters = [list(handler.filters) for handler in logging.getLogger().handlers]
    for _ in range(2):
        async with (app := mounted()).router.lifespan_context(app):
            assert trace.get_tracer_provider() is provider
    assert [handler.filters for handler in logging.getLogger().handlers] == filters
    assert "TracerProvider" not in caplog.text
