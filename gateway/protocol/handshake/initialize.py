"""Pure: the handshake (2025-11-25 "Lifecycle", Initialization)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.errors import InvalidParams
from gateway.protocol.capabilities import check_capabilities
from gateway.protocol.fields import read_object
from gateway.protocol.identity import Identity
from gateway.protocol.versions import BEFORE_TASKS, OLDER_VERSIONS, negotiate


class Initialize(msgspec.Struct, frozen=True):
    """The parameters of `initialize`."""

    version: str
    capabilities: dict[str, Any]


def read_initialize(params: Mapping[str, Any]) -> Initialize:
    """Read the parameters of `initialize`, or raise `InvalidParams`. `clientInfo` has no effect, so it is not read.

    A client of a version before elicitation is never asked, whatever it declares.
    """
    if "capabilities" not in params:
        raise InvalidParams("params.capabilities must be an object")
    capabilities = check_capabilities(read_object(params, "capabilities"), "params.capabilities")
    version = negotiate(params.get("protocolVersion"))
    if version in OLDER_VERSIONS:
        capabilities = {name: value for name, value in capabilities.items() if name != "elicitation"}
    return Initialize(version, capabilities)


def initialize_result(version: str, capabilities: Mapping[str, Any], identity: Identity) -> dict[str, Any]:
    """Return an `InitializeResult`."""
    if version in OLDER_VERSIONS:
        info = identity.brief
    else:
        info = identity.titled if version == BEFORE_TASKS else identity.whole
    return {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info, **identity.guidance}
