"""The rules of an upstream about names and URIs, as far as no list is needed to apply them."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, TypeAlias

from gateway.ensured import ensured
from gateway.errors import InsufficientScope
from gateway.protocol.caller import Requester
from gateway.protocol.upstream.names import may_be_changed, upstream_name
from gateway.protocol.upstream.uris import upstream_uri
from gateway.registry.parts import Kind
from gateway.upstreams.config.definition import Definition
from gateway.upstreams.known import URI_KINDS, canonical_asked, judged_of

MAX_VERDICTS_BYTES: Final = 16 * 2**20
"""How much memory a process takes to remember URIs of clients with what the rules of their upstreams say. The longest
streams that a caller may keep open need 40 % of it."""

_VERDICT_BYTES: Final = 600
"""The memory of a verdict without its texts."""

MAX_REMEMBERED_CHARACTERS: Final = 2_200
"""The longest URI that is remembered: one of a `subscriptions/listen`, and a prefix."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The canonical form of a URI or template that the rules of an upstream allow, and what else they say of it.

    Attributes:
        uri: the canonical form.
        scopes: what callers need.
        is_plain: whether it may be read without being listed, see `Definition.serves_made`.
    """

    uri: str
    scopes: frozenset[str]
    is_plain: bool


_Asked: TypeAlias = "tuple[Judge, Kind, str]"


@dataclass(frozen=True, slots=True, eq=False)
class Judge:
    """Judges URIs and templates of clients by the rules of one upstream.

    No list has a part in that, so that a verdict holds as long as the definition does. To judge a long URI takes
    milliseconds, and clients name the same ones again and again.
    """

    definition: Definition

    def of(self, kind: Kind, exposed: str) -> Verdict | None:
        """Return what the rules say of an exposed URI or template; None if it may not be served."""
        judge = _verdicts.of if len(exposed) <= MAX_REMEMBERED_CHARACTERS else _verdict
        return judge(self, kind, exposed)


class Verdicts:
    """Remembers what the rules say of the latest URIs, within `MAX_VERDICTS_BYTES`. Thread-safe."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Asked, Verdict | None] = OrderedDict()
        self._lock = threading.Lock()
        self.memory = 0

    def of(self, judge: Judge, kind: Kind, exposed: str) -> Verdict | None:
        """Return what the rules say, see `Judge.of`."""
        asked = judge, kind, exposed
        with self._lock:
            if asked in self._kept:
                self._kept.move_to_end(asked)
                return self._kept[asked]
            verdict = self._kept[asked] = _verdict(*asked)
            self.memory += _memory(exposed, verdict)
            while self.memory > MAX_VERDICTS_BYTES:
                (_, _, oldest), forgotten = self._kept.popitem(last=False)
                self.memory -= _memory(oldest, forgotten)
            return verdict


def _memory(exposed: str, verdict: Verdict | None) -> int:
    return _VERDICT_BYTES + sys.getsizeof(exposed) + (0 if verdict is None else sys.getsizeof(verdict.uri))


_verdicts: Final = Verdicts()


def _verdict(judge: Judge, kind: Kind, exposed: str) -> Verdict | None:
    definition = judge.definition
    own = upstream_uri(definition.prefix, exposed)
    uri = None if own is None else canonical_asked(kind, own)
    if uri is None or not serves(definition, kind, uri):
        return None
    return Verdict(uri, definition.scopes_of_resource(uri), kind == "resources" and definition.serves_made(uri))


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
