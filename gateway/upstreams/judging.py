"""The rules of an upstream about names and URIs, as far as no list is needed to apply them."""

from __future__ import annotations

from gateway.ensured import ensured
from gateway.errors import InsufficientScope
from gateway.protocol.upstream.names import may_be_changed, upstream_name
from gateway.protocol.upstream.uris import upstream_uri
from gateway.registry.parts import Kind
from gateway.registry.relayed import Requester
from gateway.upstreams.config.definition import Definition
from gateway.upstreams.known import URI_KINDS, judged_of


def serves(definition: Definition, kind: Kind, judged: str | None) -> bool:
    """Return whether an entry may be served, by the upstream's own name, or by the canonical form of a URI."""
    if kind in URI_KINDS:
        return definition.serves_resource(judged)
    own = ensured(judged, "only URIs may lack a canonical form")
    return definition.serves_tool(own) if kind == "tools" else definition.prompts.takes(own)


def may_be_served(definition: Definition, kind: Kind, exposed: str, requester: Requester) -> bool:
    """Return whether a list can say that an exposed name or URI is served to a caller.

    If no list can, the upstream need not be asked for one. A name that may have been changed is judged with the list,
    which says what it stands for.

    Raises:
        InsufficientScope: the caller's token does not grant the scopes of the name or URI.
    """
    is_uri = kind in URI_KINDS
    own = upstream_uri(definition.prefix, exposed) if is_uri else upstream_name(definition.prefix, exposed)
    if own is None:
        return False
    if not is_uri and may_be_changed(exposed):
        return True
    judged, _ = judged_of(kind, own)
    if not serves(definition, kind, judged):
        return False
    scopes = definition.scopes_of_resource(judged) if is_uri else definition.scopes.of(own)
    if scopes and not requester.grants(scopes):
        raise InsufficientScope(scopes)
    return True
