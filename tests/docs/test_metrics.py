"""`docs/run/metrics.md` has every metric and no other, and no file names one that does not exist."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from gateway.errors import HopReason, RejectReason
from gateway.observability import metrics as telemetry
from gateway.observability.clock_watch import ClockSource
from gateway.observability.metrics import RefusalReason
from gateway.observability.process_metrics import ProcessTelemetry, RedisErrorKind, StreamEnd
from gateway.observability.redis_watch import RedisRisk
from gateway.observability.task_totals import TaskTotals
from gateway.observability.upstream_metrics import (
    EXIT_KINDS,
    HELD_ENDS,
    HELD_LIMITS,
    SESSION_STATES,
    UPSTREAM_OUTCOMES,
    UpstreamMetrics,
)
from gateway.process.replica import build
from gateway.protocol.upstream.deviations import Deviation
from gateway.sealing.hop_frames import StreamReason
from gateway.settings.model import Settings
from gateway.tasks.model import Phase
from gateway.upstreams.failures import Reason
from gateway_workers.metrics import LegEnd, WorkerTelemetry
from loadtest.cluster import new_key
from tests.docs.markdown import PAGES, TOP, rows_of, section_of, text_of

PAGE: Final = "docs/run/metrics.md"
REPLICA, WORKER = "replica", "worker"

UPSTREAM_METHODS: Final = frozenset(
    {
        *("tools/call", "prompts/get", "resources/read", "completion/complete", "server/discover"),
        *("tools/list", "prompts/list", "resources/list", "resources/templates/list", "subscriptions/listen"),
        *("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"),
        *("tasks/result", "tasks/cancel"),
    }
)
DROPPED: Final = frozenset(
    {
        *("tool", "prompt", "resource", "template", "instructions", "collision"),
        *("log", "progress", "notification", "question", "meta", "noise", "answer", "stderr"),
    }
)
VALUES: Final = {
    ("gateway_legs_total", "method"): telemetry.LEG_METHODS,
    ("gateway_leg_seconds", "method"): telemetry.LEG_METHODS,
    ("gateway_call_seconds", "method"): telemetry.LEG_METHODS,
    ("gateway_legs_total", "outcome"): telemetry.OUTCOMES,
    ("gateway_call_seconds", "outcome"): telemetry.CALL_OUTCOMES,
    ("gateway_task_legs_total", "outcome"): frozenset(LegEnd),
    ("gateway_legs_total", "wire"): telemetry.WIRES,
    ("gateway_seal_seconds", "operation"): frozenset(telemetry.SEAL_OPERATIONS),
    ("gateway_seal_keys", "role"): frozenset({"seals", "opens"}),
    ("gateway_token_keys_read_total", "result"): frozenset({"read", "failed"}),
    ("gateway_hop_messages_sent_total", "result"): frozenset({"answered", "failed"}),
    ("gateway_hop_streams_sent_total", "result"): frozenset(StreamEnd),
    ("gateway_hop_streams_refused_total", "reason"): frozenset(StreamReason),
    ("gateway_broadcasts_total", "result"): frozenset({"delivered", "failed"}),
    ("gateway_hop_messages_refused_total", "reason"): frozenset(HopReason),
    ("gateway_tasks", "phase"): frozenset(Phase),
    ("gateway_redis_errors_total", "kind"): frozenset(RedisErrorKind),
    ("gateway_redis_at_risk", "risk"): frozenset(RedisRisk),
    ("gateway_clock_offset_seconds", "source"): frozenset(ClockSource),
    ("gateway_build_info", "compiled"): frozenset({"true", "false"}),
    ("gateway_upstream_requests_total", "method"): UPSTREAM_METHODS,
    ("gateway_upstream_request_seconds", "method"): UPSTREAM_METHODS,
    ("gateway_upstream_requests_total", "outcome"): UPSTREAM_OUTCOMES,
    ("gateway_upstream_failures_total", "reason"): frozenset(Reason),
    ("gateway_upstream_healed_total", "kind"): frozenset(Deviation),
    ("gateway_upstream_dropped_total", "what"): DROPPED,
    ("gateway_upstream_sessions", "state"): frozenset(SESSION_STATES),
    ("gateway_upstream_session_failures_total", "reason"): frozenset({*Reason, "error"}),
    ("gateway_upstream_program_exits_total", "kind"): EXIT_KINDS,
    ("gateway_upstream_held_ended_total", "how"): HELD_ENDS,
    ("gateway_upstream_held_refused_total", "limit"): HELD_LIMITS,
    ("gateway_upstream_list_refreshes_total", "result"): frozenset({"read", "failed"}),
    ("gateway_requests_refused_total", "reason"): frozenset(RefusalReason),
    ("gateway_state_rejections_total", "reason"): frozenset(RejectReason),
    ("gateway_session_rejections_total", "reason"): frozenset(RejectReason),
    ("gateway_response_rejections_total", "reason"): frozenset(RejectReason),
    ("gateway_task_field_rejections_total", "reason"): frozenset(RejectReason),
}
FREE: Final = {"tool", "key_id", "version", "upstream"}
"""Labels whose values cannot be listed in advance."""

FROM_PROMETHEUS: Final = {"le", "job", "instance", "pod", "namespace", "node"}
DEPLOYED: Final = sorted(
    path for path in (TOP / "deploy").rglob("*") if path.is_file() and "__pycache__" not in path.parts
)
FILES: Final = [*PAGES, *(str(path.relative_to(TOP)) for path in DEPLOYED)]

_NAME: Final = re.compile(r"(?<![\w/.:-])(?:gateway|process)_(?!pytest\b)[a-z0-9_]+\b(?!\.|\()")
_MATCHERS: Final = re.compile(r"(?<![\w/.:-])((?:gateway|process)_[a-z0-9_]+)\{([^{}]*)\}")
_MATCHER: Final = re.compile(r'^\s*(\w+)\s*(?:(=~|!~|!=|=)\s*"([^"]*)")?\s*$')


class Metric(NamedTuple):
    """The description of a metric, in the code or on the page."""

    kind: str
    labels: frozenset[str]
    served_by: frozenset[str]


def parts(registry: CollectorRegistry) -> Iterator[tuple[str, str, Collection[str]]]:
    """Return name, type and labels of each metric, including those without a sample."""
    for collector in registry._collector_to_names:
        if isinstance(collector, MetricWrapperBase):
            yield collector._name, str(collector._type), collector._labelnames
        else:
            for family in collector.collect():
                names = getattr(family, "_labelnames", {name for sample in family.samples for name in sample.labels})
                yield family.name, family.type, names


def registries() -> dict[str, CollectorRegistry]:
    """Make the metrics of a replica and of a worker, as their processes do."""
    environ = {"GATEWAY_REDIS_URL": "unix:///nowhere", "GATEWAY_AUDIENCE": "tests", "GATEWAY_AUTH": "none"}
    keys = f"{new_key()},{new_key()}"
    services = build(Settings.load(environ, tools=("gateway.demo",), seal_keys=keys))
    assert services.store is not None
    worker = WorkerTelemetry(services.registry.tools, services.settings.worker_concurrency)
    worker.seal_keys(["00000000", "00000001"])
    processes: dict[str, ProcessTelemetry] = {REPLICA: services.telemetry, WORKER: worker}
    for process in processes.values():
        process.registry.register(TaskTotals(services.store.totals))
        UpstreamMetrics(process.registry)
    return {name: process.registry for name, process in processes.items()}


@pytest.fixture(scope="module")
def real() -> dict[str, Metric]:
    """All metrics, by the names that they are served under."""
    found: dict[str, Metric] = {}
    for process, registry in registries().items():
        for name, kind, labels in parts(registry):
            served = f"{name}_total" if kind == "counter" else name
            already = found.get(served, Metric(kind, frozenset(labels), frozenset()))
            assert (already.kind, already.labels) == (kind, frozenset(labels)), served
            found[served] = already._replace(served_by=already.served_by | {process})
    return found


@pytest.fixture(scope="module")
def names(real: dict[str, Metric]) -> dict[str, str]:
    """The metric that each served name belongs to: a histogram is served under several."""
    ends = {"histogram": ("", "_bucket", "_sum", "_count", "_created"), "counter": ("",), "gauge": ("",)}
    by_name = {name + end: name for name, metric in real.items() for end in ends[metric.kind]}
    return by_name | {f"{name.removesuffix('_total')}_created": name for name in real if name.endswith("_total")}


def documented() -> dict[str, Metric]:
    rows = [row for row in rows_of(text_of(PAGE), 6) if row[0].startswith("`")]
    found = {
        ticked(name)[0]: Metric(kind, frozenset(ticked(labels)), frozenset(served_by.split(", ")))
        for name, kind, _, labels, served_by, _ in rows
    }
    assert len(found) == len(rows)
    return found


def ticked(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_metric_is_documented_with_its_type_its_labels_and_who_serves_it(real: dict[str, Metric]) -> None:
    assert documented() == real


def test_every_metric_has_a_unit_and_says_something() -> None:
    for name, _, unit, _, _, says in rows_of(text_of(PAGE), 6):
        assert unit, name
        assert len(says) > 10, name


def values_told() -> dict[tuple[str, str], frozenset[str]]:
    """Read which values each label of each metric has."""
    told = {}
    for label, metrics, values in rows_of(section_of(PAGE, "Values of labels"), 3):
        for metric in ticked(metrics):
            told[metric, ticked(label)[0]] = frozenset(ticked(re.sub(r"\([^)]*\)", "", values)))
    return told


def reasons_told(heading: str) -> frozenset[str]:
    section = text_of(PAGE).partition(f"### {heading}\n")[2].partition("\n#")[0]
    rows = rows_of(section, 2)
    assert all(why for _, why in rows)
    return frozenset(ticked(reason)[0] for reason, _ in rows)


def test_every_label_is_documented_with_its_values(real: dict[str, Metric]) -> None:
    told = values_told()
    assert set(told) == {(name, label) for name, metric in real.items() for label in metric.labels}
    fixed = {place: values for place, values in told.items() if place[1] not in {*FREE, "reason"}}
    assert fixed == {place: values for place, values in VALUES.items() if place[1] != "reason"}
    assert reasons_told("Reasons of refused requests") == set(RefusalReason)
    assert reasons_told("Reasons of rejected tokens") == set(RejectReason)
    assert reasons_told("Reasons of failed requests to upstreams") == set(Reason)


def test_no_process_shows_a_value_that_is_not_documented() -> None:
    for registry in registries().values():
        for family in registry.collect():
            for sample in family.samples:
                name = f"{family.name}_total" if family.type == "counter" else family.name
                for label, value in sample.labels.items():
                    if label not in {*FREE, "le"}:
                        assert value in VALUES[name, label], sample


@pytest.mark.parametrize("file", FILES)
def test_every_metric_that_is_named_exists(file: str, names: dict[str, str]) -> None:
    assert set(_NAME.findall(readable(file))) - set(names) == set()


@pytest.mark.parametrize("file", FILES)
def test_every_label_and_every_value_that_is_named_exists(
    file: str, names: dict[str, str], real: dict[str, Metric]
) -> None:
    for name, matchers in _MATCHERS.findall(readable(file)):
        metric = names[name]
        for matcher in filter(None, matchers.split(",")):
            parsed = _MATCHER.match(matcher)
            assert parsed, f"{name}{{{matchers}}}"
            label, operator, value = parsed.groups()
            assert label in real[metric].labels | FROM_PROMETHEUS, f"{name}{{{matchers}}}"
            wanted = value.split("|") if operator in {"=~", "!~"} else [value]
            if operator and (metric, label) in VALUES and not re.search(r"[$.*+?…]", value):
                assert set(wanted) <= VALUES[metric, label], f"{name}{{{matchers}}}"


def readable(file: str) -> str:
    """Return the text of a file, with queries in JSON unescaped."""
    return (TOP / file).read_text().replace('\\"', '"')
