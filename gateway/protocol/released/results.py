"""Pure: results of the 2026-07-28 wire.

Every result has `resultType` and `_meta["io.modelcontextprotocol/serverInfo"]`. Results that clients may cache also
have `ttlMs` and `cacheScope` (MCP "Caching").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.engine.questions import Answer, Question
from gateway.errors import MissingCapability
from gateway.protocol.jsonrpc import RequestId
from gateway.protocol.released.tasks import task
from gateway.protocol.result_format import CacheScope
from gateway.protocol.versions import META_SERVER_INFO, META_SUBSCRIPTION_ID, Wire
from gateway.tasks.model import TaskView


def read_answers(input_responses: Mapping[str, Any]) -> dict[str, Answer]:
    """Return the answers of a retry in the engine's form.

    On this wire, a response is the bare result object. Any other value counts as missing, so its question is asked
    again.
    """
    return {key: {"result": response} for key, response in input_responses.items() if isinstance(response, dict)}


class ResultWriter:
    """Writes results that name this server (see `name_server`); implements `gateway.protocol.result_format.Words`.

    With `empty_requests`, a result without questions still has an empty `inputRequests`.
    """

    wire: Final = Wire.RELEASED
    read_answers = staticmethod(read_answers)

    def __init__(self, server_info: Mapping[str, Any], *, empty_requests: bool = False) -> None:
        self._meta: dict[str, Any] = {}
        self.name_server(server_info)
        self._no_requests: Mapping[str, Any] = {"inputRequests": {}} if empty_requests else {}

    def name_server(self, server_info: Mapping[str, Any]) -> None:
        """Set the `Implementation` object of this server: `name` and `version`."""
        self._meta = {META_SERVER_INFO: dict(server_info)}

    def complete(self, fields: Mapping[str, Any], meta: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return a final result with these fields, and additional `_meta` if given."""
        if meta or "_meta" in fields:
            own = fields.get("_meta") or {}
            return {"resultType": "complete", **fields, "_meta": {**own, **self._meta, **(meta or {})}}
        return {"resultType": "complete", **fields, "_meta": self._meta}

    def task_created(self, view: TaskView) -> dict[str, Any]:
        """Return a `CreateTaskResult` (extension `io.modelcontextprotocol/tasks`, Task Creation)."""
        return {"resultType": "task", **task(view), "_meta": self._meta}

    def unable(self, error: MissingCapability) -> str | None:
        """Return None: on this wire, an error names the missing capabilities."""
        del error
        return None

    def cacheable(self, fields: Mapping[str, Any], *, ttl_ms: int, scope: CacheScope) -> dict[str, Any]:
        """Return a final result that the client may cache for `ttl_ms`."""
        meta = {**fields["_meta"], **self._meta} if "_meta" in fields else self._meta
        return {"resultType": "complete", **fields, "ttlMs": ttl_ms, "cacheScope": scope, "_meta": meta}

    def input_required(self, questions: Mapping[str, Question], request_state: str) -> dict[str, Any]:
        """Return an `InputRequiredResult` (MCP "Multi Round-Trip Requests")."""
        requests = {key: {"method": question.method, "params": question.params} for key, question in questions.items()}
        return {
            "resultType": "input_required",
            "inputRequests": requests,
            "requestState": request_state,
            "_meta": self._meta,
        }

    def shed(self, request_state: str) -> dict[str, Any]:
        """Return an `InputRequiredResult` without questions: the client sends the state to another replica.

        `inputRequests` may be absent (MCP "Multi Round-Trip Requests", Server Requirements: at least one of
        `inputRequests` and `requestState`).
        """
        return {
            "resultType": "input_required",
            **self._no_requests,
            "requestState": request_state,
            "_meta": self._meta,
        }

    def listen_closed(self, subscription_id: RequestId) -> dict[str, Any]:
        """Return the result that closes a `subscriptions/listen` (MCP "Subscriptions", Graceful Closure).

        The response has the id of the listen request.
        """
        return {"resultType": "complete", "_meta": {**self._meta, META_SUBSCRIPTION_ID: subscription_id}}
