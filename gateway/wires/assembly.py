"""Builds the wires of a process, from the parts that they share and the parts of each wire."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from gateway.authoring.server import identity_of
from gateway.calls.authority import Authorities
from gateway.calls.changes import ChangeHub
from gateway.calls.runner import CallRunner
from gateway.calls.task_access import TaskAccess
from gateway.calls.task_follower import TaskFollower
from gateway.engine.host import Host
from gateway.observability.audit import AuditLog
from gateway.observability.metrics import Telemetry
from gateway.protocol.capabilities import HANDSHAKE_TASKS, TASKS
from gateway.protocol.draft.rounds import DraftResults
from gateway.protocol.identity import Identity
from gateway.protocol.legacy.results import LegacyResults, OlderResults
from gateway.protocol.released.results import ResultWriter
from gateway.protocol.versions import BEFORE_ELICITATION, BEFORE_TASKS, DRAFT, LEGACY, LEGACY_VERSIONS, OLDER_VERSIONS
from gateway.registry.parts import Part
from gateway.registry.registry import Registry
from gateway.settings.model import Settings
from gateway.tokens.cursors import TaskCursors
from gateway.tokens.hop_messages import Hops, Neighbours, Post, max_message_bytes
from gateway.tokens.key_holder import KeyHolder
from gateway.tokens.request_ids import ReplicaAddress, RequestIds
from gateway.tokens.session_ids import Sessions
from gateway.wires.broadcasts import CHANGED_TOPIC, Broadcasts
from gateway.wires.catalogue import (
    Catalogue,
    draft_capabilities,
    handshake_capabilities,
    handshake_entry,
    older_entry,
    released_capabilities,
)
from gateway.wires.dispatch import Dispatcher
from gateway.wires.draft.calls import DraftCalls
from gateway.wires.draft.task_results import TaskAnswers
from gateway.wires.draft.tasks import DraftTasks
from gateway.wires.handshake.version import Calls, HandshakeVersion
from gateway.wires.handshake_wire import HandshakeWire
from gateway.wires.legacy.answer_delivery import Deliveries
from gateway.wires.legacy.calls import LegacyCalls
from gateway.wires.legacy.pending_answers import WaitingCalls
from gateway.wires.legacy.tasks import LegacyTasks
from gateway.wires.methods import Handler, Methods
from gateway.wires.ports import Carrier
from gateway.wires.released.subscriptions import Subscriptions
from gateway.wires.released.tasks import ReleasedTasks
from gateway.wires.released.wire import ReleasedWire
from gateway.wires.watches import Watches

if TYPE_CHECKING:  # a process without traces or a task store never loads OpenTelemetry or redis: they take memory
    from gateway.observability.tracing import Traces
    from gateway.storage import RedisTaskStore

_NO_CATALOGUES: Final[Mapping[str, Catalogue]] = {}


@dataclass
class Wires:
    """Builds the wires, and updates them when the tools change.

    Without a store there are no tasks, and `access` is None. `host` runs completions. The carriers, which deliver
    sealed messages to all other replicas, are tried in turn.
    """

    settings: Settings
    keys: KeyHolder
    registry: InitVar[Registry]
    _: KW_ONLY
    calls: CallRunner
    host: Host
    store: RedisTaskStore | None
    changes: ChangeHub
    audit: AuditLog
    telemetry: Telemetry
    waiting: WaitingCalls
    authorities: Authorities
    post: Post
    neighbours: Neighbours
    carriers: Sequence[Carrier]
    tracing: Traces | None = None

    def __post_init__(self, registry: Registry) -> None:
        self._draft_words = DraftResults()
        self._legacy_words = LegacyResults()
        self._released_words = ResultWriter(
            self.identity_of(registry).brief, empty_requests=self.settings.shed_input_requests
        )
        self._replica = ReplicaAddress(self.settings.replica_url or "", self.waiting.boot)
        self._addresses = RequestIds(self.keys, self.telemetry, self._replica)
        self._task_cursors = TaskCursors(self.keys)
        self._sessions = Sessions(self.keys, ttl_seconds=self.settings.session_ttl_seconds, telemetry=self.telemetry)
        self.hops = Hops(
            self.keys,
            self._replica,
            post=self.post,
            neighbours=self.neighbours,
            telemetry=self.telemetry,
            max_bytes=max_message_bytes(self.settings.max_body_bytes),
        )
        self.broadcasts = Broadcasts(self.hops, self.carriers, self.telemetry)
        self.broadcasts.forward_to(CHANGED_TOPIC, self.changes.announce_here)
        self.changes.forward = functools.partial(self.broadcasts.send, CHANGED_TOPIC)
        self._watches = Watches(registry)
        self.access = access = None if self.store is None else TaskAccess(self.store, self.audit)
        self.dispatcher = Dispatcher(
            self._released(registry, access),
            self._handshake(registry, access),
            changes=self.changes,
            audit=self.audit,
            max_json_depth=self.settings.max_json_depth,
            max_json_values=self.settings.max_json_values,
            tracing=self.tracing,
        )

    def serve(self, registry: Registry) -> None:
        """Serve another registry from the next request on, and announce the lists that differ."""
        self.telemetry.serve(registry.names)
        self._released_words.name_server(self.identity_of(registry).brief)
        served = self.dispatcher
        self.dispatcher.replace(
            self._released_catalogue(registry, served.catalogue),
            self._handshake_catalogues(registry, served.handshake_catalogues),
        )
        self.authorities.serve(registry)
        self._watches.serve(registry)

    def reload(self, local: Registry) -> None:
        """Serve other local functions, together with the upstreams that are served now."""
        self.serve(local.arranged(self.dispatcher.registry.parts))

    def arrange(self, parts: Iterable[Part]) -> Registry:
        """Serve these parts of upstreams with the local functions that are served now; return everything served."""
        registry = self.dispatcher.registry.arranged(parts)
        self.serve(registry)
        return registry

    def check(self, registry: Registry) -> None:
        """Build the catalogues of a registry and discard them, to find out whether it can be served."""
        self._released_catalogue(registry)
        self._handshake_catalogues(registry)

    def identity_of(self, registry: Registry) -> Identity:
        """Return how the server introduces itself while it serves a registry."""
        identity = identity_of(self.settings, registry.introduction)
        joined = "\n\n".join(filter(None, (identity.instructions, registry.instructions)))
        return msgspec.structs.replace(identity, instructions=joined or None)

    @property
    def _has_identity(self) -> bool:
        """Whether callers are authenticated. Without that, a list of tasks cannot belong to one caller."""
        return self.settings.auth != "none"

    def _released_catalogue(self, registry: Registry, earlier: Catalogue | None = None) -> Catalogue:
        capabilities = released_capabilities(registry, tasks=self.store is not None)
        tasks = TASKS if self.settings.hide_task_tools else None
        identity = self.identity_of(registry)
        return Catalogue(
            registry,
            self._released_words,
            self.keys,
            capabilities,
            identity=identity,
            tasks=tasks,
            earlier=earlier,
        )

    def _handshake_catalogues(
        self, registry: Registry, earlier: Mapping[str, Catalogue] = _NO_CATALOGUES
    ) -> dict[str, Catalogue]:
        """Build the catalogues of the handshake wires, by version."""
        has_tasks, lists = self.store is not None, self._has_identity
        draft = draft_capabilities(registry, tasks=has_tasks, lists_tasks=lists)
        legacy = handshake_capabilities(registry, tasks=has_tasks, lists_tasks=lists)
        before_tasks = handshake_capabilities(registry, tasks=False, lists_tasks=False)
        make = functools.partial(
            Catalogue,
            registry,
            keys=self.keys,
            identity=self.identity_of(registry),
            tasks=HANDSHAKE_TASKS if self.settings.hide_task_tools else None,
        )
        older = make(
            words=self._legacy_words,
            capabilities=before_tasks,
            entry=older_entry(BEFORE_ELICITATION),
            earlier=earlier.get(BEFORE_ELICITATION),
        )
        return {
            DRAFT: make(words=self._draft_words, capabilities=draft, entry=handshake_entry, earlier=earlier.get(DRAFT)),
            LEGACY: make(
                words=self._legacy_words, capabilities=legacy, entry=handshake_entry, earlier=earlier.get(LEGACY)
            ),
            BEFORE_TASKS: make(
                words=self._legacy_words,
                capabilities=before_tasks,
                entry=older_entry(BEFORE_TASKS),
                earlier=earlier.get(BEFORE_TASKS),
            ),
            **dict.fromkeys(OLDER_VERSIONS, older),
        }

    def _released(self, registry: Registry, access: TaskAccess | None) -> ReleasedWire:
        words = self._released_words
        methods = Methods(self._released_catalogue(registry), self.calls, self.host, words)
        tasks = None
        if access is not None:
            tasks = ReleasedTasks(methods, access, words, TaskFollower(access, self.changes, self.authorities))
        subscriptions = Subscriptions(methods, words, self.changes, self.authorities, access, watches=self._watches)
        return ReleasedWire(methods, subscriptions, tasks, has_identity=self._has_identity)

    def _handshake(self, registry: Registry, access: TaskAccess | None) -> HandshakeWire:
        catalogues = self._handshake_catalogues(registry)
        draft_tasks, draft = self._draft(catalogues[DRAFT], access)
        return HandshakeWire(
            {
                DRAFT: draft,
                **{
                    version: self._legacy(version, catalogues[version], access if version == LEGACY else None)
                    for version in LEGACY_VERSIONS
                },
            },
            sessions=self._sessions,
            addresses=self._addresses,
            deliveries=Deliveries(
                self.waiting,
                self._replica,
                self._addresses,
                self.hops,
                self.broadcasts,
                max_json_depth=self.settings.max_json_depth,
                max_json_values=self.settings.max_json_values,
            ),
            broadcasts=self.broadcasts,
            tasks=draft_tasks,
        )

    def _draft(self, catalogue: Catalogue, access: TaskAccess | None) -> tuple[DraftTasks | None, HandshakeVersion]:
        words = self._draft_words
        methods = Methods(catalogue, self.calls, self.host, words)
        if access is None:
            return None, self._version(DRAFT, methods, DraftCalls(methods, None), None)
        follower = TaskFollower(access, self.changes, self.authorities)
        tasks = DraftTasks(methods, access, follower, self._addresses, self._task_cursors)
        answers = TaskAnswers(
            access, follower, tasks, words=words, immediate_seconds=self.settings.immediate_wait_ms / 1000
        )
        return tasks, self._version(DRAFT, methods, DraftCalls(methods, answers), tasks.handlers)

    def _legacy(self, version: str, catalogue: Catalogue, access: TaskAccess | None) -> HandshakeVersion:
        """Build a version of the 2025-11-25 wire, without tasks if `access` is None."""
        words = OlderResults(version) if version in OLDER_VERSIONS else self._legacy_words
        methods = Methods(catalogue, self.calls, self.host, words)
        calls = LegacyCalls(
            methods,
            words,
            self._addresses,
            self.waiting,
            answer_seconds=min(self.settings.answer_seconds, self.settings.state_ttl_seconds),
            clock=self.keys.clock,
            takes_tasks=access is not None,
            max_json_depth=self.settings.max_json_depth,
            max_json_values=self.settings.max_json_values,
        )
        if access is None:
            return self._version(version, methods, calls, None)
        follower = TaskFollower(access, self.changes, self.authorities)
        tasks = LegacyTasks(methods, access, follower, self._addresses, self._task_cursors)
        handlers = tasks.handlers(has_identity=self._has_identity)
        return self._version(version, methods, calls, handlers)

    def _version(
        self, version: str, methods: Methods, calls: Calls, task_handlers: Mapping[str, Handler] | None
    ) -> HandshakeVersion:
        return HandshakeVersion(
            version,
            methods,
            calls,
            task_handlers,
            sessions=self._sessions,
            has_identity=self._has_identity,
        )
