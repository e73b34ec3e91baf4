"""Error codes go out only where they mean what they say."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import AuthoringError, InvalidParams, ProtocolError, RpcError
from gateway.protocol.error_codes import code_on, error_on, foreign_error
from gateway.protocol.versions import Wire
from gateway.wires.draft.task_results import _whole
from tests.protocol.task_views import FAILED

WIRES = [Wire.RELEASED, Wire.LEGACY, Wire.DRAFT, None]
CODES = st.integers(-32_200, -30_900) | st.sampled_from(
    [-32002, -32042, -32020, -32021, -32022, -32099, -31000, -31099]
)


@given(CODES)
def test_on_2026_07_28_no_reserved_code_goes_out_but_the_defined_ones(code: int) -> None:
    told = code_on(Wire.RELEASED, code)
    assert told not in {-32002, -32042}
    assert not -32099 <= told <= -32020 or told in {-32020, -32021, -32022}
    assert told == code or code in {-32002, *range(-32099, -32022)}


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (-32002, [-32602, -32002, -32002, -32002]),
        (-32042, [-32603, -32042, -32603, -32603]),
        (-32050, [-32603] * 4),
        (-32023, [-32603] * 4),
        (-32022, [-32022] * 4),
        (-32019, [-32019] * 4),
        (-32000, [-32000] * 4),
        (-31001, [-31001] * 4),
        (1001, [1001] * 4),
    ],
)
def test_each_wire_has_its_codes(code: int, told: list[int]) -> None:
    assert [code_on(wire, code) for wire in WIRES] == told


def test_the_message_and_the_data_of_an_error_stay_but_for_urls_that_no_client_asked_for() -> None:
    gone = error_on(Wire.RELEASED, RpcError(-32002, "gone", {"uri": "a:b"}))
    assert (gone.code, gone.message, gone.data) == (-32602, "gone", {"uri": "a:b"})
    consent = error_on(Wire.DRAFT, RpcError(-32042, "visit", {"elicitations": []}))
    assert (consent.code, consent.message, consent.data) == (-32603, "visit", None)
    own = InvalidParams("wrong")
    assert error_on(Wire.RELEASED, own) is own


@pytest.mark.parametrize("code", [-31000, -31001, -31005, -31099])
def test_another_servers_error_with_a_code_of_ours_is_an_internal_error_without_data(code: int) -> None:
    assert foreign_error(code, {"requestState": "s1.x", "retryAfterSeconds": 1}) == (-32603, None)


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        ({"requestState": "s1.x", "inputRequests": {}, "why": "x"}, {"why": "x"}),
        ({"reason": "invalid_request_state", "uri": "a:b"}, {"uri": "a:b"}),
        ({"reason": "a cat", "nested": {"requestState": 1}}, {"reason": "a cat", "nested": {"requestState": 1}}),
        *([data, data] for data in ([1], "text", 7, None)),
    ],
)
def test_data_of_another_server_cannot_continue_a_call(data: Any, kept: Any) -> None:
    assert foreign_error(-32602, data) == (-32602, kept)


@given(st.integers(-31_099, -31_000))
def test_a_neighbour_of_our_codes_passes(code: int) -> None:
    assert foreign_error(code, 1) == (-32603, None)
    assert foreign_error(-31_100, 1) == (-31_100, 1)
    assert foreign_error(-32_001, 1) == (-32603, None), "clients would begin a new session with the gateway"
    assert foreign_error(-30_999, 1) == (-30_999, 1)


@pytest.mark.parametrize(("stored", "told"), [(-32042, -32603), (-32050, -32603), (-32002, -32002), (-7, -7)])
def test_a_stream_of_the_draft_ends_with_a_code_that_the_draft_has(stored: int, told: int) -> None:
    incoming: Any = SimpleNamespace(request=SimpleNamespace(id=1))
    body = _whole(incoming, replace(FAILED, error={"code": stored, "message": "no"}))
    assert json.loads(body)["error"] == {"code": told, "message": "no"}


def test_an_author_may_use_the_code_of_older_servers() -> None:
    assert ProtocolError(-32002, "gone").code == -32002


@pytest.mark.parametrize(
    ("code", "advice"),
    [(-31000, "such as 1001"), (-31099, "such as 1001"), (-32042, "ctx.elicit_url"), (-32020, "such as 1001")],
)
def test_a_code_that_is_not_an_authors_is_refused_where_it_is_written(code: int, advice: str) -> None:
    with pytest.raises(AuthoringError, match=f"cannot have the code {code}: .*{advice}"):
        ProtocolError(code, "no")
