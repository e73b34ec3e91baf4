"""Scopes: what a caller's token grants decides what it sees and reaches."""

from __future__ import annotations

from typing import Any

import pytest

from gateway import complete, content, prompt, resource, tool
from gateway.auth.tokens import mint
from gateway.errors import AuthoringError
from gateway.process.app import GatewayApp
from gateway.protocol.method_table import NAMED_METHODS
from tests.asgi import Client, make_app
from tests.integration.raw import Answer, request
from tests.protocol.header_values import encode_header_value

SECRET = "a secret that only these tests know, 32 bytes"


@tool
async def open_tool() -> str:
    """Anybody with a token may call this."""
    return "open"


@tool(scopes=["files:read", "files:write"])
async def guarded_tool() -> str:
    """Only who may do both sees this."""
    return "guarded"


@prompt(scopes=["files:read"])
async def guarded_prompt(topic: str) -> str:
    """Only who may read sees this."""
    return topic


@complete(guarded_prompt, "topic")
async def topics(value: str) -> list[str]:
    return [value]


@resource("guarded://{page}", scopes=["files:read"], announces_changes=True)
async def guarded_template(page: str) -> Any:
    """Only who may read sees this."""
    return content.resource_text(f"guarded://{page}", page)


@resource("open://page")
async def open_resource() -> str:
    """Anybody with a token may read this."""
    return "open"


@pytest.fixture(scope="module")
def app() -> GatewayApp:
    return make_app(__name__, auth="jwt", jwt_secret=SECRET, public_url="https://mcp.example.com")


async def ask(app: GatewayApp, method: str, scopes: str, **params: Any) -> Answer:
    token = mint(SECRET, "alice", "tests", scopes=scopes.split())
    headers = {"authorization": f"Bearer {token}"}
    if method in NAMED_METHODS:
        headers["mcp-name"] = encode_header_value(params[NAMED_METHODS[method]])
    return await Client(app).post(request(method, params), **headers)


def names(answer: Answer, field: str) -> list[str]:
    return [entry["name"] for entry in answer.result[field]]


async def test_a_list_shows_only_what_the_token_reaches_and_is_private_for_everyone(app: GatewayApp) -> None:
    for scopes, seen in (("", ["open_tool"]), ("files:read", ["open_tool"])):
        answer = await ask(app, "tools/list", scopes)
        assert (names(answer, "tools"), answer.result["cacheScope"]) == (seen, "private")
    answer = await ask(app, "tools/list", "files:write files:read other")
    assert (names(answer, "tools"), answer.result["cacheScope"]) == (["open_tool", "guarded_tool"], "private")


WRITTEN: list[tuple[dict[str, Any], list[str]]] = [
    ({"scp": ["files:read", "files:write"]}, ["open_tool", "guarded_tool"]),
    ({"scp": "files:write files:read"}, ["open_tool", "guarded_tool"]),
    ({"scope": ["files:read", "files:write"]}, ["open_tool", "guarded_tool"]),
    ({"scope": "files:read", "scp": "files:write"}, ["open_tool"]),
    ({"permissions": ["files:read", "files:write"]}, ["open_tool"]),
]


@pytest.mark.parametrize(("claims", "seen"), WRITTEN, ids=str)
async def test_tools_are_listed_and_called_wherever_the_provider_writes_the_scopes(
    app: GatewayApp, claims: dict[str, Any], seen: list[str]
) -> None:
    bearer = {"authorization": f"Bearer {mint(SECRET, 'alice', 'tests', claims=claims)}"}
    assert names(await Client(app).post(request("tools/list"), **bearer), "tools") == seen
    call = request("tools/call", {"name": "guarded_tool"})
    answer = await Client(app).post(call, **bearer, **{"mcp-name": "guarded_tool"})
    assert answer.status == (200 if "guarded_tool" in seen else 403)


async def test_a_list_without_scopes_is_public(app: GatewayApp) -> None:
    assert (await ask(app, "resources/list", "")).result["cacheScope"] == "public"


async def test_prompts_and_templates_are_hidden_likewise(app: GatewayApp) -> None:
    for method, field in (("prompts/list", "prompts"), ("resources/templates/list", "resourceTemplates")):
        assert names(await ask(app, method, "files:write"), field) == []
        assert len(names(await ask(app, method, "files:read"), field)) == 1


@pytest.mark.parametrize(
    ("method", "params", "needed"),
    [
        ("tools/call", {"name": "guarded_tool"}, "files:read files:write"),
        ("prompts/get", {"name": "guarded_prompt", "arguments": {"topic": "x"}}, "files:read"),
        ("resources/read", {"uri": "guarded://x"}, "files:read"),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "guarded_prompt"}, "argument": {"name": "topic", "value": "x"}},
            "files:read",
        ),
    ],
)
async def test_reaching_for_more_than_the_token_grants_is_forbidden_and_says_what_it_takes(
    app: GatewayApp, method: str, params: dict[str, Any], needed: str
) -> None:
    refused = await ask(app, method, "", **params)
    assert refused.status == 403
    challenge = refused.headers["www-authenticate"]
    assert 'error="insufficient_scope"' in challenge
    assert f'scope="{needed}"' in challenge
    assert 'resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource' in challenge
    assert (await ask(app, method, needed, **params)).status == 200


@pytest.mark.parametrize(
    ("granted", "told"),
    [
        ("", "files:read files:write"),
        ("files:read", "files:read files:write"),
        ("mail offline_access openid", "files:read files:write mail openid"),
    ],
)
async def test_a_client_that_requests_the_scopes_of_a_challenge_keeps_what_it_has(
    app: GatewayApp, granted: str, told: str
) -> None:
    refused = await ask(app, "tools/call", granted, name="guarded_tool")
    assert f'scope="{told}"' in refused.headers["www-authenticate"]
    assert (await ask(app, "tools/call", told, name="guarded_tool")).status == 200


@pytest.mark.setting("login_scopes")
async def test_where_operators_say_what_to_begin_with_challenges_and_metadata_do_so_too() -> None:
    settings = {"auth": "jwt", "jwt_secret": SECRET, "public_url": "https://mcp.example.com"}
    app = make_app(__name__, login_scopes=("files:read",), **settings)
    answer = await Client(app).post(request("tools/list"))
    assert answer.status == 401
    assert 'scope="files:read"' in answer.headers["www-authenticate"]
    assert (await metadata_of(app))["scopes_supported"] == ["files:read"]
    answer = await Client(make_app(__name__, **settings)).post(request("tools/list"))
    assert "scope=" not in answer.headers["www-authenticate"]


async def metadata_of(app: GatewayApp) -> Any:
    path = "/.well-known/oauth-protected-resource/mcp"
    return (await Client(app).send([b""], [(b"host", b"127.0.0.1:8080")], method="GET", path=path)).message


async def test_the_metadata_names_every_scope_there_is(app: GatewayApp) -> None:
    assert (await metadata_of(app))["scopes_supported"] == ["files:read", "files:write"]


@pytest.mark.parametrize(
    ("settings", "is_told"),
    [
        ({}, False),
        ({"jwt_audience": "https://mcp.example.com/mcp"}, False),
        ({"jwt_audience": "tokens"}, True),
        ({"jwt_audience": "tokens", "public_url": None}, False),
    ],
)
def test_operators_are_warned_when_tokens_that_clients_ask_for_do_not_count(
    settings: dict[str, Any], is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    make_app(__name__, auth="jwt", jwt_secret=SECRET, **{"public_url": "https://mcp.example.com", **settings})
    told = [
        record for record in caplog.records if "but only tokens for GATEWAY_JWT_AUDIENCE are accepted" in record.message
    ]
    assert [vars(record)["resource"] for record in told] == ["https://mcp.example.com/mcp"] * is_told


@pytest.mark.setting("auth")
async def test_without_identity_nothing_is_withheld() -> None:
    app = make_app(__name__)
    answer = await Client(app).post(request("tools/call", {"name": "guarded_tool"}))
    assert answer.text == "guarded"


@pytest.mark.parametrize("scopes", ["files:read", [""], ["two words"], ['quo"te'], ["é"]])
def test_a_scope_that_no_token_can_carry_is_an_authors_error(scopes: Any) -> None:
    with pytest.raises(AuthoringError, match="scope"):
        tool(scopes=scopes)(_function)


async def _function() -> str:
    return ""
