"""Pure: questions as server requests, and answers as responses (2025-11-25 "Elicitation", "Sampling", "Roots")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.engine.questions import ELICIT, Answer
from gateway.protocol.jsonrpc import Response


def request_params(method: str, params: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the params of the request that asks a question, from those on the released wire.

    The name is unique; URL questions carry one here (section "URL Mode Elicitation Requests").
    """
    if method == ELICIT and params.get("mode") == "url":
        return {**params, "elicitationId": name}
    return dict(params)


def answer_of(response: Response) -> Answer:
    """Return the answer in a client's response."""
    return {"error": response.error} if response.result is None else {"result": response.result}
