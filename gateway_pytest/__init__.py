"""A pytest plugin: the fixture `call` runs a tool in a test.

It is a package of its own, so that pytest starts as fast as without it, and in a project that has a `gateway.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gateway.testing.fixture import ReportingCaller


@pytest.fixture
def call(request: pytest.FixtureRequest) -> ReportingCaller:
    """Return a function that calls a tool, as `gateway.testing.run` does; in an `async def` test, await it.

    Annotate the argument as `gateway.testing.Call` or `AsyncCall` for a type checker. If the test fails, its report
    shows what happened in each call.
    """
    from gateway.testing.fixture import ReportingCaller  # noqa: PLC0415 - tests that do not use the fixture need not wait for it

    return ReportingCaller(lambda line: request.node.add_report_section("call", "tool calls", line))
