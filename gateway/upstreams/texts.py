"""The sentences that callers read when an upstream fails them. They name the upstream and what to do next.

They contain nothing that the upstream said: it could pretend to be the gateway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.upstreams.failures import LIMIT_OPTION, HeldFailure, Reason, UpstreamFailure

NOT_SENT: Final = "Nothing was sent to it, so you can try again."
REFUSED: Final = "It refused the request, so it should not have acted."
NOT_PASSED_ON: Final = "This gateway passes no question of the server"
"""How the error begins that a server gets for a question that nobody is asked."""
MAY_HAVE_ACTED: Final = "It may have acted on the request; check before you try again."

_ASK_OPERATOR: Final = "Ask the operator of this gateway."

_PROBLEMS: Final[Mapping[Reason, str]] = {
    Reason.UNREACHABLE: "could not be reached",
    Reason.REFUSED_ADDRESS: "has an address that this gateway does not connect to",
    Reason.BUSY: "accepts no further requests at the moment",
    Reason.BREAKER_OPEN: "has failed repeatedly, so this gateway pauses before it asks again",
    Reason.TIMED_OUT: "did not answer in time",
    Reason.CUT: "closed the connection before its answer was complete",
    Reason.TOO_LARGE: "sent more than this gateway accepts",
    Reason.MALFORMED: "sent an answer that is not valid MCP",
    Reason.WRONG_ID: "sent the answer to another request",
    Reason.UNASKED: "asked something that a server may not ask here",
    Reason.REDIRECT: "redirected the request, which this gateway does not follow",
    Reason.UNAUTHORIZED: "did not accept the gateway's credential",
    Reason.FORBIDDEN: "refused access",
    Reason.NOT_FOUND: "has no MCP endpoint at its configured address",
    Reason.SERVER_ERROR: "reported an internal error",
    Reason.CREDENTIALS: "could not be called, because there is no credential for it",
    Reason.NEEDS_SESSION: "can serve this only in a session",
    Reason.LOST_SESSION: "ended its session with this gateway",
    Reason.HELD_LOST: "waited for an answer, and the call has been lost meanwhile",
    Reason.HELD_EXPIRED: "waited for an answer that did not come in time",
    Reason.HELD_ANSWERED: "has got another answer to its question before",
    Reason.HOLDER_LOST: "was to be called by another process of this gateway, which does not answer any more",
    Reason.HELD_TOO_MANY: "was not called, because too many of your calls wait for an answer already",
    Reason.CHANGED: "was reconfigured while this call was under way, so the call cannot continue",
}
_OPERATORS: Final = frozenset(
    {
        Reason.REFUSED_ADDRESS,
        Reason.REDIRECT,
        Reason.UNAUTHORIZED,
        Reason.FORBIDDEN,
        Reason.NOT_FOUND,
        Reason.CREDENTIALS,
        Reason.NEEDS_SESSION,
    }
)
"""Failures that a second try does not change, but the operator can."""


def sentence_of(failure: UpstreamFailure) -> str:
    """Return what a caller reads about a failure: what happened, whether the upstream may have acted, what to do."""
    problem = f"The server {failure.upstream!r} {_PROBLEMS[failure.reason]}."
    if isinstance(failure, HeldFailure) and failure.reference:
        waited = f" It waited for {failure.seconds:.0f} seconds." if failure.seconds else ""
        problem = f"{problem}{waited} Reference: {failure.reference}."
    if LIMIT_OPTION in failure.detail:
        problem = f"{problem[:-1]}; {LIMIT_OPTION} sets the limit."
    if failure.reason is Reason.CHANGED:
        return f"{problem} Start it again."
    if failure.reason in _OPERATORS:
        return f"{problem} {MAY_HAVE_ACTED} {_ASK_OPERATOR}" if failure.sent else f"{problem} {_ASK_OPERATOR}"
    if failure.sent:
        return f"{problem} {MAY_HAVE_ACTED}"
    return f"{problem} {REFUSED if failure.refused else NOT_SENT}"


def took_too_long(upstream: str, seconds: float, *, sent: bool) -> str:
    """Return what a caller reads when an upstream has used up its time."""
    acted = MAY_HAVE_ACTED if sent else "It may have acted in an earlier round; check before you try again."
    return f"The server {upstream!r} did not finish within {seconds:g} seconds of work. {acted}"


def lost(upstream: str) -> str:
    """Return what a caller reads when a task was interrupted while its request was under way."""
    return f"This task was interrupted while the server {upstream!r} worked on it. {MAY_HAVE_ACTED}"


def needs_session(upstream: str, name: str, *, sent: bool) -> str:
    """Return what a caller reads about a tool, prompt or resource that can ask only in a session."""
    start = f"{name} asks its user in a way that needs a session, but the server {upstream!r} is called without one."
    advice = f'The option "era" of the upstream {upstream!r} says how it is called; ask the operator of this gateway.'
    return f"{start} {MAY_HAVE_ACTED} {advice}" if sent else f"{start} {advice}"


def misasked(upstream: str, problem: str) -> str:
    """Return what a caller reads when an upstream asks in a way that cannot be passed on. See `Misasked`."""
    return f"The server {upstream!r} needs an answer, but {problem}. {MAY_HAVE_ACTED}"


def never_ready(upstream: str) -> str:
    """Return what a caller reads when an upstream only ever wants to be asked again."""
    return f"The server {upstream!r} asks to repeat the request again and again without an answer. {MAY_HAVE_ACTED}"


def refuses_visits(upstream: str, name: str, *, acted: bool) -> str:
    """Return what a caller reads when the operator lets an upstream send nobody to URLs."""
    problem = f'{name} sends its user to a web page first, which the option "ask" of the upstream {upstream!r} refuses.'
    return f"{problem} {MAY_HAVE_ACTED if acted else REFUSED} {_ASK_OPERATOR}"


def not_visited(upstream: str) -> str:
    """Return what a caller reads who does not want to visit what an upstream needs first."""
    return f"The server {upstream!r} needs its user to visit a web page first, which was not accepted. {REFUSED}"


def sent_away_again(upstream: str, times: int) -> str:
    """Return what a caller reads when an upstream sends its user to URLs again and again."""
    problem = f"The server {upstream!r} still needs its user to visit a web page, after {times} visits were accepted."
    return f"{problem} {REFUSED} Try again once that is done."


def refused_request(upstream: str, code: int, *, sent: bool) -> str:
    """Return what a caller reads when an upstream does not understand the gateway's request."""
    problem = f"The server {upstream!r} does not accept the gateway's request (error {code})."
    return f"{problem} {MAY_HAVE_ACTED} {_ASK_OPERATOR}" if sent else f"{problem} {_ASK_OPERATOR}"


def lacks_capability(upstream: str) -> str:
    """Return what a caller reads when an upstream needs something of clients that this gateway does not pass on."""
    return f"The server {upstream!r} needs something of its client that this gateway does not pass on."
