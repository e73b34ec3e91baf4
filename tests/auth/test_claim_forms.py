"""The forms of claims: who a token is for, what it grants, and what it is."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth import SharedSecret, TokenVerifier, make_verifier
from gateway.auth.claim_forms import Audiences, RefusedToken, check_type, scopes_of
from gateway.errors import HttpRefusal
from gateway.observability.metrics import Telemetry
from gateway.settings.model import Settings
from tests.identity import claims_of, mac_of, token_of

SECRET = "0123456789abcdef0123456789abcdef"
URL = "https://here.example/mcp"

SCOPES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "a text": ({"scope": "a b"}, {"a", "b"}),
    "a list": ({"scope": ["a", "b"]}, {"a", "b"}),
    "the other claim, a text": ({"scp": "a b"}, {"a", "b"}),
    "the other claim, a list": ({"scp": ["a", "b"]}, {"a", "b"}),
    "both claims": ({"scope": "a", "scp": ["a", "b"]}, {"a"}),
    "both claims, the first one empty": ({"scope": "", "scp": "a"}, set()),
    "both claims, the first one an empty list": ({"scope": [], "scp": "a"}, set()),
    "claims that only other providers use for it": ({"permissions": ["a"], "roles": ["a"], "scopes": "a"}, set()),
    "several blanks": ({"scope": " a  b "}, {"a", "b"}),
    "a text in a list that is not a scope": ({"scope": ["a b", "c", "", "d\n", 'e"', "f\\"]}, {"c"}),
    "other separators": ({"scope": "a\tb\nc,d e\u00a0f g"}, {"g"}),
    "letters beyond ASCII": ({"scope": "\uff41 \u00e4 b \ud800"}, {"b"}),
    "none": ({}, set()),
}


@pytest.mark.parametrize(("claims", "scopes"), SCOPES.values(), ids=SCOPES)
def test_scopes_are_read_from_scope_else_from_scp_and_never_from_both(claims: dict[str, Any], scopes: set[str]) -> None:
    assert scopes_of(claims, None) == scopes


NOT_SCOPES: list[Any] = [None, 7, True, 1.5, {"a": "b"}, ["a", 7], ["a", None], ["a", ["b"]], [{"a": "b"}], {}]


@pytest.mark.parametrize("value", NOT_SCOPES, ids=repr)
@pytest.mark.parametrize("name", ["scope", "scp", "permissions"])
def test_scopes_of_another_type_refuse_the_token(name: str, value: Any) -> None:
    with pytest.raises(RefusedToken, match=name):
        scopes_of({"scp": "a", name: value}, "permissions" if name == "permissions" else None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@given(st.dictionaries(st.sampled_from(["scope", "scp", "roles"]), JSON), st.sampled_from([None, "roles", "scp"]))
def test_no_claim_grants_what_it_does_not_name(claims: dict[str, Any], claim: str | None) -> None:
    read = claim or ("scope" if "scope" in claims else "scp")
    try:
        scopes = scopes_of(claims, claim)
    except RefusedToken:
        return
    value = claims.get(read, "")
    assert scopes <= set(value.split(" ") if isinstance(value, str) else value)
    assert all(scope.isascii() and scope.isprintable() and " " not in scope for scope in scopes)


SAME = [
    *("HTTPS://here.example/mcp", "https://HERE.Example/mcp", "https://here.example:443/mcp"),
    *("https://here.example:/mcp", "https://here.example/%6dcp", "https://here.example/%6Dcp"),
    *("https://here.example/a/../mcp", "https://here.example/./mcp"),
]
OTHERS = [
    *("http://here.example/mcp", "https://here.example/MCP", "https://here.example:8443/mcp"),
    *("https://here.example/mcp/", "https://here.example/", "https://here.example", "https://here.example//mcp"),
    *("https://here.example/mcp?", "https://here.example/mcp#", "https://here.example/mcp?a=b"),
    *("https://here.example/mcp#here", "https://user@here.example/mcp", "https://@here.example/mcp"),
    *("https://here.example%2Fmcp", "https://here.example/%2e%2e%2fmcp", "https://here.example\\mcp"),
    *("https:here.example/mcp", "https:/here.example/mcp", "https:///here.example/mcp", "//here.example/mcp"),
    *("https://here.example./mcp", "https://here.example.:443/mcp", "https://here%2Eexample/mcp"),
    *(
        " https://here.example/mcp",
        "https://here.example/mcp ",
        "https://here.example/mcp\n",
        "https://here.example\t/mcp",
    ),
    *("https://here.example.evil.example/mcp", "https://evil.example/https://here.example/mcp", "here.example/mcp"),
    *("https://h\u00e9re.example/mcp", "https://here.ex\uff41mple/mcp", "https://here.example/%zzmcp", ""),
]


def accepts(audiences: Audiences, **claims: Any) -> bool:
    try:
        audiences.check(claims)
    except RefusedToken:
        return False
    return True


@pytest.mark.parametrize("audience", SAME)
def test_an_audience_that_is_a_url_has_several_spellings(audience: str) -> None:
    for known, given_one in ((URL, audience), (audience, URL), (audience, audience)):
        assert accepts(Audiences([known]), aud=given_one)
        assert accepts(Audiences(["deployment", known]), aud=["there", given_one])


@pytest.mark.parametrize("audience", OTHERS)
def test_an_audience_that_means_something_else_or_is_read_in_two_ways_is_another_one(audience: str) -> None:
    assert not accepts(Audiences([URL]), aud=audience)
    assert not accepts(Audiences([URL]), aud=[audience, "there"])
    assert accepts(Audiences([audience]), aud=audience)


def test_an_empty_path_is_a_slash_and_a_query_counts() -> None:
    assert accepts(Audiences(["https://here.example"]), aud="https://HERE.example:443/")
    assert accepts(Audiences(["http://here.example:80/"]), aud="http://here.example")
    assert accepts(Audiences(["https://here.example?a=%7e"]), aud="https://here.example/?a=~")
    assert not accepts(Audiences(["https://here.example?a=b"]), aud="https://here.example/?a=B")


@pytest.mark.parametrize(
    ("known", "other"),
    [
        ("api://AB12", "api://ab12"),
        ("api://ab12", "api://ab12/"),
        ("11111111-aaaa-4bbb-8ccc-222222222222", "11111111-AAAA-4bbb-8ccc-222222222222"),
        ("urn:here:mcp", "URN:here:mcp"),
        ("here", "Here"),
        ("here", "%68ere"),
    ],
)
def test_an_audience_that_is_not_a_web_url_is_compared_exactly(known: str, other: str) -> None:
    assert accepts(Audiences([known]), aud=known)
    assert accepts(Audiences([known]), aud=[other, known])
    assert not accepts(Audiences([known]), aud=other)


@given(st.text() | st.from_regex(r"https?://[a-zA-Z.:0-9]{0,12}/?[%/.a-c0-9]{0,8}", fullmatch=True))
def test_audiences_are_the_same_in_both_directions_and_twice(audience: str) -> None:
    assert accepts(Audiences([audience]), aud=audience)
    assert accepts(Audiences([URL]), aud=audience) == accepts(Audiences([audience]), aud=URL)


@pytest.mark.parametrize(
    "value", [None, 7, True, {}, {URL: URL}, [], [7], [URL, 7], [URL, None], [[URL]], [{}]], ids=repr
)
def test_an_audience_of_another_type_refuses_the_token(value: Any) -> None:
    assert not accepts(Audiences([URL], ["cli"]), aud=value, client_id="cli", token_use="access")


CLIENT = {"client_id": "cli", "token_use": "access"}
NOT_OF_THE_CLIENT: dict[str, dict[str, Any]] = {
    "another client": {**CLIENT, "client_id": "other"},
    "no client": {"token_use": "access"},
    "an empty client": {**CLIENT, "client_id": ""},
    "several clients": {**CLIENT, "client_id": ["cli"]},
    "only a party": {"azp": "cli", "token_use": "access"},
    "an ID token": {**CLIENT, "token_use": "id"},
    "a token that says nothing of its use": {"client_id": "cli"},
    "a use of another type": {**CLIENT, "token_use": ["access"]},
    "another audience": {**CLIENT, "aud": "there"},
    "no audience": {**CLIENT, "aud": None},
    "an empty list of audiences": {**CLIENT, "aud": []},
    "the client as the audience": {**CLIENT, "aud": "cli"},
}


@pytest.mark.parametrize("claims", NOT_OF_THE_CLIENT.values(), ids=NOT_OF_THE_CLIENT)
def test_only_an_access_token_of_a_named_client_needs_no_audience(claims: dict[str, Any]) -> None:
    assert accepts(Audiences([URL], ["app", "cli"]), **CLIENT)
    assert accepts(Audiences([URL], ["cli"]), **CLIENT, aud=URL)
    assert not accepts(Audiences([URL], ["app", "cli"]), **claims)


def test_no_client_is_named_by_default() -> None:
    for client_id in ("cli", "", URL):
        assert not accepts(Audiences([URL]), client_id=client_id, token_use="access")


@pytest.mark.parametrize("kind", [None, "JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt", "Bearer", "JOSE", ""])
def test_a_token_may_say_that_it_is_an_access_token_or_nothing_about_its_use(kind: str | None) -> None:
    check_type(kind)


@pytest.mark.parametrize(
    "kind",
    [
        *("logout+jwt", "application/logout+jwt", "LOGOUT+JWT", "dpop+jwt", "secevent+jwt", "oauth-authz-req+jwt"),
        *("client-authentication+jwt", "token-introspection+jwt", "entity-statement+jwt", "x-at+jwt", "+jwt"),
        *(7, ["at+jwt"], True),
    ],
)
def test_a_token_that_says_it_is_something_else_is_refused(kind: Any) -> None:
    with pytest.raises(RefusedToken):
        check_type(kind)


def verifier(**environ: str) -> TokenVerifier:
    settings = Settings.load({"GATEWAY_JWT_SECRET": SECRET, "GATEWAY_AUDIENCE": "here", **environ})
    made = make_verifier(settings, Telemetry())
    assert isinstance(made, TokenVerifier)
    return made


async def scopes(verify: TokenVerifier, *, typ: str | None = "JWT", **claims: Any) -> set[str] | None:
    """Return what a token grants, None if it is refused."""
    header = {"alg": "HS256", **({} if typ is None else {"typ": typ})}
    try:
        caller = await verify.authenticate(f"Bearer {token_of(header, claims_of(**claims), mac_of(SECRET.encode()))}")
    except HttpRefusal:
        return None
    return set(caller.scopes)


@pytest.mark.setting("jwt_scope_claim")
async def test_a_setting_names_the_claim_that_has_the_scopes() -> None:
    names: dict[str, Any] = {"scope": "a", "scp": ["b"], "permissions": ["c", "d"], "https://here.example/roles": "e"}
    assert await scopes(verifier(), **names) == {"a"}
    assert await scopes(verifier(GATEWAY_JWT_SCOPE_CLAIM="scp"), **names) == {"b"}
    assert await scopes(verifier(GATEWAY_JWT_SCOPE_CLAIM="permissions"), **names) == {"c", "d"}
    assert await scopes(verifier(GATEWAY_JWT_SCOPE_CLAIM="https://here.example/roles"), **names) == {"e"}
    assert await scopes(verifier(GATEWAY_JWT_SCOPE_CLAIM="roles"), **names) == set()
    assert await scopes(verifier(GATEWAY_JWT_SCOPE_CLAIM="permissions"), permissions={"a": "b"}) is None


@pytest.mark.setting("jwt_client_ids")
async def test_a_setting_names_the_clients_whose_tokens_need_no_audience() -> None:
    assert await scopes(verifier(), aud=None, **CLIENT) is None
    assert await scopes(verifier(GATEWAY_JWT_CLIENT_IDS="app, cli"), aud=None, **CLIENT) == set()
    assert await scopes(verifier(GATEWAY_JWT_CLIENT_IDS="app"), aud=None, **CLIENT) is None
    assert await scopes(verifier(GATEWAY_JWT_CLIENT_IDS="cli"), aud="there", **CLIENT) is None


async def test_a_token_of_another_type_is_refused_whatever_its_claims_say() -> None:
    for typ in (None, "JWT", "at+jwt", "application/at+jwt"):
        assert await scopes(verifier(), typ=typ, scope="a") == {"a"}
    assert await scopes(verifier(), typ="logout+jwt", scope="a") is None


@pytest.mark.parametrize("end", ["", "/"])
async def test_an_issuer_has_a_slash_at_its_end_where_the_setting_has_one(end: str) -> None:
    verify = verifier(GATEWAY_JWT_ISSUER=f"https://id.example{end}")
    assert await scopes(verify, iss=f"https://id.example{end}") == set()
    for other in ("https://id.example//", "https://ID.example" + end, "https://id.example" + ("" if end else "/")):
        assert await scopes(verify, iss=other) is None


async def test_dates_may_have_fractions_and_be_ahead_by_the_leeway() -> None:
    now = 1_800_000_000.25
    verify = TokenVerifier(SharedSecret(SECRET), ("here",), clock=lambda: now, leeway_seconds=30)
    assert await scopes(verify, exp=now + 0.5, iat=now + 29.9, nbf=now + 29.9) == set()
    assert await scopes(verify, exp=now + 60, iat=now + 30.1) is None
    assert await scopes(verify, exp=now + 60, nbf=now + 30.1) is None
    assert await scopes(verify, exp=now - 29.9) == set()
    for wrong in (math.nan, math.inf, "1800000100", True, None, [1_800_000_100], {"seconds": 1}):
        assert await scopes(verify, exp=wrong) is None
