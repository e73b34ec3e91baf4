"""One leg of a task: from the stored journal to the changes to store.

A worker claims the task and stores the outcome; this module runs the leg. It knows no wire.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from gateway.authoring.mistakes import drop_tracebacks
from gateway.authoring.tools import Tool
from gateway.calls.failures import Failures
from gateway.calls.unused_answers import warn_of_unused_answers
from gateway.engine.capabilities import supports
from gateway.engine.driver import run_leg
from gateway.engine.host import Host, Keeper, Notices
from gateway.engine.journal import Journal, MalformedJournal, journal_key
from gateway.engine.leg import Detaching, Leg, Stepping
from gateway.engine.leg_policy import LegPolicy
from gateway.engine.outcomes import Completed, Failed, NeedsInput, NotKept, Outcome, Shed
from gateway.engine.questions import Question
from gateway.ensured import ensured_type
from gateway.errors import InternalError, RpcError
from gateway.protocol.caller import Requester
from gateway.protocol.strict_json import encode
from gateway.sealing.principal import Principal
from gateway.tasks.ports import TaskQuestion


@dataclass(frozen=True, slots=True)
class TaskLeg:
    """A task as a worker has claimed it.

    Attributes:
        capabilities: what the client declared when it created the task; they apply to the task's whole life.
        journal: what the call has learned so far (`Journal.to_map`), including the client's newest answers.
        segments: the stored blocks, in order.
    """

    tool: Tool
    arguments: Mapping[str, Any]
    principal: Principal | None
    capabilities: Mapping[str, Any]
    journal: Mapping[str, Any]
    segments: Sequence[Mapping[str, Any]] = ()
    task_id: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """The task is done: with a result (fields of a `CallToolResult`), or with a JSON-RPC error."""

    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The task asks its client questions, by the keys of `NeedsInput`. The journal is kept until then."""

    questions: dict[str, TaskQuestion]
    journal: dict[str, Any]


@dataclass(frozen=True, slots=True)
class HandedBack:
    """The keeper wanted the leg to end at a checkpoint; another worker continues with the journal."""

    journal: dict[str, Any]


TaskOutcome: TypeAlias = Finished | Waiting | HandedBack


async def run_task_leg(
    task: TaskLeg,
    *,
    keeper: Keeper,
    host: Host,
    failures: Failures,
    policy: LegPolicy,
    notices: Notices | None = None,
    stepping: Stepping | None = None,
) -> TaskOutcome:
    """Run one leg of a task within the host's time limit. Cancellation passes through it into the tool, and out again.

    Raises:
        Exception: from the keeper. Nothing from this leg may be stored after it.
    """
    try:
        journal = Journal.from_map(task.journal)
    except MalformedJournal:
        return Finished(error=error_of(InternalError("This release cannot read the task")))
    await _keep_first_segments(journal, task.segments, keeper)
    leg = Leg(
        journal,
        {},
        host,
        policy,
        supports=partial(supports, task.capabilities),
        version=task.tool.version,
        migrations=task.tool.migrations,
        declared=task.tool.asks,
        notices=notices,
        keeper=keeper,
        detaching=Detaching.DONE,
        stepping=stepping,
    )
    try:
        outcome = await run_leg(partial(_run, task), leg, limited=task.tool.limited)
        if isinstance(outcome, NeedsInput):
            warn_of_unused_answers(task.tool, leg, outcome)
        return _report(task.tool, outcome, journal, failures)
    finally:
        if leg.away is not None:
            leg.away.drop_result()


def error_of(error: RpcError) -> dict[str, Any]:
    """Return a JSON-RPC error as it is stored: `code`, `message` and, if there is any, `data`."""
    member: dict[str, Any] = {"code": error.code, "message": error.message}
    data: Any = error.data  # another server's error may have any
    if data is not None:
        member["data"] = dict(data) if isinstance(data, Mapping) else data
    return member


async def _keep_first_segments(journal: Journal, stored: Sequence[Mapping[str, Any]], keeper: Keeper) -> None:
    """Move blocks that the call emitted before it became a task to the task's segments."""
    for number, block in enumerate(journal.segments[len(stored) :], len(stored) + 1):
        await keeper.keep_emit(number, block)
    journal.segments[: len(stored)] = [dict(block) for block in stored]


def _run(task: TaskLeg, leg: Leg) -> Coroutine[Any, Any, Any]:
    # Within the leg, because an argument's type may have a validator by the author, which may raise anything.
    requester = Requester(
        principal=task.principal,
        capabilities=task.capabilities,
        wants_progress=True,
        in_task=True,
        task_id=task.task_id,
    )
    begin = task.tool.begin
    return begin(task.tool.name, dict(task.arguments), requester, lambda: requester, leg.journal)(leg)


def _report(tool: Tool, outcome: Outcome, journal: Journal, failures: Failures) -> TaskOutcome:
    if isinstance(outcome, NotKept):
        raise outcome.error
    if isinstance(outcome, Shed):
        return HandedBack(_rest(journal))
    try:
        if isinstance(outcome, NeedsInput):
            return Waiting(_stored_questions(outcome.questions, journal), _rest(journal))
        if isinstance(outcome, Completed):
            return Finished(result=_stored_result(tool, outcome.value, journal))
    except Exception as error:  # noqa: BLE001 - a result or question may fail to encode
        return _failed(tool, error, journal, failures)
    failed = ensured_type(outcome, Failed)  # a task cannot detach, it already is one
    return _failed(tool, failed.error, journal, failures)


def _failed(tool: Tool, error: Exception, journal: Journal, failures: Failures) -> Finished:
    try:
        return Finished(result=failures.result(tool, error, journal))
    except RpcError as told:
        return Finished(error=error_of(told))
    finally:
        drop_tracebacks(error)


def _stored_questions(questions: Mapping[str, Question], journal: Journal) -> dict[str, TaskQuestion]:
    """Return the questions as they are stored; raises what `encode` raises if one has no JSON form."""
    encode([question.params for question in questions.values()])
    return {
        key: TaskQuestion(
            asked.digest,
            asked.method,
            asked.params,
            recorded_as=journal_key(journal, key) if asked.forwarded else "",
        )
        for key, asked in questions.items()
    }


def _stored_result(tool: Tool, value: Any, journal: Journal) -> dict[str, Any]:
    result = tool.whole_result(value, tool.name, journal)
    encode(result)
    return result


def _rest(journal: Journal) -> dict[str, Any]:
    """Return the journal's stored form, without the parts that the keeper stores separately."""
    rest = journal.to_map()
    rest.pop("segments", None)
    return rest
