"""Pure: what every wire can say of a call, each in its own words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

from gateway.engine.questions import Answer, Question
from gateway.errors import MissingCapability
from gateway.protocol.versions import Wire
from gateway.tasks.model import TaskView

CacheScope: TypeAlias = Literal["public", "private"]


class Words(Protocol):
    """Writes the results of one wire, and reads what its clients answer."""

    @property
    def wire(self) -> Wire:
        """Which wire this is."""
        ...

    def complete(self, fields: Mapping[str, Any], meta: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return a final result with these fields, and more of `_meta` if given."""
        ...

    def cacheable(self, fields: Mapping[str, Any], *, ttl_ms: int, scope: CacheScope) -> dict[str, Any]:
        """Return a final result that the client may keep for `ttl_ms`, where the wire can tell so."""
        ...

    def input_required(self, questions: Mapping[str, Question], request_state: str) -> dict[str, Any]:
        """Return a result that asks the client, who brings the answers together with the state."""
        ...

    def shed(self, request_state: str) -> dict[str, Any]:
        """Return a result that asks nothing: the client brings the state to another replica."""
        ...

    def task_created(self, view: TaskView) -> dict[str, Any]:
        """Return the result of a call that has become a task."""
        ...

    def unable(self, error: MissingCapability) -> str | None:
        """Return what the model is told of a tool that needs more than the client can; None to tell the error."""
        ...

    def read_answers(self, input_responses: Mapping[str, Any]) -> dict[str, Answer]:
        """Return the answers of a retry in the engine's form; what is none counts as missing."""
        ...
