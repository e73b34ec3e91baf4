"""How the gateway proves itself to an upstream, and what never reaches one."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.auth.token_answers import MAX_TOKEN_CHARACTERS
from gateway.auth.token_exchange import TokenExchange
from gateway.protocol.caller import TokenWanted
from gateway.sealing.principal import Principal
from gateway.upstreams.config.definition import Credentials as Wanted
from gateway.upstreams.config.definition import Definition
from gateway.upstreams.credentials import (
    LEEWAY_SECONDS,
    MIN_RENEWAL_SECONDS,
    ClientCredentials,
    CredentialHeaders,
    ExchangedCredentials,
    OAuthClient,
    PlainHeaders,
    credentials_of,
)
from gateway.upstreams.failures import Reason, UpstreamFailure
from gateway.upstreams.ports import NOBODY, UpstreamCaller
from tests.clocks import Clock
from tests.identity import IdentityProvider, Request
from tests.token_endpoint import CLIENT_ID, CLIENT_SECRET, TokenEndpoint
from tests.upstreams.client.serving import Shop, asking, fine
from tests.upstreams.servers.plain_http import Exchange

ADA, BOB = Principal("https://id.test", "ada", "app"), Principal("https://id.test", "bob", "app")
CANARY = "canary.token-of-ada.signature"


class Issuer(IdentityProvider):
    """A token endpoint for client credentials, which issues `issued-1`, `issued-2` and so on."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Any] = []
        self.changes: dict[str, Any] = {}
        self.status = 200
        self.answer(self.issue)

    def issue(self, request: Request) -> None:
        self.forms.append(request.form)
        told = {"access_token": f"issued-{len(self.forms)}", "token_type": "Bearer", "expires_in": 600, **self.changes}
        request.reply(self.status, json.dumps({name: told[name] for name in told if told[name] is not None}).encode())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with TokenEndpoint() as endpoint:
        yield endpoint


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Shop() as shop:
        yield shop


@pytest.fixture
def own(issuer: Issuer, clock: Clock) -> ClientCredentials:
    """The gateway's own token for the shop."""
    client = OAuthClient(issuer.url, CLIENT_ID, CLIENT_SECRET, {"scope": "a b", "audience": None, "resource": ""})
    return ClientCredentials("shop", client, PlainHeaders([("X-Org", "1")]), clock=clock)


async def token_in(credentials: CredentialHeaders, caller: UpstreamCaller = NOBODY) -> str:
    return dict(await credentials.headers(caller))[b"authorization"].decode()


async def test_headers_of_the_definition_are_sent_except_for_those_of_the_protocol(shop: Shop) -> None:
    fields = [("Authorization", "Bearer static"), ("X-Org", " ümlaut "), ("Mcp-Method", "x"), ("Host", "evil")]
    hostile = [("Content-Length", "0"), ("Transfer-Encoding", "chunked"), ("X-Split", "a\r\nX-More: 1")]
    async with asking(shop.server.url, PlainHeaders([*fields, *hostile])) as client:
        await client.call()

    exchange = shop.exchanges[0]
    assert exchange.header("authorization") == "Bearer static"
    assert exchange.header("x-org") == "ümlaut".encode().decode("latin-1")
    assert exchange.header("mcp-method") == "tools/call"
    assert "evil" not in str(exchange.headers)
    assert exchange.header("x-more") is None
    assert shop.messages[0]["method"] == "tools/call"


async def test_only_named_headers_of_the_caller_are_forwarded_and_win() -> None:
    plain = PlainHeaders([("X-Key", "shared"), ("X-Org", "1")], ["X-Key", "x-absent", "authorization", "cookie"])
    given = {"x-key": "ada's", "authorization": f"Bearer {CANARY}", "cookie": "c", "x-other": "o"}

    assert await plain.headers(UpstreamCaller(headers=given)) == [(b"x-org", b"1"), (b"x-key", b"ada's")]
    assert await plain.headers(NOBODY) == [(b"x-key", b"shared"), (b"x-org", b"1")]


async def test_a_forwarded_header_keeps_its_bytes() -> None:
    plain = PlainHeaders((), ["x-key"])

    assert await plain.headers(UpstreamCaller(headers={"x-key": "\xc3\xbc"})) == [(b"x-key", b"\xc3\xbc")]
    assert await plain.headers(UpstreamCaller(headers={"x-key": "a\nb"})) == []


async def test_a_token_of_the_gateway_is_used_until_shortly_before_it_expires(
    own: ClientCredentials, issuer: Issuer, clock: Clock
) -> None:
    assert await own.headers(NOBODY) == [(b"x-org", b"1"), (b"authorization", b"Bearer issued-1")]
    clock.now += 600 - LEEWAY_SECONDS - 1
    assert await token_in(own) == "Bearer issued-1"
    clock.now += 1
    assert await token_in(own) == "Bearer issued-2"
    assert issuer.forms[0] == {"grant_type": "client_credentials", "scope": "a b"}
    assert issuer.seen["Authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    ("lifetime", "used"), [(10, 5), ("20", 10), (None, 270), (-1, 270), (True, 270), (10**9, 3570)]
)
async def test_odd_lifetimes_have_bounds(
    own: ClientCredentials, issuer: Issuer, clock: Clock, lifetime: Any, used: float
) -> None:
    issuer.changes = {"expires_in": lifetime}
    await token_in(own)
    clock.now += used - 0.5
    assert await token_in(own) == "Bearer issued-1"
    clock.now += 0.5
    assert await token_in(own) == "Bearer issued-2"


async def test_one_request_for_a_token_serves_everyone_who_waits(own: ClientCredentials, issuer: Issuer) -> None:
    first = asyncio.create_task(token_in(own))
    others = [asyncio.create_task(token_in(own)) for _ in range(9)]
    await asyncio.sleep(0)
    first.cancel()

    assert await asyncio.gather(*others) == ["Bearer issued-1"] * 9
    assert issuer.requests == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"access_token": None},
        {"access_token": "two words"},
        {"access_token": "line\nbreak"},
        {"access_token": "x" * (MAX_TOKEN_CHARACTERS + 1)},
        {"token_type": "mac"},
        {"token_type": None},
    ],
)
async def test_an_answer_without_a_usable_token_is_a_failure(
    own: ClientCredentials, issuer: Issuer, changes: dict[str, Any]
) -> None:
    issuer.changes = changes

    with pytest.raises(UpstreamFailure) as raised:
        await own.headers(NOBODY)

    assert (raised.value.reason, raised.value.sent) == (Reason.CREDENTIALS, False)


async def test_a_refusal_of_the_endpoint_is_logged_without_secrets(
    own: ClientCredentials, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.status, issuer.changes = 401, {"error": "invalid_client", "error_description": CLIENT_SECRET}

    with caplog.at_level(logging.DEBUG), pytest.raises(UpstreamFailure, match="invalid_client") as raised:
        await own.headers(NOBODY)

    assert CLIENT_SECRET not in caplog.text + repr(raised.value) + str([vars(record) for record in caplog.records])
    issuer.status, issuer.changes = 200, {}
    assert await token_in(own) == "Bearer issued-2"


async def refuses(exchange: Exchange, _message: Any) -> None:
    exchange.reply(401)


async def test_a_refused_token_is_renewed_once(
    shop: Shop, own: ClientCredentials, issuer: Issuer, clock: Clock
) -> None:
    shop.answers = [fine, refuses, fine, refuses]
    async with asking(shop.server.url, own) as client:
        await client.call()
        clock.now += MIN_RENEWAL_SECONDS
        await client.call()
        clock.now += MIN_RENEWAL_SECONDS
        with pytest.raises(UpstreamFailure) as raised:
            await client.call()

    sent = [exchange.header("authorization") for exchange in shop.exchanges]
    assert sent == ["Bearer issued-1", "Bearer issued-1", "Bearer issued-2", "Bearer issued-2", "Bearer issued-3"]
    assert raised.value.reason is Reason.UNAUTHORIZED
    assert issuer.requests == 3


async def test_an_upstream_that_refuses_every_token_does_not_hammer_the_endpoint(
    shop: Shop, own: ClientCredentials, issuer: Issuer
) -> None:
    shop.answers = [refuses]
    async with asking(shop.server.url, own) as client:
        for _ in range(5):
            with pytest.raises(UpstreamFailure):
                await client.call()

    assert issuer.requests == 1


async def test_a_token_that_another_call_has_renewed_is_not_renewed_again(own: ClientCredentials, clock: Clock) -> None:
    old = await own.headers(NOBODY)
    clock.now += MIN_RENEWAL_SECONDS
    assert await own.renew(NOBODY, old)
    assert await own.renew(NOBODY, old)
    assert await token_in(own) == "Bearer issued-2"


async def test_a_refused_call_is_not_sent_again_if_the_endpoint_issues_the_same_token(
    shop: Shop, own: ClientCredentials, issuer: Issuer, clock: Clock
) -> None:
    shop.answers, issuer.changes = [refuses], {"access_token": "always-the-same"}
    async with asking(shop.server.url, own) as client:
        for _ in range(2):
            with pytest.raises(UpstreamFailure):
                await client.call()
            clock.now += MIN_RENEWAL_SECONDS

    assert (len(shop.exchanges), issuer.requests) == (2, 2)


async def test_a_refused_call_is_not_sent_again_with_a_token_that_was_renewed_a_moment_ago(
    shop: Shop, endpoint: TokenEndpoint, caller_of: Callable[[Principal, str], UpstreamCaller]
) -> None:
    shop.answers, caller = [refuses], caller_of(ADA, CANARY)
    async with asking(shop.server.url, EXCHANGED) as client:
        for _ in range(2):
            with pytest.raises(UpstreamFailure):
                await client.call(requester=caller)

    assert (len(shop.exchanges), endpoint.requests) == (3, 2)


async def test_a_static_header_that_is_refused_is_not_tried_again(shop: Shop) -> None:
    shop.answers = [refuses]
    async with asking(shop.server.url, PlainHeaders([("Authorization", "Bearer x")])) as client:
        with pytest.raises(UpstreamFailure) as raised:
            await client.call()

    assert (raised.value.reason, len(shop.exchanges)) == (Reason.UNAUTHORIZED, 1)


@pytest.fixture
def caller_of(endpoint: TokenEndpoint) -> Callable[[Principal, str], UpstreamCaller]:
    """A caller with a token that is exchanged at the endpoint."""
    exchange = TokenExchange(endpoint.url, CLIENT_ID, CLIENT_SECRET)

    def caller(principal: Principal, token: str) -> UpstreamCaller:
        headers = {"authorization": f"Bearer {token}", "x-key": "k"}
        return UpstreamCaller(principal, exchange.for_token(token, principal, lambda: 60.0), headers)

    return caller


async def test_a_probe_is_sent_without_a_token_to_exchange() -> None:
    headers = await EXCHANGED.headers(UpstreamCaller(may_lack_token=True))
    assert headers == []
    with pytest.raises(UpstreamFailure):
        await EXCHANGED.headers(NOBODY)


EXCHANGED = ExchangedCredentials("shop", TokenWanted("shop-api", "read"), PlainHeaders((), ["x-key", "Authorization"]))


async def test_the_callers_token_reaches_the_identity_provider_and_nobody_else(
    shop: Shop,
    endpoint: TokenEndpoint,
    caller_of: Callable[[Principal, str], UpstreamCaller],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with asking(shop.server.url, EXCHANGED) as client:
            await client.call(requester=caller_of(ADA, CANARY))
            await client.call(requester=caller_of(BOB, "token-of-bob"))
            shop.answers = [refuses]
            with pytest.raises(UpstreamFailure) as raised:
                await client.call(requester=caller_of(ADA, CANARY))

    assert [form["subject_token"] for form in endpoint.forms] == [CANARY, "token-of-bob", CANARY]
    assert [exchange.header("authorization") for exchange in shop.exchanges] == [
        "Bearer issued-1-for-shop-api",
        "Bearer issued-2-for-shop-api",
        "Bearer issued-1-for-shop-api",
        "Bearer issued-3-for-shop-api",
    ]
    seen = str([(exchange.headers, exchange.body) for exchange in shop.exchanges])
    assert CANARY not in seen + caplog.text + repr(raised.value)


async def test_a_task_uses_the_token_that_it_keeps_and_gets_no_other(
    shop: Shop, endpoint: TokenEndpoint, caller_of: Callable[[Principal, str], UpstreamCaller]
) -> None:
    kept = await EXCHANGED.token_to_keep(caller_of(ADA, CANARY))
    assert kept == "issued-1-for-shop-api"
    shop.answers = [fine, refuses]
    async with asking(shop.server.url, EXCHANGED) as client:
        await client.call(requester=UpstreamCaller(ADA, token=kept))
        with pytest.raises(UpstreamFailure) as raised:
            await client.call(requester=UpstreamCaller(ADA, token=kept))

    assert raised.value.reason is Reason.UNAUTHORIZED
    assert {exchange.header("authorization") for exchange in shop.exchanges} == {f"Bearer {kept}"}
    assert endpoint.requests == 1


async def test_without_a_token_to_exchange_nothing_is_sent(shop: Shop) -> None:
    async with asking(shop.server.url, EXCHANGED) as client:
        with pytest.raises(UpstreamFailure) as raised:
            await client.call(requester=UpstreamCaller(ADA))

    assert (raised.value.reason, raised.value.sent, shop.exchanges) == (Reason.CREDENTIALS, False, [])


async def test_an_exchange_that_is_refused_is_a_failure(
    shop: Shop, endpoint: TokenEndpoint, caller_of: Callable[[Principal, str], UpstreamCaller]
) -> None:
    endpoint.answer(lambda request: endpoint.refuse(request, "invalid_target"))
    async with asking(shop.server.url, EXCHANGED) as client:
        with pytest.raises(UpstreamFailure, match="invalid_target") as raised:
            await client.call(requester=caller_of(ADA, CANARY))

    assert (raised.value.reason, raised.value.sent, shop.exchanges) == (Reason.CREDENTIALS, False, [])
    assert CANARY not in repr(raised.value)


async def test_a_credential_that_is_not_issued_in_time_is_a_failure(
    shop: Shop, own: ClientCredentials, issuer: Issuer
) -> None:
    issuer.hang()
    async with asking(shop.server.url, own) as client:
        with pytest.raises(UpstreamFailure) as raised:
            await client.call(seconds=0.2)

    assert (raised.value.reason, raised.value.sent, shop.exchanges) == (Reason.CREDENTIALS, False, [])


def definition_of(wanted: Wanted) -> Definition:
    headers = (("Authorization", "Bearer static"), ("X-Org", "1"))
    return Definition("shop", "shop", "http", "http://127.0.0.1:1/mcp", headers, credentials=wanted)


async def test_a_definition_says_which_credentials_are_sent(
    issuer: Issuer,
    endpoint: TokenEndpoint,
    caller_of: Callable[[Principal, str], UpstreamCaller],
) -> None:
    own = Wanted("client_credentials", issuer.url, CLIENT_ID, CLIENT_SECRET, scope="s", audience="a", resource="r")
    exchanged = Wanted("token_exchange", scope="s", audience="a", resource="r")
    caller = caller_of(ADA, CANARY)

    sent = {
        wanted.kind: dict(await credentials_of(definition_of(wanted)).headers(caller))
        for wanted in (Wanted("none"), Wanted("headers"), own, exchanged)
    }

    assert sent == {
        "none": {b"x-org": b"1"},
        "headers": {b"x-org": b"1", b"authorization": b"Bearer static"},
        "client_credentials": {b"x-org": b"1", b"authorization": b"Bearer issued-1"},
        "token_exchange": {b"x-org": b"1", b"authorization": b"Bearer issued-1-for-a"},
    }
    assert issuer.forms[0] == {"grant_type": "client_credentials", "scope": "s", "audience": "a", "resource": "r"}
    assert [endpoint.forms[0][name] for name in ("scope", "audience", "resource")] == ["s", "a", "r"]
