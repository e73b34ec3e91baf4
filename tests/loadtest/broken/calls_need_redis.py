"""A gateway that asks its store before each leg of a call."""

from __future__ import annotations

import sys

from gateway.calls.runner import LegRequest, Ran
from gateway.cli import main as cli
from gateway.process import app
from gateway.process.replica import Services
from gateway.process.replica import build as make
from gateway.settings.model import Settings


def build(settings: Settings) -> Services:
    services = make(settings)
    run, store = services.calls.run, services.store
    assert store is not None

    async def ask_and_run(call: LegRequest) -> Ran:
        await store._client.command("PING")
        return await run(call)

    services.calls.run = ask_and_run  # type: ignore[method-assign]
    return services


app.build = build  # type: ignore[attr-defined]

if __name__ == "__main__":
    sys.exit(cli.main())
