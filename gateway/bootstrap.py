"""Builds what a process is made of from its settings."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass

from gateway import __version__
from gateway.auth import make_verifier
from gateway.authoring.host import AsyncioHost
from gateway.authoring.registry import Registry, load_registry
from gateway.carrier import FlowLimits, SealedCarrier
from gateway.dispatch import Dispatcher
from gateway.ports import Authenticator
from gateway.sealing.envelope import Sealer
from gateway.sealing.keyring import KeyRing
from gateway.settings import Settings
from gateway.telemetry import Telemetry

log = logging.getLogger(__name__)

SERVER_INFO = {"name": "sealed-gateway", "version": __version__}


@dataclass(frozen=True, slots=True)
class Services:
    """What a replica serves with; made once per process."""

    settings: Settings
    registry: Registry
    authenticator: Authenticator
    dispatcher: Dispatcher
    telemetry: Telemetry
    host: AsyncioHost


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
    telemetry = Telemetry(registry.tools)
    host = AsyncioHost(settings.leg_seconds, settings.replica_id)
    limits = FlowLimits(settings.state_ttl_seconds, settings.flow_max_seconds, settings.state_max_bytes)
    carrier = SealedCarrier(Sealer(ring, os.urandom), limits, telemetry, time.time, os.urandom)
    dispatcher = Dispatcher(
        registry=registry,
        carrier=carrier,
        host=host,
        telemetry=telemetry,
        audience=settings.audience,
        server_info=SERVER_INFO,
        random_bytes=os.urandom,
        strict_asks=settings.strict_asks,
    )
    return Services(settings, registry, make_verifier(settings), dispatcher, telemetry, host)
