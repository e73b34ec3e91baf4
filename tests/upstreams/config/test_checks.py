"""A file of upstreams against the settings: what is missing, and what operators are warned of."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.settings.model import Settings
from gateway.upstreams.config.checks import describe, setting_problems, warnings
from gateway.upstreams.config.definition import (
    ByGlob,
    Choice,
    Credentials,
    Definition,
    Era,
    Scopes,
    UpstreamFile,
)

URL = "https://bugs.example.com/mcp"
EXCHANGE = Credentials("token_exchange", audience="bugs")
WITH_EXCHANGE = {
    "GATEWAY_TOKEN_EXCHANGE_URL": "https://login.example.com/token",
    "GATEWAY_TOKEN_EXCHANGE_CLIENT_ID": "me",
    "GATEWAY_TOKEN_EXCHANGE_CLIENT_SECRET": "hunter2",
}
SCOPED = Scopes((("*", frozenset({"bugs"})),))
IN_SESSIONS: ByGlob[Era] = ByGlob("session")
HEADERS = (("Authorization", "x"),)


def file_of(**values: Any) -> UpstreamFile:
    return UpstreamFile((Definition("bugs", "bugs", "http", URL, **values),))


@pytest.mark.setting("token_exchange_url", "auth")
def test_exchanged_tokens_need_the_deployments_client() -> None:
    found = file_of(credentials=EXCHANGE)
    [line] = setting_problems(found, Settings.load({}), "up.json")
    assert line.startswith("up.json: bugs: gateway.credentials: token_exchange needs GATEWAY_TOKEN_EXCHANGE_URL")
    assert list(setting_problems(found, Settings.load(WITH_EXCHANGE), "up.json")) == []
    [line] = setting_problems(found, Settings.load({**WITH_EXCHANGE, "GATEWAY_AUTH": "none"}), "up.json")
    assert "needs tokens of callers, but GATEWAY_AUTH=none" in line
    assert list(setting_problems(file_of(), Settings.load({}), "up.json")) == []


@pytest.mark.setting("auth")
@pytest.mark.parametrize(
    ("values", "auth", "warned"),
    [
        ({"headers": HEADERS}, "jwt", True),
        ({"credentials": Credentials("client_credentials", "https://a", "b", "c")}, "jwt", True),
        ({"headers": HEADERS, "scopes": SCOPED}, "jwt", False),
        ({"headers": HEADERS}, "none", False),
        ({"credentials": EXCHANGE}, "jwt", False),
        ({}, "jwt", False),
    ],
)
def test_one_credential_for_all_without_scopes_is_a_warning(values: dict[str, Any], auth: str, warned: bool) -> None:
    lines = list(warnings(file_of(**values), Settings.load({"GATEWAY_AUTH": auth})))
    assert len(lines) == warned
    assert all("every caller may do what that credential may" in line for line in lines)


@pytest.mark.setting("auth")
@pytest.mark.parametrize(
    ("values", "auth", "warned"),
    [
        ({"era": IN_SESSIONS, "scope": "shared"}, "jwt", True),
        ({"era": IN_SESSIONS, "scope": "shared"}, "none", False),
        ({"era": IN_SESSIONS}, "jwt", False),
        ({"era": IN_SESSIONS, "scope": "call"}, "jwt", False),
        ({"scope": "shared"}, "jwt", False),
    ],
)
def test_one_session_for_all_callers_is_a_warning(values: dict[str, Any], auth: str, warned: bool) -> None:
    lines = list(warnings(file_of(**values), Settings.load({"GATEWAY_AUTH": auth})))
    assert len(lines) == warned
    assert all("all callers share one session" in line for line in lines)


def test_a_description_has_the_notes_and_says_if_nothing_is_served() -> None:
    assert list(describe(UpstreamFile(file_of().definitions, ("a note",)))) == ["a note"]
    assert list(describe(UpstreamFile())) == ["no upstream is served"]


ABOUT_FILES = (
    {"scopes": Scopes((("file:*", frozenset({"files"})),))},
    {"resources": Choice(allow=("file:*",))},
    {"resources": Choice(deny=("file:*",))},
)


@pytest.mark.parametrize("rule", ABOUT_FILES)
@pytest.mark.parametrize(
    ("unlisted", "told"),
    [
        (None, "bugs: only resources that it lists are served, because a rule is about some of them"),
        (True, "bugs: resources that it does not list are served too, although a rule is about some resources"),
    ],
)
def test_a_description_says_whether_a_rule_about_resources_limits_them_to_listed_ones(
    rule: dict[str, Any], unlisted: bool | None, told: str
) -> None:
    [line] = describe(file_of(**rule, unlisted=unlisted))
    assert line.startswith(told)
    assert "gateway.resources.unlisted" in line


@pytest.mark.parametrize("values", [{}, {"unlisted": True}, {"scopes": SCOPED}, {**ABOUT_FILES[0], "unlisted": False}])
def test_nothing_is_said_of_unlisted_resources_where_there_is_nothing_to_know(values: dict[str, Any]) -> None:
    assert list(describe(file_of(**values))) == []
