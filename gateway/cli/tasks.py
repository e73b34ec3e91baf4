"""`gateway tasks`: lists and cancels the tasks of all callers, for operators.

It shows nothing that a caller or a tool wrote: names of tools, ids, times and counts only.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import pwd
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.cli.failures import CommandFailed
from gateway.cli.tables import duration, moment, plain, table
from gateway.ensured import ensured
from gateway.errors import TaskStoreDown
from gateway.observability.process_metrics import ProcessTelemetry
from gateway.process.services import make_audit_log, make_key_holder, make_task_store, redis_url_of
from gateway.settings.model import Settings
from gateway.storage.all_tasks import UNFINISHED, AllTasks, TaskFacts
from gateway.storage.redis_keys import PHASES
from gateway.tasks.model import Phase

_OWNER_CHARS: Final = 12
"""How much of an owner's name the table shows. `--owner` takes any beginning of it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which tasks to list: in these phases, of a tool, and of owners whose names begin like this.

    No phases stand for all that do not end a task.
    """

    phases: Collection[str]
    tool: str | None
    owner: str


@dataclass(frozen=True, slots=True)
class OpenStore:
    """The stored tasks, and the kind of server."""

    tasks: AllTasks
    server: str


@contextlib.asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[OpenStore]:
    """Open the task store of a deployment, after the checks of `gateway check`.

    Raises:
        ConfigurationError: a setting does not fit the store.
        CommandFailed: the store cannot be reached, also while it is open.
    """
    keys, url = make_key_holder(settings), redis_url_of(settings)
    store = ensured(make_task_store(settings, url, keys, ProcessTelemetry()), "there is a URL")
    try:
        yield OpenStore(store.all_tasks(), (await store.inspect()).kind)
    except TaskStoreDown:
        raise CommandFailed(
            f"GATEWAY_REDIS_URL: the server does not answer ({store.why_down}); start it or correct the URL"
        ) from None
    finally:
        await store.aclose()


async def show(settings: Settings, wanted: Wanted, limit: int, *, as_json: bool) -> str:
    """Return the oldest of the tasks that are wanted."""
    phases = [Phase(name) for name in wanted.phases] or UNFINISHED
    async with open_store(settings) as store:
        found = [
            task
            async for task in store.tasks.walk(phases, lambda name, _: name.startswith(wanted.owner))
            if wanted.tool in (None, task.tool)
        ]
    listed = heapq.nsmallest(limit, found, key=lambda task: task.created_ms)
    if as_json:
        return json.dumps([as_map(task) for task in listed], indent=2)
    lines = [*table(_HEADINGS, *map(_row, listed))] if listed else ["no tasks"]
    if len(found) > len(listed):
        lines.append(f"\nthe oldest {len(listed)} of {len(found)} tasks; --limit shows more")
    return "\n".join(lines)


async def cancel(settings: Settings, task_ids: Collection[str], owner: str, say: Callable[[str], None]) -> None:
    """Cancel tasks of the owners whose names begin like this, and `say` one line for each.

    Each task gets a line in the audit log first, because nothing may happen without one if lines are required.

    Raises:
        CommandFailed: one of the tasks is unknown, has ended, or has the id of another one, or a required line
            cannot be written. Then none is cancelled. Or some could not be cancelled, and the others are.
    """
    async with open_store(settings) as store:
        chosen = await _find(store.tasks, dict.fromkeys(task_ids), owner)
        if not _record(settings, chosen):
            if settings.audit_log_required:
                raise CommandFailed("GATEWAY_AUDIT_LOG: it cannot be written, so nothing is cancelled")
            say("GATEWAY_AUDIT_LOG: it cannot be written, so this is not recorded")
        failures = []
        for task in chosen:
            try:
                say(await _cancel(store.tasks, task))
            except CommandFailed as failure:
                failures.append(str(failure))
        if failures:
            raise CommandFailed("; ".join(failures))


def _record(settings: Settings, tasks: Iterable[TaskFacts]) -> bool:
    """Write the lines for tasks that an operator cancels, and return whether all are written."""
    audit = make_audit_log(settings)
    user = _operator()
    for task in tasks:
        audit.log.operator(user, "tasks/cancel", task.tool, task=task.task_id, owner=task.owner, phase=task.phase.value)
    return audit.flush() and not audit.lost()


async def _find(tasks: AllTasks, task_ids: Collection[str], owner: str) -> list[TaskFacts]:
    wanted = frozenset(task_ids)
    found: dict[str, dict[str, TaskFacts]] = {task_id: {} for task_id in wanted}
    async for task in tasks.walk(PHASES, lambda name, task_id: task_id in wanted and name.startswith(owner)):
        found[task.task_id][task.owner] = task
    return [_only(task_id, list(found[task_id].values())) for task_id in task_ids]


def _only(task_id: str, found: Sequence[TaskFacts]) -> TaskFacts:
    name = plain(task_id)
    if not found:
        raise CommandFailed(f"task {name}: not found; `gateway tasks list` shows the ids")
    if len(found) > 1:
        owners = " or ".join(sorted(task.owner[:_OWNER_CHARS] for task in found))
        raise CommandFailed(f"task {name}: {len(found)} callers have a task with this id; add --owner {owners}")
    if found[0].phase.ended:
        raise CommandFailed(f"task {name}: it has already ended ({found[0].phase})")
    return found[0]


async def _cancel(tasks: AllTasks, task: TaskFacts) -> str:
    after, name = await tasks.cancel(task), plain(task.task_id)
    if after is None:
        raise CommandFailed(f"task {name}: it expired or was deleted before it could be cancelled")
    if not after.phase.ended:
        raise CommandFailed(
            f"task {name}: its record is damaged or was written by a newer release, so it cannot be changed here; use "
            "the newest release, or wait until it expires"
        )
    if after.phase is not Phase.CANCELLED:
        raise CommandFailed(f"task {name}: it ended before it could be cancelled ({after.phase})")
    return f"task {name}: {after.phase.value}"


def _operator() -> str:
    """Return the name of the user who runs this. Variables of the environment do not decide it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


_HEADINGS: Final = ("ID", "PHASE", "TOOL", "AGE", "UNCHANGED", "LOST", "WORKER", "OWNER")


def _row(task: TaskFacts) -> tuple[object, ...]:
    return (
        task.task_id,
        task.phase.value if task.readable else f"{task.phase.value}, unreadable",
        task.tool or "-",
        duration((task.now_ms - task.created_ms) / 1000),
        duration((task.now_ms - task.updated_ms) / 1000),
        task.lost,
        f"{task.worker} ({duration(task.silent_ms / 1000)})" if task.worker else "-",
        task.owner[:_OWNER_CHARS],
    )


def as_map(task: TaskFacts) -> dict[str, Any]:
    """Return a task for programs."""
    return {
        "id": task.task_id,
        "owner": task.owner,
        "tool": task.tool,
        "phase": task.phase.value,
        "created": moment(task.created_ms),
        "updated": moment(task.updated_ms),
        "expires": moment(task.expires_ms),
        "age_seconds": (task.now_ms - task.created_ms) / 1000,
        "open_questions": task.open_questions,
        "lost_workers": task.lost,
        "worker": task.worker or None,
        "silent_seconds": task.silent_ms / 1000 if task.worker else None,
        "readable": task.readable,
    }
