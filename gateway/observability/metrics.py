"""The Prometheus metrics of a replica.

Nothing here is global: each `Telemetry` has its own registry. Every label takes its values from a fixed set, so no
client can make the process remember what it sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from enum import StrEnum
from typing import Final

from gateway import errors
from gateway.errors import HopReason, RejectReason
from gateway.observability.counters import Count, Counts, Distribution, Distributions
from gateway.observability.process_metrics import OTHER, ProcessTelemetry
from gateway.protocol.method_table import METHODS
from gateway.sealing.hop_frames import StreamReason

LEG_METHODS: Final = frozenset(method.name for method in METHODS.values() if method.runs_function)
OUTCOMES: Final = frozenset({"completed", "input_required", "shed", "task_created", "failed", "cancelled"})
WIRES: Final = frozenset({"2026-07-28", "2025-11-25", "draft"})
CALL_OUTCOMES: Final = frozenset({"completed", "failed", "task_created"})
"""The outcomes that end a call for this replica."""

SEAL_OPERATIONS: Final = ("seal", "open")

_LEG_SECONDS_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_CALL_SECONDS_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600)
_SEAL_SECONDS_BUCKETS: Final = (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2)
_STATE_BYTES_BUCKETS: Final = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


class RefusalReason(StrEnum):
    """Why a request was answered with an error, or cut off, before or instead of a leg."""

    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    BODY_TOO_LARGE = "body_too_large"
    MEDIA_TYPE = "media_type"
    HTTP = "http"
    HTTP_METHOD = "http_method"
    BAD_HTTP = "bad_http"
    HEADERS_TOO_LARGE = "headers_too_large"
    SLOW_HEAD = "slow_head"
    SLOW_BODY = "slow_body"
    SLOW_READER = "slow_reader"
    IN_PROGRESS = "in_progress"
    OVERLOADED = "overloaded"
    TOO_MANY_BODY_BYTES = "too_many_body_bytes"
    AUDIT_LOG_DOWN = "audit_log_down"
    RATE_LIMITED = "rate_limited"
    TOO_MANY_STREAMS = "too_many_streams"
    TOO_MANY_TASKS = "too_many_tasks"
    TOO_MANY_TASK_BYTES = "too_many_task_bytes"
    TASK_STORE_DOWN = "task_store_down"
    TOO_DEEP = "too_deep"
    TOO_MANY_VALUES = "too_many_values"
    TOO_MANY_ANSWERS = "too_many_answers"
    ARGUMENTS_TOO_LARGE = "arguments_too_large"
    PARSE_ERROR = "parse_error"
    INVALID_REQUEST = "invalid_request"
    METHOD_NOT_FOUND = "method_not_found"
    INVALID_PARAMS = "invalid_params"
    INVALID_STATE = "invalid_state"
    HEADER_MISMATCH = "header_mismatch"
    MISSING_CAPABILITY = "missing_capability"
    UNSUPPORTED_VERSION = "unsupported_version"
    DECLINED = "declined"
    INTERNAL_ERROR = "internal_error"
    OTHER = OTHER

    @classmethod
    def of(cls, error: BaseException) -> RefusalReason:
        """Return the reason that an error is counted under."""
        if isinstance(error, errors.HttpRefusal):
            return _HTTP_REASONS.get(error.status, cls.HTTP)
        for kind in type(error).__mro__:
            reason = _ERROR_REASONS.get(kind)
            if reason is not None:
                return reason
        return cls.OTHER


_HTTP_REASONS: Final = {
    401: RefusalReason.UNAUTHENTICATED,
    403: RefusalReason.FORBIDDEN,
    405: RefusalReason.HTTP_METHOD,
    413: RefusalReason.BODY_TOO_LARGE,
    415: RefusalReason.MEDIA_TYPE,
    431: RefusalReason.HEADERS_TOO_LARGE,
}
_ERROR_REASONS: Final[dict[type, RefusalReason]] = {
    errors.TooDeep: RefusalReason.TOO_DEEP,
    errors.TooManyValues: RefusalReason.TOO_MANY_VALUES,
    errors.TooManyAnswers: RefusalReason.TOO_MANY_ANSWERS,
    errors.InProgress: RefusalReason.IN_PROGRESS,
    errors.Overloaded: RefusalReason.OVERLOADED,
    errors.TooManyBodyBytes: RefusalReason.TOO_MANY_BODY_BYTES,
    errors.AuditLogDown: RefusalReason.AUDIT_LOG_DOWN,
    errors.ArgumentsTooLarge: RefusalReason.ARGUMENTS_TOO_LARGE,
    errors.RateLimited: RefusalReason.RATE_LIMITED,
    errors.TooManyStreams: RefusalReason.TOO_MANY_STREAMS,
    errors.TooManyTasks: RefusalReason.TOO_MANY_TASKS,
    errors.TooManyTaskBytes: RefusalReason.TOO_MANY_TASK_BYTES,
    errors.TaskStoreDown: RefusalReason.TASK_STORE_DOWN,
    errors.ParseError: RefusalReason.PARSE_ERROR,
    errors.InvalidRequest: RefusalReason.INVALID_REQUEST,
    errors.MethodNotFound: RefusalReason.METHOD_NOT_FOUND,
    errors.InvalidRequestState: RefusalReason.INVALID_STATE,
    errors.InvalidParams: RefusalReason.INVALID_PARAMS,
    errors.InsufficientScope: RefusalReason.FORBIDDEN,
    errors.InternalError: RefusalReason.INTERNAL_ERROR,
    errors.HeaderMismatch: RefusalReason.HEADER_MISMATCH,
    errors.MissingCapability: RefusalReason.MISSING_CAPABILITY,
    errors.UnsupportedVersion: RefusalReason.UNSUPPORTED_VERSION,
    errors.NotAnswered: RefusalReason.DECLINED,
}


class Telemetry(ProcessTelemetry):
    """The metrics of one replica.

    `tools` are the names of the registered tools, prompts and resources; all others count as `other`. Attributes that
    are functions count one event of their metric.
    """

    def __init__(self, tools: Iterable[str] = ()) -> None:
        super().__init__()
        self._tools = frozenset(tools)
        self._running = 0
        self.gauge("gateway_legs_in_flight", "Legs running now.").set_function(lambda: self._running)
        self.state_too_large = self.counter(
            "gateway_states_too_large", "Calls that ended because their request state became too large."
        ).inc
        self.request_refused = self.count_each(
            "gateway_requests_refused", "Requests answered with an error or cut off, by reason.", RefusalReason
        )
        self.connection_refused = self.counter(
            "gateway_connections_refused",
            "Connections closed at once because the limit of open connections was reached.",
        ).inc
        self.client_lost = self.counter(
            "gateway_clients_lost", "Connections closed because the client stopped acknowledging a stream."
        ).inc
        self._add_durations()
        self._add_states()
        self._add_messages()
        self._add_token_keys()

    def _add_durations(self) -> None:
        self._legs = Counts("gateway_legs", "Legs, by outcome.", ["method", "tool", "outcome", "wire"], self.registry)
        self._leg_seconds = self._distributions(
            "gateway_leg_seconds", "Duration of legs.", ["method", "tool"], _LEG_SECONDS_BUCKETS
        )
        self._leg_children: dict[tuple[str, str, str, str], tuple[Count, Distribution]] = {}
        calls = self._distributions(
            "gateway_call_seconds",
            "Duration of calls, from the first leg to the end.",
            ["method", "outcome"],
            _CALL_SECONDS_BUCKETS,
        )
        self._calls = {
            (method, outcome): calls.labels(method, outcome) for method in LEG_METHODS for outcome in CALL_OUTCOMES
        }
        seals = self._distributions(
            "gateway_seal_seconds", "Time to seal or open a request state.", ["operation"], _SEAL_SECONDS_BUCKETS
        )
        self._seal_seconds, self._open_seconds = (seals.labels(operation) for operation in SEAL_OPERATIONS)
        self._state_bytes = self._distributions(
            "gateway_state_bytes", "Size of request states as clients carry them.", (), _STATE_BYTES_BUCKETS
        ).labels()

    def _distributions(
        self, name: str, documentation: str, labels: Sequence[str], bounds: Sequence[float]
    ) -> Distributions:
        return Distributions(name, documentation, labels, bounds=bounds, registry=self.registry)

    def _add_states(self) -> None:
        self._states_sealed = self.count_by_key("gateway_states_sealed", "Request states sealed, by key id.")
        self._states_opened = self.count_by_key("gateway_states_opened", "Request states opened, by key id.")
        self.state_rejected = self.count_each(
            "gateway_state_rejections", "Request states rejected, by reason.", RejectReason
        )
        self.session_sealed = self.count_by_key("gateway_sessions_sealed", "Sessions started, by key id.").count
        self.session_opened = self.count_by_key(
            "gateway_sessions_opened", "Session ids opened for requests, by key id."
        ).count
        self.session_rejected = self.count_each(
            "gateway_session_rejections", "Session ids rejected, by reason.", RejectReason
        )

    def _add_messages(self) -> None:
        self.response_rejected = self.count_each(
            "gateway_response_rejections",
            "Responses of clients that no waiting call received, by reason.",
            RejectReason,
        )
        self._hops_sent = self.count_by(
            "gateway_hop_messages_sent",
            "Messages sent to one other replica, by whether it answered.",
            "result",
            {True: "answered", False: "failed"},
        )
        self.hop_refused = self.count_each(
            "gateway_hop_messages_refused",
            "Messages at the path for other replicas that were rejected, by reason.",
            HopReason,
        )
        self.stream_refused = self.count_each(
            "gateway_hop_streams_refused",
            "Requests of other processes for a stream that were refused with a sealed reason, by reason.",
            StreamReason,
        )
        self._broadcasts = self.count_by(
            "gateway_broadcasts",
            "Messages to all other replicas, by whether they were delivered.",
            "result",
            {True: "failed", False: "delivered"},
        )
        self.hint_dropped = self.counter(
            "gateway_broadcast_hints_dropped",
            "Cancelled requests and changes that were not sent to other replicas because there were too many at once.",
        ).inc

    def _add_token_keys(self) -> None:
        self.token_keys = self.gauge("gateway_token_keys", "Public keys that can verify tokens.").set
        self._token_keys_read = self.count_by(
            "gateway_token_keys_read",
            "Requests for the identity provider's keys, by result.",
            "result",
            {True: "failed", False: "read"},
        )

    def serve(self, tools: Iterable[str]) -> None:
        """Count these tools, prompts and resources by name from now on. Counts of others are forgotten."""
        before, self._tools = self._tools, frozenset(tools)
        gone = before - self._tools
        for labels in [each for each in self._leg_children if each[1] in gone] if gone else ():
            del self._leg_children[labels]
            self._legs.remove(*labels)
            self._leg_seconds.remove(*labels[:2])

    def watch_threads(self, waiting: Callable[[], int]) -> None:
        """Show how many blocking functions wait for a thread."""
        self.gauge("gateway_threads_waiting", "Blocking functions that wait for a thread now.").set_function(waiting)

    def watch_waiting(self, waiting: Sized) -> None:
        """Show how many calls wait for their clients."""
        self.gauge(
            "gateway_calls_waiting", "Calls of 2025-11-25 clients that have asked a question and have not ended."
        ).set_function(lambda: len(waiting))

    def leg_started(self) -> None:
        """Count a leg as running."""
        self._running += 1

    def leg_finished(self, method: str, tool: str, outcome: str, wire: str, seconds: float) -> None:
        """Count the end of a leg that `leg_started` counted, whatever the outcome."""
        self._running -= 1
        labels = (method, tool, outcome, wire)
        children = self._leg_children.get(labels)
        if children is None:
            children = self._bind_leg(
                method if method in LEG_METHODS else OTHER,
                tool if tool in self._tools else OTHER,
                outcome if outcome in OUTCOMES else OTHER,
                wire if wire in WIRES else OTHER,
            )
        ended, lasted = children
        ended.value += 1
        lasted.observe(seconds)

    def call_ended(self, method: str, outcome: str, seconds: float) -> None:
        """Record how long a call took in total, if the outcome of its leg ends the call."""
        call = self._calls.get((method, outcome))
        if call is not None:
            call.observe(seconds)

    def state_sealed(self, key_id: bytes, size_bytes: int, seconds: float) -> None:
        """Count a request state that was sealed for a client, `size_bytes` long as a token."""
        self._states_sealed.count(key_id)
        self._state_bytes.observe(size_bytes)
        self._seal_seconds.observe(seconds)

    def state_opened(self, key_id: bytes, seconds: float) -> None:
        """Count a request state that opened with one of our keys."""
        self._states_opened.count(key_id)
        self._open_seconds.observe(seconds)

    def token_keys_read(self, *, failed: bool) -> None:
        """Count a request for the identity provider's keys."""
        self._token_keys_read[failed].inc()

    def hop_sent(self, *, answered: bool) -> None:
        """Count a message to another replica, and whether a valid reply came back."""
        self._hops_sent[answered].inc()

    def broadcast(self, *, failed: bool) -> None:
        """Count a message to all other replicas."""
        self._broadcasts[failed].inc()

    def _bind_leg(self, method: str, tool: str, outcome: str, wire: str) -> tuple[Count, Distribution]:
        labels = (method, tool, outcome, wire)
        children = self._leg_children.get(labels)
        if children is None:
            children = (self._legs.labels(*labels), self._leg_seconds.labels(method, tool))
            self._leg_children[labels] = children
        return children
