"""Tools, prompts and resources of other servers, served as if they were ours.

A relay has no author's function. A `Relay` runs its legs, and its result is passed on as it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec

from gateway.authoring.forms.misfit_texts import misfit_of_schema
from gateway.authoring.prompts import Prompt
from gateway.authoring.resources import CacheScope, Resource
from gateway.authoring.served import Served, TaskStart, TaskSupport
from gateway.authoring.tools import DEFAULT_ATTEMPTS, Tool
from gateway.engine.driver import LegFunction
from gateway.engine.forwarded import forwarded
from gateway.engine.journal import Journal
from gateway.engine.questions import ELICIT, InvalidAnswer, Question
from gateway.engine.relaying import RelayFunction, RelayLeg
from gateway.errors import AuthoringError
from gateway.json_schema.validation import SchemaValidator
from gateway.protocol.caller import Requester, RequesterOf
from gateway.protocol.param_headers import compile_param_headers
from gateway.protocol.reserved_meta import without_reserved

UNLISTED: Final = "other"
"""The name in metrics of everything that no list has, so callers cannot invent names."""

MAX_CHECKED_SCHEMA_BYTES: Final = 8 * 1024
"""A form with a larger schema is checked only by the server that asks."""

_PATTERN: Final = b'"pattern'
"""Begins the keywords whose regular expressions are compiled: 50 bytes of one may take a third of a second."""


class Relay(Protocol):
    """Runs the legs of relays."""

    @property
    def upstream(self) -> str:
        """The name of the other server."""
        ...

    def bind(
        self, served: Relayed, target: str, arguments: dict[str, Any], requester: Requester, journal: Journal
    ) -> RelayFunction:
        """Return what runs a leg; see `Served.begin`."""
        ...

    async def prepare_task(self, served: Relayed, requester: Requester, journal: Journal) -> None:
        """Keep in the journal what the task of a call needs; see `Served.prepare_task`."""
        ...

    async def abandon(self, served: Relayed, requester: Requester, journal: Journal) -> None:
        """End a call that waits for its user; see `Served.abandon`."""
        ...


class Relayed(Served):
    """The common part of all relays."""

    _DROPPED = frozenset({"resultType"})
    """Members of a result that each wire writes itself."""

    limited = False
    listed: bool
    _relay: Relay
    _entry: Mapping[str, Any]

    def _take(
        self,
        relay: Relay,
        entry: Mapping[str, Any],
        *,
        listed: bool,
        scopes: Iterable[str],
        state_ttl_seconds: float | None,
    ) -> None:
        """Set what every `Served` has, from the list entry of the other server."""
        self._relay, self._entry = relay, entry
        self.upstream, self.listed = relay.upstream, listed
        self.name = entry["name"]
        self.version = 1
        self.title = entry.get("title")
        self.description = entry.get("description") or ""
        self.icons, self.meta = entry.get("icons"), entry.get("_meta")
        self.state_ttl_seconds = state_ttl_seconds
        self.scopes = frozenset(scopes)
        self.questions = self.asks = self.hides = None
        self.migrations = {}
        self.place = f"the upstream {relay.upstream}"

    @property
    def label(self) -> str:
        """The name in metrics and traces."""
        return super().label if self.listed else UNLISTED

    def begin(
        self, target: str, arguments: dict[str, Any], _caller: object, requester: RequesterOf, journal: Journal, /
    ) -> LegFunction:
        """Return what runs a leg.

        For a resource template, the arguments are the values of the variables.

        Raises:
            InvalidArguments: the arguments cannot be passed on.
        """
        run = self._relay.bind(self, target, arguments, requester(), journal)
        return lambda leg: run(RelayLeg(leg))

    async def prepare_task(self, requester: RequesterOf, journal: Journal) -> None:
        """Keep in the journal's slot what the legs need."""
        await self._relay.prepare_task(self, requester(), journal)

    async def abandon(self, requester: RequesterOf, journal: Journal, /) -> None:
        """End a call that waits for its user, if a process holds it."""
        await self._relay.abandon(self, requester(), journal)

    def whole_result(self, value: Any, _target: str, _journal: Journal) -> dict[str, Any]:
        """Return the result of the other server as it came, without what only this server may say."""
        fields = {name: part for name, part in value.items() if name not in self._DROPPED}
        if "_meta" in fields:
            meta = fields.pop("_meta")
            kept = without_reserved(meta) if isinstance(meta, Mapping) else {}
            if kept:
                fields["_meta"] = kept
        return fields

    def catalogue_entry(self) -> dict[str, Any]:
        """Return the list entry as the other server wrote it."""
        return dict(self._entry)


class RelayedTool(Relayed, Tool):
    """A tool of another server.

    `entry` is the list entry, with the name that clients use. The options are those of `Tool`.

    Raises:
        InvalidParamHeader: an `x-mcp-header` annotation of the input schema is wrong.
    """

    def __init__(
        self,
        relay: Relay,
        entry: Mapping[str, Any],
        *,
        listed: bool = True,
        scopes: Iterable[str] = (),
        task: TaskSupport = "forbidden",
        start: TaskStart = "task",
        after_seconds: float | None = None,
        max_attempts: int = DEFAULT_ATTEMPTS,
        state_ttl_seconds: float | None = None,
    ) -> None:
        self._take(relay, entry, listed=listed, scopes=scopes, state_ttl_seconds=state_ttl_seconds)
        self.input_schema = entry.get("inputSchema") or {"type": "object"}
        self.output_schema = entry.get("outputSchema")
        self.annotations = entry.get("annotations")
        self.param_headers = compile_param_headers(self.input_schema)
        self.task, self.start, self.after_seconds = task, start, after_seconds
        self.max_attempts, self.single_use, self.streams = max_attempts, False, False


class RelayedPrompt(Relayed, Prompt):
    """A prompt of another server.

    `entry` is the list entry, with the name that clients use. The options are those of `Prompt`.
    """

    def __init__(
        self,
        relay: Relay,
        entry: Mapping[str, Any],
        *,
        listed: bool = True,
        scopes: Iterable[str] = (),
        state_ttl_seconds: float | None = None,
    ) -> None:
        self._take(relay, entry, listed=listed, scopes=scopes, state_ttl_seconds=state_ttl_seconds)
        self._listed = entry.get("arguments") or []


class RelayedResource(Relayed, Resource):
    """A resource of another server, or a template of resources.

    `entry` is the list entry, with the `uri` or `uriTemplate` that clients use. The options are those of `Resource`.
    """

    _DROPPED = frozenset({"resultType", "ttlMs", "cacheScope"})

    def __init__(
        self,
        relay: Relay,
        entry: Mapping[str, Any],
        *,
        listed: bool = True,
        scopes: Iterable[str] = (),
        ttl_ms: int = 0,
        cache: CacheScope = "private",
        announces_changes: bool = False,
        state_ttl_seconds: float | None = None,
    ) -> None:
        uri: str = entry["uriTemplate"] if "uriTemplate" in entry else entry["uri"]
        self._take(relay, {"name": uri, **entry}, listed=listed, scopes=scopes, state_ttl_seconds=state_ttl_seconds)
        self._entry = entry
        self.uri, self.template = uri, None  # the part finds the relay for a URI that a template makes
        self.mime_type, self.size, self.annotations = entry.get("mimeType"), entry.get("size"), entry.get("annotations")
        self.ttl_ms, self.cache, self.announces_changes = ttl_ms, cache, announces_changes


def forwarded_question(method: str, params: Mapping[str, Any]) -> Question:
    """Return a question that passes on another server's request; see `gateway.engine.forwarded.forwarded`.

    The content of an accepted form is checked against the form's schema, if that compiles quickly.

    Raises:
        ValueError: no client can be asked this.
    """
    schema = params.get("requestedSchema") if method == ELICIT else None
    validator = _validator(schema) if isinstance(schema, Mapping) else None
    return forwarded(method, params, None if validator is None else lambda content: _misfit(validator, content))


def _misfit(validator: SchemaValidator, content: Any) -> InvalidAnswer | None:
    problems = validator.problems(content)
    return None if problems is None else misfit_of_schema(*problems)


def _validator(schema: Mapping[str, Any]) -> SchemaValidator | None:
    try:
        encoded = msgspec.json.encode(schema)
        return None if len(encoded) > MAX_CHECKED_SCHEMA_BYTES or _PATTERN in encoded else _compiled(encoded)
    except (AuthoringError, ValueError, TypeError, RecursionError):
        return None  # the server that asks judges the answer


@lru_cache(maxsize=32)  # each of them may take 60 times its size in memory
def _compiled(schema: bytes) -> SchemaValidator:
    return SchemaValidator(msgspec.json.decode(schema))
