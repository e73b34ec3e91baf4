"""Builds what a process is made of from its settings."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from gateway import __version__
from gateway.admission.callers import CallerLimits
from gateway.audit import AuditLog, Write, to_file_descriptor
from gateway.auth import ResourceMetadata, make_verifier
from gateway.authoring.host import AsyncioHost
from gateway.authoring.registry import Registry, load_registry
from gateway.calls import CallRunner
from gateway.carrier import FlowLimits, SealedCarrier
from gateway.catalogue import Catalogue
from gateway.dispatch import Dispatcher
from gateway.errors import ConfigurationError
from gateway.ports import Authenticator
from gateway.protocol.challenges import Challenges
from gateway.protocol.released.results import ResultWriter
from gateway.sealing.cursor import CursorMaker
from gateway.sealing.envelope import Sealer
from gateway.sealing.keyring import KeyRing
from gateway.settings import Settings
from gateway.subscriptions import ChangeHub
from gateway.telemetry import Telemetry
from gateway.watch import FileWatcher

log = logging.getLogger(__name__)

SEAL_KEYS_FILE = "GATEWAY_SEAL_KEYS_FILE"
SERVER_INFO = {"name": "sealed-gateway", "version": __version__}


@dataclass(slots=True)
class Services:
    """What a replica serves with; made once per process.

    Only the key ring changes while it serves, and what is made of it: see `take_ring`.
    """

    settings: Settings
    ring: KeyRing
    registry: Registry
    results: ResultWriter
    cursors: CursorMaker
    authenticator: Authenticator
    calls: CallRunner
    dispatcher: Dispatcher
    telemetry: Telemetry
    changes: ChangeHub
    host: AsyncioHost
    callers: CallerLimits
    audit: AuditLog
    metadata: ResourceMetadata | None
    challenges: Challenges

    def catalogue_of(self, registry: Registry) -> Catalogue:
        """Return what this process tells of a registry."""
        return Catalogue(registry, self.results, self.cursors)

    def take_ring(self, ring: KeyRing) -> None:
        """Seal and open with other keys from now on; a leg that runs goes on with those it began with."""
        if ring == self.ring:
            return
        self.ring = ring
        self.cursors = CursorMaker(ring)
        self.calls.replace_carrier(_carrier(self.settings, ring, self.telemetry))
        self.dispatcher.replace(self.catalogue_of(self.dispatcher.registry))
        key_ids = _tell_ring(ring, self.telemetry)
        log.info("seal keys replaced", extra={"key_ids": ", ".join(key_ids)})

    def key_files(self) -> Iterator[FileWatcher[KeyRing]]:
        """Give what watches the file of the seal keys, if they come from one."""
        path = self.settings.file_of("seal_keys")
        if path is not None:
            yield FileWatcher(SEAL_KEYS_FILE, path, _parse_ring, self.take_ring)


def build(settings: Settings) -> Services:
    """Build the services of one replica.

    Raises:
        ConfigurationError: a setting, a key or a tool module is wrong; the message says what to change.
    """
    settings.check_serving()
    assert settings.seal_keys is not None  # noqa: S101 - check_serving has seen to it
    assert settings.audience is not None  # noqa: S101 - the same
    ring = KeyRing.parse(settings.seal_keys.get_secret_value())
    registry = load_registry(settings.tools)
    telemetry = Telemetry(registry.names)
    changes = ChangeHub()
    host = AsyncioHost(settings.leg_seconds, settings.replica_id, on_change=changes.announce)
    results = ResultWriter(SERVER_INFO)
    cursors = CursorMaker(ring)
    _tell_ring(ring, telemetry)
    metadata = ResourceMetadata.of(settings)
    if metadata is not None and not metadata.authorization_servers:
        log.warning("clients are not told where to get tokens; set GATEWAY_AUTHORIZATION_SERVERS")
    challenges = Challenges(None if metadata is None else metadata.url)
    audit = _audit_log(settings)
    calls = CallRunner(
        carrier=_carrier(settings, ring, telemetry),
        host=host,
        telemetry=telemetry,
        results=results,
        audience=settings.audience,
        random_bytes=os.urandom,
        audit=audit,
        max_answers=settings.max_answers,
        strict_asks=settings.strict_asks,
    )
    dispatcher = Dispatcher(
        catalogue=Catalogue(registry, results, cursors),
        calls=calls,
        host=host,
        results=results,
        changes=changes,
        audit=audit,
        max_json_depth=settings.max_json_depth,
    )
    return Services(
        settings=settings,
        ring=ring,
        registry=registry,
        results=results,
        cursors=cursors,
        authenticator=make_verifier(settings, telemetry, challenges),
        calls=calls,
        dispatcher=dispatcher,
        telemetry=telemetry,
        changes=changes,
        host=host,
        callers=CallerLimits(settings.rate_limit, settings.streams_per_principal, time.monotonic),
        audit=audit,
        metadata=metadata,
        challenges=challenges,
    )


def _carrier(settings: Settings, ring: KeyRing, telemetry: Telemetry) -> SealedCarrier:
    limits = FlowLimits(settings.state_ttl_seconds, settings.flow_max_seconds, settings.state_max_bytes)
    return SealedCarrier(Sealer(ring, os.urandom), limits, telemetry, time.time, os.urandom)


def _tell_ring(ring: KeyRing, telemetry: Telemetry) -> list[str]:
    """Tell the metrics which keys are in use, and return their ids, the sealing one first."""
    key_ids = [key.key_id.hex() for key in ring.keys]
    telemetry.seal_keys(key_ids)
    return key_ids


def _parse_ring(content: bytes) -> KeyRing:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{SEAL_KEYS_FILE} names a file that is not UTF-8 text") from None
    return KeyRing.parse(text, setting=SEAL_KEYS_FILE)


def _audit_log(settings: Settings) -> AuditLog:
    """Return the audit log that the settings ask for.

    Raises:
        ConfigurationError: its file cannot be written.
    """
    write: Write
    if settings.audit_log == "off":
        write = len
    elif settings.audit_log == "stderr":
        write = to_file_descriptor(sys.stderr.fileno())
    else:
        try:
            descriptor = os.open(settings.audit_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        except OSError as error:
            raise ConfigurationError(
                f"GATEWAY_AUDIT_LOG is {settings.audit_log!r}, which cannot be written: {error.strerror}"
            ) from None
        write = to_file_descriptor(descriptor)
    return AuditLog(write, settings.replica_id, time.time, as_json=settings.log_format == "json")
