"""Statuses other than 200 have one meaning each."""

from __future__ import annotations

import pytest

from gateway.upstreams.client.statuses import may_have_error, meaning_of
from gateway.upstreams.failures import Reason


@pytest.mark.parametrize(
    ("status", "reason", "sent"),
    [
        (202, Reason.MALFORMED, True),
        (302, Reason.REDIRECT, False),
        (400, Reason.MALFORMED, True),
        (401, Reason.UNAUTHORIZED, False),
        (403, Reason.FORBIDDEN, False),
        (404, Reason.NOT_FOUND, False),
        (415, Reason.MALFORMED, False),
        (429, Reason.BUSY, False),
        (500, Reason.SERVER_ERROR, True),
        (503, Reason.SERVER_ERROR, False),
    ],
)
def test_a_status_says_why_and_whether_the_upstream_may_have_acted(status: int, reason: Reason, sent: bool) -> None:
    assert meaning_of(status, acts=False)[:2] == (reason, sent)
    assert meaning_of(status, acts=False).detail.startswith(f"HTTP {status}")


def test_a_401_names_the_ways_out_for_users_who_must_log_in() -> None:
    assert "mcp-remote over stdio or forward_headers" in meaning_of(401, acts=False).detail


@pytest.mark.parametrize(
    ("status", "may"), [(202, False), (302, False), (400, True), (401, False), (404, True), (500, True)]
)
def test_an_error_counts_where_servers_send_one(status: int, may: bool) -> None:
    assert may_have_error(status) is may


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("http://127.0.0.1:1/mcp/", " to http://127.0.0.1:1/mcp/;"),
        ("/mcp/", " to /mcp/;"),
        ("https://h/mcp?token=secret#secret", " to https://h/mcp;"),
        ("https://user:secret@h/mcp", ""),
        ("//secret@h/mcp", ""),
        ("https://h/a\x1b[0m", ""),
        ("https://h/a b", ""),
        ("https://h/\xe4", ""),
        (f"https://h/{'x' * 200}", ""),
        ("?secret", ""),
        ("", ""),
    ],
)
def test_a_redirect_names_its_address_without_what_could_be_secret(location: str, shown: str) -> None:
    detail = meaning_of(307, acts=False, location=location).detail
    assert detail.startswith(f"HTTP 307{shown}")
    assert (detail == "HTTP 307") == (shown == "")
    assert "secret" not in detail
