"""Learns how an upstream is spoken to, and speaks to it that way. Relays and lists need not know.

An upstream is `stateless` if it answers `server/discover` (2026-07-28). Earlier ones refuse that in many ways. If their
answer to `initialize` gives no session id, they are `sessionless`: each request is complete in itself, so any replica
can send it. All others are called in sessions.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, Unpack

from gateway.protocol.upstream.earlier_requests import SPOKEN
from gateway.protocol.upstream.introductions import SessionIntroduction
from gateway.protocol.versions import INITIALIZE, RELEASED
from gateway.runtime.sources import Clock
from gateway.upstreams.client.dialects import Sessionless
from gateway.upstreams.client.stateless import StatelessClient
from gateway.upstreams.client.task_tools import TaskTools
from gateway.upstreams.config.definition import ByGlob, Era
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.guarded import UpstreamClient
from gateway.upstreams.ports import Changes, RequestOptions, Requests, UpstreamCaller

DISCOVER: Final = "server/discover"

LEARNT_SECONDS: Final = 3600.0
"""How long an upstream counts as one that is not stateless, before it is asked again whether it has become that."""

REFUSED_SECONDS: Final = 60.0
"""How long an upstream that gives a session is not asked again for tools that an option says need none."""

SUSPECTED_SECONDS: Final = 10.0
"""How often an error of a call may have it asked again: callers cause such errors, and all calls wait meanwhile."""

KnownEra: TypeAlias = Literal["stateless", "sessionless", "session"]
_CHOSEN: Final[tuple[KnownEra, ...]] = ("stateless", "sessionless", "session")

_SESSION: Final = "mcp-session-id"
_OLDER_REASONS: Final = frozenset({Reason.NOT_FOUND, Reason.MALFORMED, Reason.WRONG_ID})
"""How a request ends that an older server refuses without a JSON-RPC error."""
_OTHER_ERA: Final = frozenset({-32000, -32600, -32022})
"""Errors by which an upstream may say that it is spoken to in the wrong way: no session, no such version."""
_NO_SUCH_METHOD: Final = -32601
_SERVER_ERRORS: Final = 500
_ABOUT_TOOLS: Final = frozenset({"tools/list", "tools/call"})
_CONTINUES: Final = frozenset({"requestState", "inputResponses"})
"""Members of a request that continues a call, as only 2026-07-28 has them."""


@dataclass(frozen=True, slots=True)
class _Probe:
    """Of the request for which an upstream is asked who it is: whose it is, and its limits."""

    requester: UpstreamCaller
    ends_at: float
    max_bytes: int

    def options(self, now: float) -> RequestOptions:
        """Return the same as options of `StatelessClient.request`."""
        return {"requester": self.requester, "seconds": self.ends_at - now, "max_bytes": self.max_bytes}


_Step: TypeAlias = Callable[[_Probe], Awaitable[dict[str, Any]]]


class EraClient:
    """Sends requests to one upstream in its era. `eras` is the operator's choice, by the upstream's names of tools.

    `dialect` is that of `sessionless`.
    """

    def __init__(
        self,
        upstream: str,
        eras: ByGlob[Era],
        stateless: StatelessClient,
        sessionless: StatelessClient,
        sessions: UpstreamClient,
        *,
        dialect: Sessionless,
        clock: Clock = time.monotonic,
    ) -> None:
        self._upstream = upstream
        self._eras = eras
        self._stateless = stateless
        self._sessionless = sessionless
        self._sessions = sessions
        self._clients: Mapping[KnownEra, Requests] = {
            "stateless": stateless,
            "sessionless": sessionless,
            "session": sessions,
        }
        self._dialect = dialect
        self._task_tools = TaskTools(upstream)
        self._offers_tasks = False
        self._clock = clock
        self._learning = asyncio.Lock()
        self._era: KnownEra | None = None
        self._asks_again_at = 0.0
        self._trusted_until = -math.inf
        self._unreachable = 0

    @property
    def era(self) -> KnownEra | None:
        """How the upstream is spoken to; None if that is not known yet."""
        return self._era

    @property
    def probe_method(self) -> str:
        """A request that depends on no caller, and that a sessionless upstream cannot take for a new client."""
        return {"sessionless": "tools/list", "session": self._sessions.probe_method}.get(self._era or "", DISCOVER)

    def listen(self, wanted: Mapping[str, Any], *, requester: UpstreamCaller) -> AbstractAsyncContextManager[Changes]:
        """Open a stream of changes. Sessionless upstreams never say that they have one."""
        client = self._sessions if self._era == "session" else self._stateless
        return client.listen(wanted, requester=requester)

    async def request(
        self, method: str, params: Mapping[str, Any], **options: Unpack[RequestOptions]
    ) -> dict[str, Any]:
        """Send a request and return its result; see `StatelessClient.request`. The era is learnt first.

        The result of `server/discover` has `capabilities` and `instructions`, whatever the era is.

        Raises:
            UpstreamFailure: also if a stateless upstream has become another one between two legs of a call.
        """
        if options.get("continued") is not None:  # whatever the era is now, the call is held in a session
            return await self._sessions.request(method, params, **options)
        era = self._chosen_for(method, params) or self._era
        if method == DISCOVER or era != "stateless":  # else, nothing needs to be learnt
            ends_at = self._clock() + options["seconds"]
            probe = _Probe(options["requester"], ends_at, options["max_bytes"])
            if method == DISCOVER:
                return await self._learn(probe, self._discovered)
            era = await self._era_for(method, params, probe)
            if era != "stateless" and not _CONTINUES.isdisjoint(params):
                # It would begin the call again, with all its effects.
                raise UpstreamFailure(self._upstream, Reason.CHANGED, sent=True, detail="it is stateless no more")
            options["seconds"] = ends_at - self._clock()
        if options.get("needs_session"):
            if era == "sessionless":
                raise UpstreamFailure(self._upstream, Reason.NEEDS_SESSION, sent=False, detail="it gives no session")
            era = "session"
        try:
            if era == "sessionless" and self._offers_tasks and method in _ABOUT_TOOLS:
                whose = options["requester"].key
                return await self._task_tools.request(whose, self._sessionless, method, params, **options)
            return await self._clients[era].request(method, params, **options)
        except UpstreamError as error:
            if error.code in _OTHER_ERA and self._clock() >= self._trusted_until:
                self._trusted_until = self._clock() + SUSPECTED_SECONDS
                self._asks_again_at = 0.0
            raise

    async def _era_for(self, method: str, params: Mapping[str, Any], probe: _Probe) -> KnownEra:
        """Return the era of a request. If that must be learnt first and cannot be, the request has not been sent."""
        chosen = self._chosen_for(method, params)
        era = chosen or self._era
        try:
            if chosen is None and not self._is_known():
                await self._learn(probe, self._discovered_once)
                era = self._era
            elif era == "sessionless" and not self._dialect.version and self._clock() >= self._asks_again_at:
                await self._learn(probe, self._initialized_sessionless)
        except UpstreamError as error:
            detail = f"error {error.code} while it was asked how to call it"
            raise UpstreamFailure(self._upstream, Reason.SERVER_ERROR, sent=False, detail=detail) from None
        except UpstreamFailure as failure:
            raise UpstreamFailure(
                self._upstream,
                failure.reason,
                sent=False,
                detail=failure.detail,
                is_unavailable=failure.is_unavailable,
            ) from None
        if era is None or (era == "sessionless" and not self._dialect.version):
            raise self._gives_session()
        return era

    def _chosen_for(self, method: str, params: Mapping[str, Any]) -> KnownEra | None:
        """Return the era that the operator chose for a request, or None."""
        chosen = self._eras.of(params["name"] if method == "tools/call" else "")
        return chosen if chosen in _CHOSEN else None

    def _is_known(self) -> bool:
        """Return whether the era of tools without an option is known, and need not be asked for again."""
        return self._era == "stateless" or (self._era is not None and self._clock() < self._asks_again_at)

    async def _learn(self, probe: _Probe, step: _Step) -> dict[str, Any]:
        """Ask the upstream, for one request at a time, within the time of the request that needs it.

        If it cannot be reached, this is what all requests learn that waited meanwhile.
        """
        before = self._unreachable
        try:
            async with asyncio.timeout(probe.ends_at - self._clock()):
                await self._learning.acquire()
        except TimeoutError:
            detail = "it did not say in time how to call it"
            raise UpstreamFailure(self._upstream, Reason.TIMED_OUT, sent=False, detail=detail) from None
        if self._unreachable != before:
            self._learning.release()
            raise UpstreamFailure(self._upstream, Reason.UNREACHABLE, sent=False)
        learning = asyncio.create_task(self._stepped(probe, step))
        learning.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits
        return await asyncio.shield(learning)

    async def _stepped(self, probe: _Probe, step: _Step) -> dict[str, Any]:
        """Ask the upstream, also if the request leaves: a session that was begun is to be ended."""
        try:
            return await step(probe)
        except UpstreamFailure as failure:
            self._unreachable += failure.reason is Reason.UNREACHABLE
            raise
        finally:
            self._learning.release()

    async def _discovered_once(self, probe: _Probe) -> dict[str, Any]:
        return {} if self._is_known() else await self._discovered(probe)

    async def _discovered(self, probe: _Probe) -> dict[str, Any]:
        """Ask the upstream who it is, and learn its era.

        Raises:
            UpstreamFailure: there is no answer, or not a valid one.
            UpstreamError: the upstream refuses for another reason.
        """
        chosen = self._eras.of("")
        is_learnt = self._era not in (None, "stateless") and self._clock() < self._asks_again_at
        era = chosen if chosen in _CHOSEN else self._era if is_learnt else None
        if era in (None, "stateless"):
            found = await self._found_stateless(probe, must_be=era == "stateless")
            if found is not None:
                self._era = "stateless"
                return found
        try:
            if era == "sessionless":
                found = await self._initialized_sessionless(probe)
            else:
                found = None if era == "session" else await self._initialized(probe)
            self._era = "session" if found is None else "sessionless"
            found = found or await self._sessions.request(DISCOVER, {}, **probe.options(self._clock()))
        except (UpstreamError, UpstreamFailure) as problem:
            if not (isinstance(problem, UpstreamFailure) and problem.reason is Reason.NEEDS_SESSION):
                self._asks_again_at = 0.0
            raise
        if not is_learnt:
            self._asks_again_at = self._clock() + LEARNT_SECONDS
        return found

    async def _found_stateless(self, probe: _Probe, *, must_be: bool) -> dict[str, Any] | None:
        """Return the answer to `server/discover`, or None if the upstream does not speak 2026-07-28."""
        try:
            found = await self._stateless.request(DISCOVER, {}, **probe.options(self._clock()))
        except (UpstreamError, UpstreamFailure) as problem:
            if must_be or not _is_of_older_server(problem, known_as_newer=self._era == "stateless"):
                raise
            return None
        versions = found.get("supportedVersions")
        if isinstance(versions, list) and RELEASED in versions:
            return found
        if must_be:
            raise self._malformed("server/discover does not name 2026-07-28, and the option era allows nothing else")
        return None

    async def _initialized_sessionless(self, probe: _Probe) -> dict[str, Any]:
        found = await self._initialized(probe)
        if found is None:
            self._asks_again_at = self._clock() + REFUSED_SECONDS
            raise self._gives_session()
        return found

    async def _initialized(self, probe: _Probe) -> dict[str, Any] | None:
        """Learn the version and the capabilities of a sessionless upstream. Return None if it gives a session.

        Of the capabilities, options are left out: such an upstream cannot announce anything.
        """
        client, sessions = self._sessionless, list[str | None]()
        options = probe.options(self._clock())
        options["on_headers"] = lambda headers: sessions.append(headers.get(_SESSION))
        result = await client.request(INITIALIZE, {}, **options)
        if sessions[-1] is not None:
            await client.end_session(sessions[-1], probe.requester)
            return None
        version, capabilities = result.get("protocolVersion"), result.get("capabilities")
        if version not in SPOKEN:
            raise self._malformed(f"its answer to initialize names none of the versions {', '.join(SPOKEN)}")
        self._dialect.version = version
        self._offers_tasks = SessionIntroduction(result).offers_tasks
        offered = capabilities if isinstance(capabilities, dict) else {}
        return {
            "capabilities": {name: {} if type(said) is dict else said for name, said in offered.items()},
            "instructions": result.get("instructions"),
        }

    def _gives_session(self) -> UpstreamFailure:
        detail = 'it answers initialize with a session, and the option "era" says that it is called without one'
        return UpstreamFailure(self._upstream, Reason.NEEDS_SESSION, sent=False, detail=detail)

    def _malformed(self, detail: str) -> UpstreamFailure:
        return UpstreamFailure(self._upstream, Reason.MALFORMED, sent=True, detail=detail)


def _is_of_older_server(problem: UpstreamError | UpstreamFailure, *, known_as_newer: bool) -> bool:
    """Return whether `server/discover` was refused as servers refuse that do not know it.

    A server that was `known_as_newer` may refuse for a moment in many ways. Only a clear answer counts there.
    """
    if isinstance(problem, UpstreamError):
        is_clear = problem.code == _NO_SUCH_METHOD or problem.code in _OTHER_ERA
        return problem.status < _SERVER_ERRORS and (is_clear or not known_as_newer)
    return problem.reason in _OLDER_REASONS and not known_as_newer
