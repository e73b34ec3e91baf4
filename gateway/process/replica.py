"""Builds the services of a replica from its settings."""

from __future__ import annotations

import functools
import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.admission.bodies import BodyBudget
from gateway.admission.caller_limits import CallerLimits
from gateway.admission.inflight import InFlight
from gateway.admission.leg_limit import AdaptiveLimit, FixedLimit
from gateway.admission.load_metrics import show_load
from gateway.auth import ResourceMetadata, Verifier, make_verifier
from gateway.authoring.asyncio_host import AsyncioHost
from gateway.calls.authority import Authorities
from gateway.calls.changes import ChangeHub
from gateway.calls.runner import CallRunner
from gateway.calls.task_creation import TaskCalls, TaskLimits
from gateway.engine.leg_policy import LegPolicy
from gateway.observability.audit import AuditLog
from gateway.observability.metrics import Telemetry
from gateway.process.preflight import load_tools
from gateway.process.services import (
    OpenAuditLog,
    make_audit_log,
    make_key_holder,
    make_task_store,
    make_tracing,
    make_upstreams,
    redis_url_of,
)
from gateway.protocol.challenges import Challenges
from gateway.registry.registry import Registry
from gateway.runtime.compilation import is_compiled
from gateway.runtime.replaceable import Replaceable
from gateway.runtime.version import __version__
from gateway.sealing.hop import Process, Role
from gateway.sealing.request_id import ID_BYTES
from gateway.settings.model import Settings
from gateway.tokens.hop_messages import max_message_bytes
from gateway.tokens.key_holder import KeyHolder
from gateway.tokens.request_ids import ReplicaAddress
from gateway.tokens.request_state import FlowLimits, SealedCarrier
from gateway.tokens.stream_receiver import StreamReceiver, max_stream_request_bytes
from gateway.tokens.stream_sender import StreamSender
from gateway.web.hop import HopClient
from gateway.web.neighbours import LocalNeighbours
from gateway.web.peers import Peers
from gateway.wires.assembly import Wires
from gateway.wires.legacy.pending_answers import WaitingCalls
from gateway.wires.ports import Carrier

if TYPE_CHECKING:  # a process without traces or a task store never loads OpenTelemetry or redis: they take memory
    from gateway.observability.tracing import Traces
    from gateway.process.upstreams import ServedUpstreams
    from gateway.storage import RedisTaskStore
    from gateway.upstreams.held.holder import Holder

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Services:
    """The services of a replica, built once per process.

    While it serves, only the keys in `keys`, the `redis_url` and the parts of `upstreams` change. `registry` is what is
    served at the start.
    """

    settings: Settings
    keys: KeyHolder
    registry: Registry
    authenticator: Verifier
    calls: CallRunner
    wires: Wires
    telemetry: Telemetry
    changes: ChangeHub
    waiting: WaitingCalls
    neighbours: LocalNeighbours
    stream_sender: StreamSender
    stream_receiver: StreamReceiver
    host: AsyncioHost
    callers: CallerLimits
    load: InFlight
    audit: AuditLog
    audit_file: OpenAuditLog
    store: RedisTaskStore | None
    redis_url: Replaceable[str] | None
    upstreams: ServedUpstreams | None
    metadata: ResourceMetadata | None
    challenges: Challenges
    tracing: Traces | None


def build(settings: Settings) -> Services:
    """Build the services of one replica.

    Raises:
        ConfigurationError: a setting, a key or a tool module is wrong. The message says what to change.
    """
    settings.check_serving()
    keys = make_key_holder(settings)
    registry = load_tools(settings)
    audit = make_audit_log(settings)
    try:
        return _build(settings, keys, registry, audit)
    except BaseException:
        audit.close()
        raise


def _build(settings: Settings, keys: KeyHolder, registry: Registry, audit: OpenAuditLog) -> Services:
    telemetry = Telemetry(registry.names)
    telemetry.build_info(__version__, compiled=is_compiled())
    changes = ChangeHub()
    tracing = make_tracing(settings.replica_id)
    replica = ReplicaAddress(settings.replica_url or "", os.urandom(ID_BYTES))
    max_request_bytes = max_stream_request_bytes(settings.max_body_bytes)
    max_local_bytes = max(max_request_bytes, max_message_bytes(settings.max_body_bytes))
    neighbours = LocalNeighbours(keys, replica.boot, max_bytes=max_local_bytes)
    sender = StreamSender(
        keys, Process(Role.REPLICA, replica.boot), telemetry, own_url=replica.url, neighbours=neighbours
    )
    receiver = StreamReceiver(keys, replica, neighbours=neighbours, telemetry=telemetry, max_bytes=max_request_bytes)
    hold = functools.partial(_hold, settings, replica, sender, receiver)
    upstreams = make_upstreams(settings, telemetry, tracing, changes.announce, hold)
    if upstreams is not None:
        registry = registry.arranged(upstreams.parts)
    host = AsyncioHost(settings.leg_seconds, settings.replica_id, on_change=changes.announce)
    load = _load(settings)
    show_load(load, telemetry)
    telemetry.watch_threads(lambda: host.waiting_for_threads)
    keys.show(telemetry.seal_keys)
    metadata = _metadata(settings)
    challenges = Challenges(None if metadata is None else metadata.url, settings.login_scopes)
    telemetry.audit_lines_lost = audit.lost
    redis_url = redis_url_of(settings)
    store = make_task_store(settings, redis_url, keys, telemetry)
    calls = CallRunner(
        keys=keys,
        carrier=SealedCarrier(keys, _flow_limits(settings), telemetry),
        host=host,
        telemetry=telemetry,
        audit=audit.log,
        policy=LegPolicy.of(settings),
        tasks=None if store is None else TaskCalls(store, _task_limits(settings), os.urandom),
        shedding=load.shedding,
        tracing=tracing,
    )
    authenticator = make_verifier(settings, telemetry, challenges)
    authorities = Authorities(registry, time.time, authenticator.has_left)
    authenticator.on_change(authorities.review)
    waiting = WaitingCalls(replica.boot, os.urandom, authorities, max_bytes=settings.max_body_bytes)
    telemetry.watch_waiting(waiting)
    client = HopClient()
    wires = Wires(
        settings,
        keys,
        registry,
        calls=calls,
        host=host,
        store=store,
        changes=changes,
        audit=audit.log,
        telemetry=telemetry,
        waiting=waiting,
        authorities=authorities,
        post=client.post,
        neighbours=neighbours,
        carriers=_carriers(settings, store, client, telemetry),
        tracing=tracing,
    )
    if upstreams is not None:
        upstreams.serve_with(wires.arrange)
    return Services(
        settings=settings,
        keys=keys,
        registry=registry,
        authenticator=authenticator,
        calls=calls,
        wires=wires,
        telemetry=telemetry,
        changes=changes,
        waiting=waiting,
        neighbours=neighbours,
        stream_sender=sender,
        stream_receiver=receiver,
        host=host,
        callers=_callers(settings),
        load=load,
        audit=audit.log,
        audit_file=audit,
        store=store,
        redis_url=redis_url,
        upstreams=upstreams,
        metadata=metadata,
        challenges=challenges,
        tracing=tracing,
    )


def _hold(settings: Settings, replica: ReplicaAddress, sender: StreamSender, receiver: StreamReceiver) -> Holder:
    """Return the holder of the calls to upstreams. It serves the requests of other processes."""
    from gateway.upstreams.held.holder import Holder  # noqa: PLC0415 - most processes have no upstreams
    from gateway.upstreams.held.holders import Holders  # noqa: PLC0415 - the same

    holders = Holders(settings.holders, sender, own_url=replica.url) if settings.holders else None
    is_one_of_many = bool(settings.peers or settings.replica_url)
    holder = Holder(address=replica, sender=sender, holders=holders, is_one_of_many=is_one_of_many)
    for kind, handler in holder.handlers.items():
        receiver.handle(kind, handler)
    return holder


def _metadata(settings: Settings) -> ResourceMetadata | None:
    metadata = ResourceMetadata.of(settings)
    if metadata is None:
        return None
    if not metadata.authorization_servers:
        log.warning("clients cannot find out where to get tokens; set GATEWAY_AUTHORIZATION_SERVERS")
    if metadata.resource not in settings.token_audiences:
        log.info(
            "clients request tokens for the resource, but only tokens for GATEWAY_JWT_AUDIENCE are accepted",
            extra={"resource": metadata.resource, "audience": settings.jwt_audience},
        )
    return metadata


def _callers(settings: Settings) -> CallerLimits:
    bodies = BodyBudget(settings.max_unanswered_bytes, settings.max_body_bytes)
    return CallerLimits(settings.rate_limit, settings.streams_per_principal, time.monotonic, bodies)


def _carriers(
    settings: Settings, store: RedisTaskStore | None, client: HopClient, telemetry: Telemetry
) -> list[Carrier]:
    """Return the carriers of messages to all other replicas: the task store first, then the network."""
    carriers: list[Carrier] = []
    if store is not None:
        carriers.append(store.replica_channel())
    if settings.peers:
        carriers.append(Peers(settings.peers, settings.replica_url, client, telemetry, clock=time.monotonic))
    return carriers


def _load(settings: Settings) -> InFlight:
    target_seconds = settings.queue_target_ms / 1000
    fixed = settings.max_inflight
    limit = AdaptiveLimit(target_seconds) if fixed is None else FixedLimit(fixed)
    return InFlight(limit, target_seconds, time.monotonic)


def _task_limits(settings: Settings) -> TaskLimits:
    return TaskLimits(
        ttl_ms=int(settings.task_max_ttl_seconds * 1000),
        per_principal=settings.tasks_per_principal,
        bytes_per_principal=settings.task_bytes_per_principal,
        max_argument_bytes=settings.task_max_argument_bytes,
        leg_ms=int(settings.leg_seconds * 1000),
    )


def _flow_limits(settings: Settings) -> FlowLimits:
    return FlowLimits(settings.state_ttl_seconds, settings.flow_max_seconds, settings.state_max_bytes)
