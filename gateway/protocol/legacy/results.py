"""Pure: results of the 2025-11-25 wire, where a call asks its questions while the request is open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from gateway.engine.questions import Answer, Question
from gateway.protocol.handshake.results import HandshakeResults
from gateway.protocol.legacy.older import known_result
from gateway.protocol.versions import Wire

NO_ROUNDS = "a result on this wire cannot ask for another request"


class LegacyResults(HandshakeResults):
    """Writes results of the 2025-11-25 wire; implements `gateway.protocol.result_format.Words`."""

    wire = Wire.LEGACY

    def __init__(self) -> None:
        super().__init__(with_progress=False)

    def input_required(self, questions: Mapping[str, Question], request_state: str) -> NoReturn:
        """Raise an error: on this wire, questions are server requests, never results."""
        raise NotImplementedError(NO_ROUNDS)

    def shed(self, request_state: str) -> NoReturn:
        """Raise an error: clients of this wire do not take a state to another replica."""
        raise NotImplementedError(NO_ROUNDS)

    def question(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parameters of a question as clients know them."""
        return params

    def read_answers(self, input_responses: Mapping[str, Any]) -> dict[str, Answer]:
        """Return the answers unchanged: they were already read as JSON-RPC responses."""
        return dict(input_responses)


class OlderResults(LegacyResults):
    """Writes results of a version of `OLDER_VERSIONS`."""

    def __init__(self, version: str) -> None:
        super().__init__()
        self._version = version

    def complete(self, fields: Mapping[str, Any], meta: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return a result with these fields, as far as the version has them."""
        return super().complete(known_result(fields, self._version), meta)

    def question(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parameters of a question as clients of the version know them."""
        return known_result(params, self._version)
