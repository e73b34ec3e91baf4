"""A real token endpoint, which exchanges tokens as RFC 8693 describes, or in any other way that a test wants."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.identity import IdentityProvider, Request

CLIENT_ID, CLIENT_SECRET = "the gateway", "its secret: %"
AUTHORIZATION = "Basic dGhlK2dhdGV3YXk6aXRzK3NlY3JldCUzQSslMjU="  # the form encoding of both (RFC 6749, 2.3.1)


class TokenEndpoint(IdentityProvider):
    """Issues `issued-1-for-<audience>`, then `issued-2-for-…`, and so on.

    Attributes:
        forms: the fields of each request.
        changes: members of its answers that differ; None leaves one out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Mapping[str, str]] = []
        self.changes: dict[str, Any] = {}
        self.answer(self.exchange)

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a deployment that exchanges tokens here."""
        return {
            "token_exchange_url": self.url,
            "token_exchange_client_id": CLIENT_ID,
            "token_exchange_client_secret": CLIENT_SECRET,
        }

    @property
    def environ(self) -> dict[str, str]:
        """The same as environment variables."""
        return {f"GATEWAY_{name.upper()}": value for name, value in self.settings.items()}

    def exchange(self, request: Request) -> None:
        """Answer one request."""
        self.forms.append(request.form)
        if request.headers["Authorization"] != AUTHORIZATION:
            self.refuse(request, "invalid_client", 401)
        elif "subject_token" not in request.form:
            self.refuse(request, "invalid_request")
        else:
            told = {
                "access_token": f"issued-{len(self.forms)}-for-{request.form['audience']}",
                "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
                "token_type": "Bearer",
                "expires_in": 600,
                **self.changes,
            }
            request.reply(200, json.dumps({name: told[name] for name in told if told[name] is not None}).encode())

    def refuse(self, request: Request, code: str, status: int = 400) -> None:
        """Answer with an error. The description repeats the form, tokens included."""
        body = {"error": code, "error_description": f"refused: {dict(request.form)}"}
        request.reply(status, json.dumps(body).encode())
