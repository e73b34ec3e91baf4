"""Reads the answers of token endpoints (RFC 6749 section 5). No error contains a token."""

from __future__ import annotations

import base64
import re
from collections.abc import Container
from typing import Any, Final
from urllib.parse import quote_plus

import msgspec

from gateway.auth.fetch import Fetched

MAX_ANSWER_BYTES: Final = 1 << 16
MAX_TOKEN_CHARACTERS: Final = 16_384
MAX_LIFETIME_SECONDS: Final = 3600.0
"""The longest time that a token is used, whatever the endpoint says."""

_ERROR: Final = re.compile(r"[ !#-\[\]-~]{1,64}")
"""An error code (RFC 6749 section 5.2); the length is ours."""
_DIGITS: Final = re.compile(r"[0-9]{1,10}")
_TOKEN: Final = re.compile(r"[!-~]+")
"""Characters of a token that cannot end its header."""


class NoToken(Exception):
    """The answer contains no usable token. The code is that of the endpoint, "" if it gave none."""

    def __init__(self, reason: str, code: str = "") -> None:
        super().__init__(reason)
        self.code = code


def read_token(answer: Fetched, kinds: Container[object] | None = None) -> tuple[str, object]:
    """Return the bearer token in an answer, and its `expires_in`, or raise `NoToken`.

    `kinds` are the values that `issued_token_type` may have (RFC 8693 section 2.2.1); None allows all.
    """
    if answer.status != 200:
        code = error_code(answer)
        raise NoToken(code or f"HTTP {answer.status}", code)
    told = _json_object(answer.body)
    token, kind = told.get("access_token"), told.get("token_type")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise NoToken("the answer contains no token")
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise NoToken(f"the token is longer than {MAX_TOKEN_CHARACTERS} characters")
    is_usable = kinds is None or told.get("issued_token_type") in kinds
    if not isinstance(kind, str) or kind.lower() != "bearer" or not is_usable:
        raise NoToken("the answer contains a token that is not a bearer token for an API")
    return token, told.get("expires_in")


def seconds_of(lifetime: object) -> float:
    """Return a lifetime in seconds, within bounds; 0 if it makes no sense. Some servers write a string of digits."""
    if isinstance(lifetime, str) and _DIGITS.fullmatch(lifetime):
        lifetime = int(lifetime)
    if isinstance(lifetime, bool) or not isinstance(lifetime, int | float):
        return 0.0
    return float(max(0, min(lifetime, MAX_LIFETIME_SECONDS)))  # bounded first: an integer may be too large for a float


def error_code(answer: Fetched) -> str:
    """Return the error code of a refusal (RFC 6749 section 5.2); "" if it has none. Descriptions may quote a token."""
    try:
        code = _json_object(answer.body).get("error")
    except NoToken:
        return ""
    return code if isinstance(code, str) and _ERROR.fullmatch(code) else ""


def basic(client_id: str, client_secret: str) -> str:
    """Return the `Authorization` header of a client (RFC 6749 section 2.3.1)."""
    pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        told = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise NoToken("the answer is not a JSON object")
    return told
