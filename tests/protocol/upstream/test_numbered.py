"""A message on a connection with many requests names the one that it answers."""

from __future__ import annotations

import msgspec
import pytest

from gateway.protocol.upstream.deviations import Deviation
from gateway.protocol.upstream.responses import ErrorAnswer, Malformed, Notice, Result, ServerRequest, read_numbered


def read(**members: object) -> tuple[int | None, object]:
    return read_numbered(msgspec.json.encode({"jsonrpc": "2.0", **members}))


@pytest.mark.parametrize(("given", "number"), [(7, 7), ("7", 7), (7.0, 7), (0, 0), (-1, -1)])
def test_an_answer_has_the_number_that_its_id_stands_for(given: object, number: int) -> None:
    healed: list[Deviation] = []
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": given, "result": {"a": 1}})
    assert read_numbered(body, healed.append) == (number, Result({"a": 1}, asks=False))
    assert healed == ([] if given == number and type(given) is int else [Deviation.ID_TYPE])
    found, error = read(id=given, error={"code": 1, "message": "no"})
    assert found == number
    assert isinstance(error, ErrorAnswer)
    assert error.has_id


@pytest.mark.parametrize("given", [None, True, "server-error", "7x", 7.5, [7], {"id": 7}])
def test_an_error_may_have_no_number_and_a_result_must_have_one(given: object) -> None:
    number, error = read(id=given, error={"code": 1, "message": "no"})
    assert number is None
    assert isinstance(error, ErrorAnswer)
    with pytest.raises(Malformed):
        read(id=given, result={})


def test_other_messages_have_none() -> None:
    assert read(method="m", params={"a": 1}) == (None, Notice("m", {"a": 1}))
    assert read(method="m", id=7) == (None, ServerRequest("m", 7))
