"""Pure: the results that every wire can write, each in its own format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias

from gateway.engine.questions import Answer, Question
from gateway.errors import MissingCapability
from gateway.protocol.versions import Wire
from gateway.tasks.model import TaskView

CacheScope: TypeAlias = Literal["public", "private"]


class Words(Protocol):
    """Writes the results of one wire, and reads the answers of its clients."""

    @property
    def wire(self) -> Wire:
        """The wire that this format belongs to."""
        ...

    def complete(self, fields: Mapping[str, Any], meta: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return a final result with these fields, and additional `_meta` if given."""
        ...

    def cacheable(self, fields: Mapping[str, Any], *, ttl_ms: int, scope: CacheScope) -> dict[str, Any]:
        """Return a final result that the client may cache for `ttl_ms`, if the wire has a field for that."""
        ...

    def input_required(self, questions: Mapping[str, Question], request_state: str) -> dict[str, Any]:
        """Return a result that asks questions. The client sends the answers back together with the state."""
        ...

    def shed(self, request_state: str) -> dict[str, Any]:
        """Return a result without questions: the client sends the state to another replica."""
        ...

    def task_created(self, view: TaskView) -> dict[str, Any]:
        """Return the result of a call that has become a task."""
        ...

    def unable(self, error: MissingCapability) -> str | None:
        """Return the text for the model if a tool needs more than the client can do; None to return the error."""
        ...

    def read_answers(self, input_responses: Mapping[str, Any]) -> dict[str, Answer]:
        """Return the answers of a retry in the engine's form. A value that is not an answer counts as missing."""
        ...
