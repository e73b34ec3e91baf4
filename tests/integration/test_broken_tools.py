"""The client of a broken tool gets a clear answer without internals, and the process serves the next call."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from loadtest.cluster import REPOSITORY, Replica
from tests.integration import tools
from tests.integration.fleet import Fleet
from tests.integration.raw import Answer, accept, call, post, request

pytestmark = pytest.mark.slow

INTERNAL = "internal_error"
REFERENCE = re.compile(r"\(reference ([0-9a-f]{12})\)")
INTERNALS = re.compile(
    rf"{tools.SECRET}|{re.escape(str(REPOSITORY))}|site-packages|\.py|Traceback|File |object at|<class"
    "|(?<!is)Error|Exception|Interrupt|Exit|Internal|Rude"
)


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    environ = {
        "GATEWAY_TOOLS": "tests.integration.tools",
        "GATEWAY_LEG_SECONDS": "0.2",
        "GATEWAY_STATE_MAX_BYTES": "4096",
    }
    with Fleet(tmp_path_factory.mktemp("broken"), environ, names=("r1",)) as fleet:
        yield fleet["r1"]


@pytest.fixture(autouse=True)
def _the_same_process_serves_the_next_call(replica: Replica) -> Iterator[None]:
    pid = replica.pid
    yield
    assert call(replica, "echo", {"text": "still here"}).text == "still here"
    assert (replica.pid, replica.alive) == (pid, True)
    assert replica.metric("gateway_legs_in_flight") == 0


def check_failure(replica: Replica, answer: Answer, tool: str) -> str:
    """Check that the answer is a tool error without internals, and return its reference to the log."""
    assert answer.headers["x-gateway-replica"] == "r1"
    assert answer.result["isError"] is True
    assert answer.result["resultType"] == "complete"
    assert not INTERNALS.search(answer.body.decode())
    reference = REFERENCE.search(answer.text)
    assert reference is not None, answer
    assert answer.text == f"{tool} failed (reference {reference[1]})"
    (record,) = replica.wait_for_log("tool failed", reference=reference[1])
    assert record["tool"] == tool
    assert record["level"] == "error"
    assert "Traceback" in record["exception"]
    return reference[1]


@pytest.mark.parametrize("how", tools.CRASHES)
def test_a_tool_that_raises_anything_at_all(replica: Replica, how: str) -> None:
    check_failure(replica, call(replica, "crash", {"how": how}), "crash")


@pytest.mark.parametrize("how", tools.STEP_CRASHES)
def test_a_step_that_raises_anything_at_all(replica: Replica, how: str) -> None:
    check_failure(replica, call(replica, "crash_in_step", {"how": how}), "crash_in_step")


@pytest.mark.parametrize("what", tools.NONSENSE)
def test_a_tool_that_returns_what_no_client_could_read(replica: Replica, what: str) -> None:
    check_failure(replica, call(replica, "babble", {"what": what}), "babble")


@pytest.mark.parametrize("what", tools.QUESTIONS)
def test_a_tool_that_asks_what_no_client_could_answer(replica: Replica, what: str) -> None:
    check_failure(replica, call(replica, "ask_nonsense", {"what": what}), "ask_nonsense")


def test_a_tool_that_keeps_what_no_journal_can_hold(replica: Replica) -> None:
    check_failure(replica, call(replica, "keep_nonsense"), "keep_nonsense")


def test_an_argument_whose_own_type_is_broken(replica: Replica) -> None:
    check_failure(replica, call(replica, "break_validator", {"number": 1}), "break_validator")


def test_each_failure_has_a_reference_of_its_own(replica: Replica) -> None:
    references = {
        check_failure(replica, call(replica, "crash", {"how": "exception"}), "crash") for _repetition in range(3)
    }
    assert len(references) == 3


def test_the_log_tells_what_the_client_must_not_see(replica: Replica) -> None:
    reference = check_failure(replica, call(replica, "crash", {"how": "exit"}), "crash")
    (record,) = replica.wait_for_log("tool failed", reference=reference)
    assert "SystemExit" in record["exception"]
    assert tools.SECRET in record["exception"]
    assert "tools.py" in record["exception"]


@pytest.mark.parametrize("digits", [18, 19, 30, 308, 5000])
def test_a_huge_number_arrives_exactly_or_not_at_all(replica: Replica, digits: int) -> None:
    answer = call(replica, "count_high", {"digits": digits})
    if answer.result["isError"]:
        check_failure(replica, answer, "count_high")
    else:
        assert b'"number":1' + b"0" * digits + b"}" in answer.body


def test_a_tool_that_outlives_its_time_is_stopped_and_named(replica: Replica) -> None:
    answer = call(replica, "linger")
    reference = REFERENCE.search(answer.text)
    assert reference is not None
    assert answer.text == f"linger did not finish within 0.2 seconds (reference {reference[1]})"
    assert answer.result["isError"] is True
    (record,) = replica.wait_for_log("tool timed out", reference=reference[1])
    assert (record["tool"], record["limit_seconds"]) == ("linger", 0.2)


def test_a_tool_that_swallows_the_end_of_its_leg_asks_all_the_same(replica: Replica) -> None:
    asking = call(replica, "swallow")
    assert list(asking.result["inputRequests"]) == ["who"]
    answered = call(replica, "swallow", inputResponses=accept(name="Ada"), requestState=asking.state)
    assert answered.text == "answered"


def test_a_call_that_has_learned_too_much_to_travel_says_so(replica: Replica) -> None:
    assert call(replica, "hoard", {"size": 2000}).state
    answer = call(replica, "hoard", {"size": 5000})
    assert answer.result["isError"] is True
    assert "bytes; the limit is 4096" in answer.text
    assert not INTERNALS.search(answer.body.decode())


def test_the_state_is_never_longer_than_the_cap(replica: Replica) -> None:
    """The state of the call grows in each round, until the call cannot continue."""
    answer = call(replica, "introduce")
    for number in range(100):
        if answer.result.get("isError"):
            break
        assert len(answer.state) <= 4096
        reply = {f"name{number}": {"action": "accept", "content": {"name": "x" * 100}}}
        answer = call(replica, "introduce", inputResponses=reply, requestState=answer.state)
    assert "bytes; the limit is 4096" in answer.text


@pytest.mark.parametrize(
    ("code", "status"), [(1234, 200), (-32602, 400), (-32603, 500), (-31999, 200), (0, 200), (2**40, 200)]
)
def test_a_tool_may_end_its_call_with_an_error_of_its_own(replica: Replica, code: int, status: int) -> None:
    answer = call(replica, "refuse", {"code": code})
    assert answer.error == (status, code)
    assert answer.message["error"] == {
        "code": code,
        "message": "I would rather not",
        "data": {"hint": "ask somebody else"},
    }
    assert answer.message["id"] == 1


def test_a_tool_may_say_as_older_servers_do_that_something_does_not_exist(replica: Replica) -> None:
    answer = call(replica, "refuse", {"code": -32002})
    assert answer.error == (400, -32602)
    assert answer.message["error"]["data"] == {"hint": "ask somebody else"}


@pytest.mark.parametrize("code", [-31000, -31001, -31005, -31099, -32020, -32021, -32022, -32042, -32050, -32099])
def test_a_tool_cannot_speak_for_the_gateway_or_the_protocol(replica: Replica, code: int) -> None:
    check_failure(replica, call(replica, "refuse", {"code": code}), "refuse")
    check_failure(replica, call(replica, "refuse_later", {"code": code}), "refuse_later")


@pytest.mark.parametrize("what", tools.ERRORS)
def test_an_error_that_no_client_could_read_is_a_failure(replica: Replica, what: str) -> None:
    check_failure(replica, call(replica, "refuse_badly", {"what": what}), "refuse_badly")


@pytest.mark.parametrize(("action", "name"), [("decline", "Declined"), ("cancel", "Dismissed")])
def test_a_tool_hears_that_the_user_gave_no_answer(replica: Replica, action: str, name: str) -> None:
    state = call(replica, "require_name").state
    answer = call(replica, "require_name", inputResponses={"who": {"action": action}}, requestState=state)
    assert answer.text == f"no name: {name}"


@pytest.mark.parametrize(("action", "verb"), [("decline", "declined to answer"), ("cancel", "dismissed the question")])
def test_a_refusal_that_the_tool_does_not_handle_ends_the_call_in_plain_words(
    replica: Replica, action: str, verb: str
) -> None:
    state = call(replica, "insist").state
    answer = call(replica, "insist", inputResponses={"who": {"action": action}}, requestState=state)
    assert answer.text == f"The user {verb} 'who'."
    assert answer.result["isError"] is True


@pytest.mark.parametrize(("action", "reason"), [("decline", "declined"), ("cancel", "dismissed")])
@pytest.mark.parametrize(
    ("method", "params"), [("prompts/get", {"name": "insist"}), ("resources/read", {"uri": "asking://insist"})]
)
def test_a_prompt_or_a_resource_that_gets_no_answer_is_no_failure_of_ours(
    replica: Replica, method: str, params: dict[str, str], action: str, reason: str
) -> None:
    counted = {name: replica.metric("gateway_requests_refused_total", reason=name) for name in ("declined", INTERNAL)}
    state = post(replica, request(method, params)).state
    answers = {"who": {"action": action}}
    answer = post(replica, request(method, {**params, "inputResponses": answers, "requestState": state}))
    assert answer.error == (400, -31005)
    assert answer.message["id"] == 1
    assert answer.message["error"]["data"] == {"reason": reason}
    assert "'who'" in answer.message["error"]["message"]
    assert replica.metric("gateway_requests_refused_total", reason="declined") == counted["declined"] + 1
    assert replica.metric("gateway_requests_refused_total", reason=INTERNAL) == counted[INTERNAL]


def test_failures_count_as_failed_legs(replica: Replica) -> None:
    labels = {"tool": "crash", "outcome": "failed", "method": "tools/call", "wire": "2026-07-28"}
    before = replica.metric("gateway_legs_total", **labels)
    call(replica, "crash", {"how": "base"})
    assert replica.metric("gateway_legs_total", **labels) == before + 1
