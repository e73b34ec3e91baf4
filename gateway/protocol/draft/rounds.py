"""Pure: multi round-trip requests as first proposed, before their release.

A result with `inputRequests` or `requestState` is incomplete: the client sends the request again with a new id, its
answers and the state (proposal "Multi Round-Trip Requests", Ephemeral Tool Workflow). Each answer is wrapped like a
response: `{key: {"result": …}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.engine.questions import Answer, Question
from gateway.protocol.handshake.results import HandshakeResults
from gateway.protocol.versions import Wire


def read_answers(input_responses: Mapping[str, Any]) -> dict[str, Answer]:
    """Return the answers that the client sent, in the engine's form.

    A value that is neither a result nor an error counts as missing, so its question is asked again (Guidance for Error
    Handling).
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


class DraftResults(HandshakeResults):
    """Writes results of the draft wire; implements `gateway.protocol.result_format.Words`."""

    wire = Wire.DRAFT
    read_answers = staticmethod(read_answers)

    def __init__(self) -> None:
        super().__init__(with_progress=True)

    def input_required(self, questions: Mapping[str, Question], request_state: str) -> dict[str, Any]:
        """Return an `IncompleteResult` with questions. It always carries the state."""
        requests = {key: {"method": question.method, "params": question.params} for key, question in questions.items()}
        return {"inputRequests": requests, "requestState": request_state}

    def shed(self, request_state: str) -> dict[str, Any]:
        """Return an `IncompleteResult` without questions (Use Case 2: Load Shedding)."""
        return {"requestState": request_state}
