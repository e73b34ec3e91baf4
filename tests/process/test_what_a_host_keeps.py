"""A gateway that is mounted leaves nothing in the process of its host when a lifespan ends, and takes nothing over."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from fastapi import FastAPI
from opentelemetry import trace

import gateway
from loadtest.cluster import free_port, new_key

SETTINGS: dict[str, Any] = {"seal_keys": new_key(), "audience": "tests", "auth": "none"}


def mounted(**settings: Any) -> FastAPI:
    app = FastAPI()
    gateway.mount(app, "/tools", **{"tools": "tests.integration.tools", **SETTINGS, **settings})
    return app


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
