"""One trace for a call: over its legs, on any replica, and into the worker."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.authoring.tools import Tool
from gateway.protocol.method_table import METHODS
from loadtest.cluster import wait_until
from tests.observability.tracing import tools
from tests.observability.tracing.calling import ANSWERS, Calling
from tests.observability.tracing.collector import Collector, Seen
from tests.wires.draft.conftest import ClientOf
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.messages import accept
from tests.wires.legacy.speaking import speak, text_of

pytestmark = pytest.mark.slow

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
OTHER_TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENTS = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
FORMS = {key: accept(**content) for key, content in ANSWERS.items()}
NAMED = {f"tools/call {name}" for name, served in vars(tools).items() if isinstance(served, Tool)}
CALL = ["tools/call travel"] * 3 + ["task travel"]


def flow_of(text: str) -> str:
    return text.rpartition(", ")[2]


def legs(collector: Collector, flow: str, count: int) -> list[Seen]:
    """The spans of all legs of a call, the first leg first."""
    spans = collector.wait_for(lambda spans: len(spans) == count, flow=flow)
    return sorted(spans, key=lambda span: span["gateway.leg"])


@pytest.mark.parametrize("metas", [(), (CLIENTS,), (CLIENTS, CLIENTS, CLIENTS)], ids=["none", "first", "all"])
def test_all_legs_and_the_workers_are_one_trace_though_only_some_requests_bring_it(
    fleet: Deployment, collector: Collector, metas: tuple[dict[str, str], ...]
) -> None:
    flow = flow_of(Calling(fleet.replicas, *metas).text("travel", purse="full"))
    spans = legs(collector, flow, 4)
    assert [span.name for span in spans] == CALL
    assert [span.kind for span in spans] == ["SERVER", "SERVER", "SERVER", "CONSUMER"]
    assert [span.process for span in spans] == ["r1", "r2", "r1", "w1"]
    assert [span["gateway.outcome"] for span in spans] == [
        "input_required",
        "input_required",
        "task_created",
        "completed",
    ]
    assert len({span.trace_id for span in spans}) == 1
    first = spans[0]
    assert (first.trace_id == TRACE, first.parent_id) == ((True, PARENT) if metas else (False, ""))
    brought = len(metas)
    assert [span.parent_id for span in spans[1:]] == [PARENT] * (brought - 1) + [first.span_id] * (
        3 - max(brought - 1, 0)
    )
    assert spans[2]["gateway.task"] == spans[3]["gateway.task"] is not None


def test_a_call_stays_in_its_trace_and_is_linked_to_another_that_a_later_request_brings(
    fleet: Deployment, collector: Collector
) -> None:
    other = {"traceparent": f"00-{OTHER_TRACE}-{PARENT}-01"}
    flow = flow_of(Calling(fleet.replicas, CLIENTS, other).text("travel", purse="full"))
    first, second, *_ = spans = legs(collector, flow, 4)
    assert {span.trace_id for span in spans} == {TRACE}
    assert second.parent_id == first.span_id
    assert [span.links for span in spans] == [[], [OTHER_TRACE], [], []]


def test_the_context_of_the_http_request_is_the_parent_only_where_the_message_brings_none(
    fleet: Deployment, collector: Collector
) -> None:
    carried = {"traceparent": f"00-{OTHER_TRACE}-{PARENT}-01"}
    flow = Calling(fleet.replicas, headers=carried).text("inner")
    (span,) = legs(collector, flow, 1)
    assert (span.trace_id, span.parent_id, span.links) == (OTHER_TRACE, PARENT, [])
    flow = Calling(fleet.replicas, CLIENTS, headers=carried).text("inner")
    (span,) = legs(collector, flow, 1)
    assert (span.trace_id, span.parent_id, span.links) == (TRACE, PARENT, [OTHER_TRACE])


@pytest.mark.parametrize("meta", [None, CLIENTS], ids=["without", "with"])
async def test_a_call_of_the_draft_wire_is_one_trace_into_the_worker(
    fleet: Deployment, collector: Collector, client_of: ClientOf, name: str, meta: dict[str, str] | None
) -> None:
    client = client_of(name)
    await client.initialize()
    called = await client.call_tool("travel", {"purse": "full"}, answers=FORMS, task={}, meta=meta)
    done = await client.finish_task(called["task"]["taskId"], FORMS)
    assert done.result is not None
    spans = legs(collector, flow_of(text_of(done.result)), 4)
    assert [span.name for span in spans] == CALL
    assert spans[-1].process == "w1"
    assert len({span.trace_id for span in spans}) == 1
    assert (spans[0].trace_id == TRACE) == (meta is not None)


@pytest.mark.parametrize("meta", [None, CLIENTS], ids=["without", "with"])
async def test_a_call_of_a_2025_client_is_one_span_of_its_request_and_one_of_each_leg(
    fleet: Deployment, collector: Collector, client_of: ClientOf, name: str, meta: dict[str, str] | None
) -> None:
    client = await speak(client_of(name))
    called = await client.call_tool("travel", {"purse": "full"}, answers=FORMS, meta=meta)
    flow = flow_of(text_of(called))
    request, *_ = legs(collector, flow, 3)[-1:]
    nested = collector.spans(flow=flow)
    assert sorted(span["gateway.leg"] for span in nested) == [1, 2, 3]
    assert {span.name for span in nested} == {"leg"}
    (asked,) = [
        span
        for span in collector.wait_for(lambda spans: any(s.span_id == request.parent_id for s in spans))
        if span.span_id == request.parent_id
    ]
    assert (asked.name, asked.kind) == ("tools/call travel", "SERVER")
    assert {span.parent_id for span in nested} == {asked.span_id}
    assert (asked.trace_id, asked.parent_id) == (TRACE, PARENT) if meta else asked.trace_id != TRACE


def test_a_span_says_what_the_conventions_ask_for(fleet: Deployment, collector: Collector) -> None:
    assert fleet["r1"].is_ready()  # a health check makes no span
    flow = Calling(fleet.replicas).text("inner")
    (span,) = legs(collector, flow, 1)
    assert {span.name for span in collector.spans() if span.kind == "SERVER"} <= {*METHODS, "_OTHER"} | NAMED
    assert span.attributes == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2026-07-28",
        "jsonrpc.request.id": "request-7",
        "gen_ai.tool.name": "inner",
        "gen_ai.operation.name": "execute_tool",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
        "gateway.flow": flow,
        "gateway.leg": 1,
        "gateway.outcome": "completed",
    }


def test_spans_of_what_a_tool_uses_are_within_its_leg_and_its_steps(fleet: Deployment, collector: Collector) -> None:
    flow = Calling(fleet.replicas).text("inner")
    (leg,) = legs(collector, flow, 1)
    spans = {
        span.name: span
        for span in collector.wait_for(lambda s: len([x for x in s if x.trace_id == leg.trace_id]) == 4)
        if span.trace_id == leg.trace_id
    }
    assert spans["own span in the leg"].parent_id == leg.span_id
    assert spans["step"].parent_id == leg.span_id
    assert spans["step"]["gateway.step"] == "traced"
    assert spans["own span in a step"].parent_id == spans["step"].span_id

    def told() -> list[dict[str, Any]]:
        return [line for replica in fleet.replicas for line in replica.logged("in a span", flow=flow)]

    wait_until(lambda: bool(told()), "the log")
    (line,) = told()
    assert line["trace_id"] == leg.trace_id
    assert line["span_id"] == spans["own span in a step"].span_id


@pytest.mark.parametrize(
    ("how", "attributes"),
    [
        ("code", {"error.type": "-32010", "rpc.response.status_code": "-32010"}),
        ("crash", {"error.type": "tool_error"}),
    ],
)
def test_a_failure_is_marked_without_its_message(
    fleet: Deployment, collector: Collector, how: str, attributes: dict[str, str]
) -> None:
    before = len(collector.spans(outcome="failed"))
    Calling(fleet.replicas).call("fail", how=how)
    span = collector.wait_for(lambda spans: len(spans) == before + 1, outcome="failed")[-1]
    assert span.failed
    assert attributes.items() <= span.attributes.items()


def test_methods_that_nobody_knows_share_a_name(fleet: Deployment, collector: Collector) -> None:
    assert "error" in Calling(fleet.replicas).post("made/up", {})
    collector.wait_for(lambda spans: any(span.name == "_OTHER" and span["error.type"] == "-32601" for span in spans))
    assert not any(b"made/up" in body for body in collector.raw)


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "00",
        7,
        None,
        {"a": 1},
        f"00-{'0' * 32}-{PARENT}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01" + "-x" * 100_000,
    ],
)
def test_a_malformed_context_is_ignored(fleet: Deployment, collector: Collector, traceparent: Any) -> None:
    flow = Calling(fleet.replicas, {"traceparent": traceparent, "tracestate": 5}).text("inner")
    (span,) = legs(collector, flow, 1)
    assert span.parent_id == ""


def test_no_argument_answer_result_state_or_token_is_in_any_span(fleet: Deployment, collector: Collector) -> None:
    calling = Calling(fleet.replicas)
    flow = flow_of(calling.text("travel", purse="full of gold"))
    calling.call("fail", how="a secret way")
    legs(collector, flow, 4)
    sent = b"".join(collector.raw)
    for secret in (b"full of gold", b"a secret way", b"of secret cause", b"Harwich", b"Esbjerg", b"From where", b"eyJ"):
        assert secret not in sent


def test_what_is_not_sent_yet_is_sent_before_a_process_ends(fleet: Deployment, collector: Collector) -> None:
    environ = dict(fleet["r1"].environ)
    fleet["r1"].environ["OTEL_BSP_SCHEDULE_DELAY"] = "3600000"
    try:
        fleet["r1"].restart()
        flow = Calling([fleet["r1"]]).text("inner")
        assert collector.spans(flow=flow) == []
        assert fleet["r1"].terminate() == 0
        legs(collector, flow, 1)
    finally:
        fleet["r1"].environ.clear()
        fleet["r1"].environ.update(environ)
        fleet["r1"].start()
        fleet["r1"].wait_ready()
    wait_until(fleet["r1"].is_ready, "the replica")
