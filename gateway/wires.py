"""The wires of one process, put together: what they share, and what each has of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.audit import AuditLog
from gateway.authoring.registry import Registry
from gateway.calls import CallRunner
from gateway.catalogue import Catalogue, draft_capabilities, handshake_entry, released_capabilities
from gateway.dispatch import Dispatcher
from gateway.draft_calls import DraftCalls
from gateway.engine.host import Host
from gateway.following import TaskFollower
from gateway.handshake_tasks import HandshakeTasks
from gateway.handshake_wire import HandshakeWire
from gateway.listening import Listener
from gateway.methods import Methods
from gateway.ports import Clock, RandomBytes, TaskStore
from gateway.protocol.draft.rounds import DraftResults
from gateway.protocol.released.results import ResultWriter
from gateway.released_wire import ReleasedWire
from gateway.return_addresses import ReturnAddresses
from gateway.sealing.cursor import CursorMaker
from gateway.sealing.envelope import Sealer
from gateway.sealing.keyring import KeyRing
from gateway.sessions import Sessions
from gateway.subscriptions import ChangeHub
from gateway.task_access import TaskAccess
from gateway.task_answers import TaskAnswers
from gateway.task_cursors import TaskCursors
from gateway.task_methods import TaskMethods
from gateway.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class Parts:
    """What all wires of a process are made with.

    Attributes:
        audience: the name all replicas of this deployment share.
        server_info: the `Implementation` object of this server.
        session_ttl_seconds: how long a session lasts.
        immediate_seconds: how long a result may take that the client wants at once.
        callers_are_known: whether callers have to say who they are.
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
    """

    audience: str
    server_info: Mapping[str, Any]
    session_ttl_seconds: float
    immediate_seconds: float
    callers_are_known: bool
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


class Wires:
    """Makes the wires, and hands them newer keys and tools.

    Args:
        parts: what they are made with.
        registry: what is served.
        ring: the seal keys.

    Attributes:
        dispatcher: answers requests of all of them.
    """

    def __init__(self, parts: Parts, registry: Registry, ring: KeyRing) -> None:
        self._parts = parts
        self._released_words = ResultWriter(parts.server_info, empty_requests=parts.empty_requests)
        self._draft_words = DraftResults()
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
        self._addresses = ReturnAddresses(sealer, parts.audience, parts.telemetry, parts.clock)
        self._task_cursors = TaskCursors(sealer, parts.audience)
        access = None if parts.store is None else TaskAccess(parts.store, parts.audience, parts.audit)
        self.dispatcher = Dispatcher(
            self._released(registry, access),
            self._handshake(registry, access),
            changes=parts.changes,
            audit=parts.audit,
            max_json_depth=parts.max_json_depth,
        )

    def serve(self, registry: Registry) -> None:
        """Serve newer tools from the next request on."""
        self.dispatcher.replace(self._released_catalogue(registry), self._handshake_catalogue(registry))

    def take_ring(self, ring: KeyRing) -> None:
        """Seal and open with other keys from now on."""
        sealer = Sealer(ring, self._parts.random_bytes)
        self._cursors = CursorMaker(ring)
        self._sessions.replace_sealer(sealer)
        self._addresses.replace_sealer(sealer)
        self._task_cursors.replace_sealer(sealer)
        self.serve(self.dispatcher.registry)

    def check(self, registry: Registry) -> None:
        """Make what would be told of a registry, and forget it: what cannot be told is found out by that."""
        self._released_catalogue(registry)
        self._handshake_catalogue(registry)

    def _released_catalogue(self, registry: Registry) -> Catalogue:
        capabilities = released_capabilities(registry, tasks=self._parts.store is not None)
        return Catalogue(registry, self._released_words, self._cursors, capabilities)

    def _handshake_catalogue(self, registry: Registry) -> Catalogue:
        parts = self._parts
        capabilities = draft_capabilities(registry, tasks=parts.store is not None, lists_tasks=parts.callers_are_known)
        return Catalogue(registry, self._draft_words, self._cursors, capabilities, entry=handshake_entry)

    def _released(self, registry: Registry, access: TaskAccess | None) -> ReleasedWire:
        parts, words = self._parts, self._released_words
        methods = Methods(self._released_catalogue(registry), parts.calls, parts.host, words)
        tasks = None if access is None else TaskMethods(access, words)
        return ReleasedWire(methods, Listener(words, parts.changes, access), tasks)

    def _handshake(self, registry: Registry, access: TaskAccess | None) -> HandshakeWire:
        parts = self._parts
        methods = Methods(self._handshake_catalogue(registry), parts.calls, parts.host, self._draft_words)
        answers = tasks = None
        if access is not None:
            follower = TaskFollower(access, parts.changes)
            tasks = HandshakeTasks(access, follower, self._addresses, self._task_cursors)
            answers = TaskAnswers(
                access, follower, tasks, words=self._draft_words, immediate_seconds=parts.immediate_seconds
            )
        return HandshakeWire(
            methods,
            DraftCalls(methods, answers),
            sessions=self._sessions,
            addresses=self._addresses,
            server_info=parts.server_info,
            tasks=tasks,
        )
