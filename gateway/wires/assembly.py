"""The wires of one process, put together: what they share, and what each has of its own."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.authoring.registry import Registry
from gateway.calls.authority import Authorities
from gateway.calls.changes import ChangeHub
from gateway.calls.ports import Tracing
from gateway.calls.runner import CallRunner
from gateway.calls.task_access import TaskAccess
from gateway.calls.task_follower import TaskFollower
from gateway.engine.host import Host
from gateway.observability.audit import AuditLog
from gateway.observability.metrics import Telemetry
from gateway.protocol.capabilities import HANDSHAKE_TASKS, TASKS
from gateway.protocol.draft.rounds import DraftResults
from gateway.protocol.legacy.results import LegacyResults
from gateway.protocol.released.results import ResultWriter
from gateway.protocol.versions import BEFORE_TASKS, DRAFT, LEGACY
from gateway.runtime.sources import Clock, RandomBytes
from gateway.sealing.envelope import Sealer
from gateway.sealing.keyring import KeyRing
from gateway.sealing.list_cursor import CursorMaker
from gateway.tasks.ports import TaskStore
from gateway.tokens.cursors import TaskCursors
from gateway.tokens.hop_messages import Hops, Post, max_message_bytes
from gateway.tokens.request_ids import ReplicaAddress, ReturnAddresses
from gateway.tokens.session_ids import Sessions
from gateway.wires.broadcasts import CHANGED_TOPIC, Broadcasts
from gateway.wires.catalogue import (
    Catalogue,
    draft_capabilities,
    handshake_capabilities,
    handshake_entry,
    released_capabilities,
)
from gateway.wires.dispatch import Dispatcher
from gateway.wires.draft.calls import DraftCalls
from gateway.wires.draft.task_results import TaskAnswers
from gateway.wires.draft.tasks import DraftTasks
from gateway.wires.handshake.version import Dialect
from gateway.wires.handshake_wire import HandshakeWire
from gateway.wires.legacy.answer_delivery import Deliveries
from gateway.wires.legacy.calls import LegacyCalls
from gateway.wires.legacy.pending_answers import WaitingCalls
from gateway.wires.legacy.tasks import LegacyTasks
from gateway.wires.methods import Methods
from gateway.wires.ports import Carrier
from gateway.wires.released.subscriptions import Listener
from gateway.wires.released.tasks import TaskMethods
from gateway.wires.released.wire import ReleasedWire


@dataclass(frozen=True, slots=True)
class Parts:
    """What all wires of a process are made with.

    Attributes:
        audience: the name all replicas of this deployment share.
        server_info: the `Implementation` object of this server.
        session_ttl_seconds: how long a session lasts.
        answer_seconds: how long a client may take to answer a call that waits for it.
        replica_url: where other replicas reach this one, "" if they cannot.
        immediate_seconds: how long a result may take that the client wants at once.
        callers_are_known: whether callers have to say who they are.
        hides_task_tools: whether clients that cannot run tasks are told nothing of tools that run only so.
        empty_requests: whether a shed of the released wire carries an empty `inputRequests`.
        max_json_depth: how deep a body may nest.
        calls: runs legs.
        host: runs completions.
        store: where tasks are, or None where there are none.
        changes: what streams hear of.
        audit: notes refusals.
        telemetry: counts.
        clock: seconds since the epoch.
        random_bytes: a source of strong randomness.
        waiting: the calls that wait for their clients.
        authorities: end what callers may not have any more.
        post: posts a sealed message to another replica.
        carriers: deliver sealed messages to all other replicas; tried in turn.
        max_body_bytes: how large the body of a request may be.
        tracing: traces requests, or None.
    """

    audience: str
    server_info: Mapping[str, Any]
    session_ttl_seconds: float
    answer_seconds: float
    replica_url: str
    immediate_seconds: float
    callers_are_known: bool
    hides_task_tools: bool
    empty_requests: bool
    max_json_depth: int
    calls: CallRunner
    host: Host
    store: TaskStore | None
    changes: ChangeHub
    audit: AuditLog
    telemetry: Telemetry
    clock: Clock
    random_bytes: RandomBytes
    waiting: WaitingCalls
    authorities: Authorities
    post: Post
    carriers: Sequence[Carrier]
    max_body_bytes: int
    tracing: Tracing | None = None


class Wires:
    """Makes the wires, and hands them newer keys and tools.

    Args:
        parts: what they are made with.
        registry: what is served.
        ring: the seal keys.

    Attributes:
        dispatcher: answers requests of all of them.
        hops: takes messages of other replicas.
        broadcasts: sends hints to all other replicas, and takes theirs.
    """

    def __init__(self, parts: Parts, registry: Registry, ring: KeyRing) -> None:
        self._parts = parts
        self._released_words = ResultWriter(parts.server_info, empty_requests=parts.empty_requests)
        self._draft_words = DraftResults()
        self._legacy_words = LegacyResults()
        self._cursors = CursorMaker(ring)
        sealer = Sealer(ring, parts.random_bytes)
        self._sessions = Sessions(
            sealer,
            parts.audience,
            ttl_seconds=parts.session_ttl_seconds,
            telemetry=parts.telemetry,
            clock=parts.clock,
            random_bytes=parts.random_bytes,
        )
        self._replica = ReplicaAddress(parts.replica_url, parts.waiting.boot)
        self._addresses = ReturnAddresses(sealer, parts.audience, parts.telemetry, parts.clock, self._replica)
        self._task_cursors = TaskCursors(sealer, parts.audience)
        self.hops = Hops(
            sealer,
            parts.audience,
            self._replica,
            post=parts.post,
            telemetry=parts.telemetry,
            clock=parts.clock,
            random_bytes=parts.random_bytes,
            max_bytes=max_message_bytes(parts.max_body_bytes),
        )
        self.broadcasts = Broadcasts(self.hops, parts.carriers, parts.telemetry)
        self.broadcasts.hand_on(CHANGED_TOPIC, parts.changes.announce_here)
        parts.changes.tell_others = functools.partial(self.broadcasts.tell, CHANGED_TOPIC)
        access = None if parts.store is None else TaskAccess(parts.store, parts.audit)
        self.dispatcher = Dispatcher(
            self._released(registry, access),
            self._handshake(registry, access),
            changes=parts.changes,
            audit=parts.audit,
            max_json_depth=parts.max_json_depth,
            tracing=parts.tracing,
        )

    def serve(self, registry: Registry) -> None:
        """Serve newer tools from the next request on."""
        self._parts.telemetry.serve(registry.names)
        self.dispatcher.replace(self._released_catalogue(registry), self._handshake_catalogues(registry))
        self._parts.authorities.serve(registry)

    def take_ring(self, ring: KeyRing) -> None:
        """Seal and open with other keys from now on."""
        sealer = Sealer(ring, self._parts.random_bytes)
        self._cursors = CursorMaker(ring)
        self._sessions.replace_sealer(sealer)
        self._addresses.replace_sealer(sealer)
        self._task_cursors.replace_sealer(sealer)
        self.hops.replace_sealer(sealer)
        self.serve(self.dispatcher.registry)

    def check(self, registry: Registry) -> None:
        """Make what would be told of a registry, and forget it: what cannot be told is found out by that."""
        self._released_catalogue(registry)
        self._handshake_catalogues(registry)

    def _released_catalogue(self, registry: Registry) -> Catalogue:
        capabilities = released_capabilities(registry, tasks=self._parts.store is not None)
        tasks = TASKS if self._parts.hides_task_tools else None
        return Catalogue(registry, self._released_words, self._cursors, capabilities, tasks=tasks)

    def _handshake_catalogues(self, registry: Registry) -> dict[str, Catalogue]:
        """Make the catalogues of the handshake wires, by version."""
        parts = self._parts
        has_tasks, lists = parts.store is not None, parts.callers_are_known
        draft = draft_capabilities(registry, tasks=has_tasks, lists_tasks=lists)
        legacy = handshake_capabilities(registry, tasks=has_tasks, lists_tasks=lists)
        before_tasks = handshake_capabilities(registry, tasks=False, lists_tasks=False)
        tasks = HANDSHAKE_TASKS if parts.hides_task_tools else None
        return {
            DRAFT: Catalogue(registry, self._draft_words, self._cursors, draft, entry=handshake_entry, tasks=tasks),
            LEGACY: Catalogue(registry, self._legacy_words, self._cursors, legacy, entry=handshake_entry, tasks=tasks),
            BEFORE_TASKS: Catalogue(registry, self._legacy_words, self._cursors, before_tasks, tasks=tasks),
        }

    def _released(self, registry: Registry, access: TaskAccess | None) -> ReleasedWire:
        parts, words = self._parts, self._released_words
        methods = Methods(self._released_catalogue(registry), parts.calls, parts.host, words)
        tasks = None if access is None else TaskMethods(access, words)
        return ReleasedWire(methods, Listener(words, parts.changes, parts.authorities, access), tasks)

    def _handshake(self, registry: Registry, access: TaskAccess | None) -> HandshakeWire:
        parts = self._parts
        catalogues = self._handshake_catalogues(registry)
        draft_tasks, draft = self._draft(catalogues[DRAFT], access)
        return HandshakeWire(
            {
                DRAFT: draft,
                LEGACY: self._legacy(catalogues[LEGACY], access),
                BEFORE_TASKS: self._legacy(catalogues[BEFORE_TASKS], None),
            },
            sessions=self._sessions,
            addresses=self._addresses,
            deliveries=Deliveries(
                parts.waiting, self._replica, self._addresses, self.hops, max_json_depth=parts.max_json_depth
            ),
            broadcasts=self.broadcasts,
            server_info=parts.server_info,
            tasks=draft_tasks,
        )

    def _draft(self, catalogue: Catalogue, access: TaskAccess | None) -> tuple[DraftTasks | None, Dialect]:
        parts, words = self._parts, self._draft_words
        methods = Methods(catalogue, parts.calls, parts.host, words)
        if access is None:
            return None, Dialect(methods, DraftCalls(methods, None), {})
        follower = TaskFollower(access, parts.changes, parts.authorities)
        tasks = DraftTasks(access, follower, self._addresses, self._task_cursors)
        answers = TaskAnswers(access, follower, tasks, words=words, immediate_seconds=parts.immediate_seconds)
        return tasks, Dialect(methods, DraftCalls(methods, answers), tasks.methods)

    def _legacy(self, catalogue: Catalogue, access: TaskAccess | None) -> Dialect:
        """Make a dialect of the 2025-11-25 wire; without access to tasks, it has none."""
        parts = self._parts
        methods = Methods(catalogue, parts.calls, parts.host, self._legacy_words)
        calls = LegacyCalls(
            methods,
            self._addresses,
            parts.waiting,
            answer_seconds=parts.answer_seconds,
            clock=parts.clock,
            takes_tasks=access is not None,
        )
        if access is None:
            return Dialect(methods, calls, {})
        follower = TaskFollower(access, parts.changes, parts.authorities)
        tasks = LegacyTasks(access, follower, self._addresses, self._task_cursors)
        return Dialect(methods, calls, tasks.methods(lists_tasks=parts.callers_are_known))
