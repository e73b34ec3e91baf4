"""Pure: results of the 2025-11-25 wire, where a call asks its client while the request is open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from gateway.engine.questions import Answer, Question
from gateway.protocol.handshake.results import HandshakeResults
from gateway.protocol.versions import Wire

NO_ROUNDS = "a result on this wire cannot ask for another request"


class LegacyResults(HandshakeResults):
    """Writes results of the 2025-11-25 wire; satisfies `gateway.protocol.result_format.Words`."""

    wire = Wire.LEGACY

    def __init__(self) -> None:
        super().__init__(with_progress=False)

    def input_required(self, questions: Mapping[str, Question], request_state: str) -> NoReturn:
        """Raise: questions are requests of the server's here, never results."""
        raise NotImplementedError(NO_ROUNDS)

    def shed(self, request_state: str) -> NoReturn:
        """Raise: no client of this wire would bring a state to another replica."""
        raise NotImplementedError(NO_ROUNDS)

    def read_answers(self, input_responses: Mapping[str, Any]) -> dict[str, Answer]:
        """Return the answers: they came as JSON-RPC responses, which have been read as such."""
        return dict(input_responses)
