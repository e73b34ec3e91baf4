"""The value of the pytest fixture `call`, and its types for tests with and without `async`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar, Unpack, overload

from gateway.authoring.forms.questions import InputRequired
from gateway.authoring.served import Served
from gateway.testing.answers import Answers
from gateway.testing.results import Run
from gateway.testing.running import Options, loop_runs, run_call, without_loop

__tracebackhide__ = True  # pytest shows the test and the author's code

T = TypeVar("T")


class Call(Protocol):
    """The fixture `call` in a plain test: it returns the run."""

    @overload
    def __call__(
        self,
        tool: Served[..., Awaitable[T | InputRequired]],
        args: Mapping[str, Any] | None = None,
        *,
        answers: Answers | None = None,
        **options: Unpack[Options],
    ) -> Run[T]: ...
    @overload
    def __call__(
        self,
        tool: Served[..., T | InputRequired],
        args: Mapping[str, Any] | None = None,
        *,
        answers: Answers | None = None,
        **options: Unpack[Options],
    ) -> Run[T]: ...


class AsyncCall(Protocol):
    """The fixture `call` in an `async def` test: await the run."""

    @overload
    async def __call__(
        self,
        tool: Served[..., Awaitable[T | InputRequired]],
        args: Mapping[str, Any] | None = None,
        *,
        answers: Answers | None = None,
        **options: Unpack[Options],
    ) -> Run[T]: ...
    @overload
    async def __call__(
        self,
        tool: Served[..., T | InputRequired],
        args: Mapping[str, Any] | None = None,
        *,
        answers: Answers | None = None,
        **options: Unpack[Options],
    ) -> Run[T]: ...


class ReportingCaller:
    """Calls tools in one test, and reports what happened.

    Args:
        report: called with a line for each call.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report

    def __call__(
        self,
        tool: Served,
        args: Mapping[str, Any] | None = None,
        *,
        answers: Answers | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """Return the run, or an awaitable for it while an event loop is running; see `gateway.testing.run`."""
        running = self._run(tool, args, answers, options)
        return running if loop_runs() else without_loop(running, "call")

    async def _run(
        self, tool: Served, args: Mapping[str, Any] | None, answers: Answers | None, options: Options
    ) -> Run[Any]:
        try:
            done = await run_call("call", tool, args, answers, options)
        except Exception as error:
            self._report(f"{tool} raised {type(error).__name__}: {error}")
            raise
        self._report(f"{tool}: {done!r}")
        return done
