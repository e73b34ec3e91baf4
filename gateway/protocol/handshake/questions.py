"""Pure: questions as server requests, and answers as responses (2025-11-25 "Elicitation", "Sampling", "Roots")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.engine.questions import ELICIT, Answer
from gateway.errors import InvalidRequest
from gateway.protocol.jsonrpc import Response, parse_message
from gateway.protocol.strict_json import decode


def request_params(method: str, params: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the params of the request that asks a question, from those on the released wire.

    The name is unique; URL questions carry one here (section "URL Mode Elicitation Requests").
    """
    if method == ELICIT and params.get("mode") == "url":
        return {**params, "elicitationId": name}
    return dict(params)


def read_answer(body: bytes, max_depth: int, max_values: int) -> Answer:
    """Return the answer in the body of a client's response. If the body is anything else, raise an `RpcError`."""
    message = parse_message(decode(body, max_depth, max_values))
    if not isinstance(message, Response):
        raise InvalidRequest("The body must be a response")
    return answer_of(message)


def answer_of(response: Response) -> Answer:
    """Return the answer in a client's response."""
    return {"error": response.error} if response.result is None else {"result": response.result}
