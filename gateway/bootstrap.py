"""Builds what a process is made of from its settings."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass

from gateway import __version__
from gateway.audit import AuditLog, Write, to_file_descriptor
from gateway.auth import make_verifier
from gateway.authoring.host import AsyncioHost
from gateway.authoring.registry import Registry, load_registry
from gateway.calls import CallRunner
from gateway.carrier import FlowLimits, SealedCarrier
from gateway.catalogue import Catalogue
from gateway.dispatch import Dispatcher
from gateway.errors import ConfigurationError
from gateway.ports import Authenticator
from gateway.protocol.released.results import ResultWriter
from gateway.sealing.cursor import CursorMaker
from gateway.sealing.envelope import Sealer
from gateway.sealing.keyring import KeyRing
from gateway.settings import Settings
from gateway.subscriptions import ChangeHub
from gateway.telemetry import Telemetry

SERVER_INFO = {"name": "sealed-gateway", "version": __version__}


@dataclass(frozen=True, slots=True)
class Services:
    """What a replica serves with; made once per process."""

    settings: Settings
    registry: Registry
    results: ResultWriter
    cursors: CursorMaker
    authenticator: Authenticator
    dispatcher: Dispatcher
    telemetry: Telemetry
    changes: ChangeHub
    host: AsyncioHost
    audit: AuditLog

    def catalogue_of(self, registry: Registry) -> Catalogue:
        """Return what this process tells of a registry."""
        return Catalogue(registry, self.results, self.cursors)


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
    limits = FlowLimits(settings.state_ttl_seconds, settings.flow_max_seconds, settings.state_max_bytes)
    audit = _audit_log(settings)
    calls = CallRunner(
        carrier=SealedCarrier(Sealer(ring, os.urandom), limits, telemetry, time.time, os.urandom),
        host=host,
        telemetry=telemetry,
        results=results,
        audience=settings.audience,
        random_bytes=os.urandom,
        audit=audit,
        strict_asks=settings.strict_asks,
    )
    dispatcher = Dispatcher(
        catalogue=Catalogue(registry, results, cursors),
        calls=calls,
        host=host,
        results=results,
        changes=changes,
        audit=audit,
    )
    return Services(
        settings=settings,
        registry=registry,
        results=results,
        cursors=cursors,
        authenticator=make_verifier(settings),
        dispatcher=dispatcher,
        telemetry=telemetry,
        changes=changes,
        host=host,
        audit=audit,
    )


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
