"""Pure: multi round-trip requests as first proposed, before they were released.

A result that has `inputRequests` or `requestState` is incomplete: the client sends the request again, under another id,
with its answers and the state (proposal "Multi Round-Trip Requests", Ephemeral Tool Workflow). Answers are wrapped as
the responses they are: `{key: {"result": …}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.engine.questions import Answer, Question
from gateway.protocol.handshake.results import HandshakeResults
from gateway.protocol.versions import Wire


class DraftResults(HandshakeResults):
    """Writes results of the draft wire; satisfies `gateway.protocol.result_format.Words`."""

    wire = Wire.DRAFT

    def __init__(self) -> None:
        super().__init__(with_progress=True)

    def input_required(self, questions: Mapping[str, Question], request_state: str) -> dict[str, Any]:
        """Return an `IncompleteResult` that asks; the state comes with each, needed or not."""
        requests = {key: {"method": question.method, "params": question.params} for key, question in questions.items()}
        return {"inputRequests": requests, "requestState": request_state}

    def shed(self, request_state: str) -> dict[str, Any]:
        """Return an `IncompleteResult` that asks nothing (Use Case 2: Load Shedding)."""
        return {"requestState": request_state}

    def read_answers(self, input_responses: Mapping[str, Any]) -> dict[str, Answer]:
        """See `read_answers`."""
        return read_answers(input_responses)


def read_answers(input_responses: Mapping[str, Any]) -> dict[str, Answer]:
    """Return the answers that the client sent, in the engine's form.

    What is neither a result nor an error is as good as missing, and asked again (Guidance for Error Handling).
    """
    answers: dict[str, Answer] = {}
    for key, response in input_responses.items():
        if not isinstance(response, dict):
            continue
        for kind in ("result", "error"):
            if isinstance(response.get(kind), dict):
                answers[key] = {kind: response[kind]}
                break
    return answers
