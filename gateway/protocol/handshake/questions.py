"""Pure: questions as requests of the server's, answers as responses (2025-11-25 "Elicitation", "Sampling", "Roots")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.engine.questions import ELICIT, Answer
from gateway.protocol.jsonrpc import Response


def request_params(method: str, params: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the params of the request that asks a question.

    Args:
        method: of the question.
        params: as the released wire writes them.
        name: unique for the question; here a URL to visit comes with one (section "URL Mode Elicitation Requests").
    """
    if method == ELICIT and params.get("mode") == "url":
        return {**params, "elicitationId": name}
    return dict(params)


def answer_of(response: Response) -> Answer:
    """Return the answer that a client's response is."""
    return {"error": response.error} if response.result is None else {"result": response.result}
