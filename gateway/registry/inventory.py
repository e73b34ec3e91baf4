"""A list of what a release serves, to compare it with the next one: versions, and which questions change."""

from __future__ import annotations

from typing import Any

from gateway.authoring.served import Served
from gateway.authoring.tools import Tool
from gateway.engine.questions import Question, question_identity
from gateway.registry.registry import Registry


def inventory(registry: Registry) -> list[dict[str, Any]]:
    """Return an entry for each tool, then each prompt, resource and resource template, in registration order.

    An entry has the fields that clients see in lists, and `kind`, `version` and `scopes`. In addition:

    - `migrations`: the version that each checkpoint version migrates to.
    - `asks`: by key, the `digest` of each declared question and what it `covers`; None if none are declared.
    - `upstream`: the name of the upstream that serves it; only for entries of upstreams.
    - `task`, `start`, `maxAttempts`, `singleUse` and `streams`: only for tools.
    """
    groups = (registry.tools, registry.prompts, registry.resources, registry.templates)
    return [_entry(served) for group in groups for served in group.values()]


def _entry(served: Served) -> dict[str, Any]:
    questions = served.questions
    return {
        "kind": served.KIND,
        "name": served.name,
        "version": served.version,
        "scopes": sorted(served.scopes),
        **({"upstream": served.upstream} if served.upstream else {}),
        "asks": None if questions is None else {key: _asked(question) for key, question in questions.items()},
        "migrations": {str(version): following for version, (following, _) in sorted(served.migrations.items())},
        **(_task_options(served) if isinstance(served, Tool) else {}),
        **served.catalogue_entry(),
    }


def _asked(question: Question) -> dict[str, Any]:
    return {"digest": question.digest.hex(), "covers": question_identity(question.method, question.params)}


def _task_options(tool: Tool) -> dict[str, Any]:
    return {
        "task": tool.task,
        "start": None if tool.task == "forbidden" else tool.start,
        "maxAttempts": tool.max_attempts,
        "singleUse": tool.single_use,
        "streams": tool.streams,
    }
