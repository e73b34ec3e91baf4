"""Exchanging tokens at an endpoint that behaves, and at endpoints that do not."""

from __future__ import annotations

import asyncio
import logging
import pickle
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.auth.token_answers import MAX_ANSWER_BYTES, MAX_TOKEN_CHARACTERS
from gateway.auth.token_exchange import (
    MAX_AT_ONCE,
    MAX_OF_CALLER,
    RENEWAL_SECONDS,
    TokenExchange,
)
from gateway.engine.exchanged_token import ExchangedToken
from gateway.errors import AuthoringError, TokenExchangeError
from gateway.protocol.caller import TokenWanted
from gateway.sealing.principal import Principal
from tests.clocks import Clock
from tests.identity import Request
from tests.token_endpoint import AUTHORIZATION, CLIENT_ID, CLIENT_SECRET, TokenEndpoint

ADA, BOB = Principal("https://id.test", "ada", "app"), Principal("https://id.test", "bob", "app")
TOKEN = "header.claims-of-ada.signature"
ORDERS = TokenWanted("orders")


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with TokenEndpoint() as endpoint:
        yield endpoint


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def exchange(endpoint: TokenEndpoint, clock: Clock) -> TokenExchange:
    return TokenExchange(endpoint.url, CLIENT_ID, CLIENT_SECRET, clock=clock)


async def value(exchange: TokenExchange, who: Principal = ADA, token: str = TOKEN, wanted: TokenWanted = ORDERS) -> str:
    return (await exchange.exchange(token, who, wanted)).get_secret_value()


async def failure(exchange: TokenExchange) -> TokenExchangeError:
    with pytest.raises(TokenExchangeError) as caught:
        await exchange.exchange(TOKEN, ADA, ORDERS)
    assert TOKEN not in str(caught.value)
    return caught.value


async def test_a_token_is_exchanged_as_rfc_8693_describes(endpoint: TokenEndpoint, exchange: TokenExchange) -> None:
    exchanged = await exchange.exchange(TOKEN, ADA, TokenWanted("orders", "read write", "https://orders.test/"))
    assert (exchanged.get_secret_value(), exchanged.audience) == ("issued-1-for-orders", "orders")
    assert endpoint.forms == [
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token": TOKEN,
            "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "audience": "orders",
            "scope": "read write",
            "resource": "https://orders.test/",
        }
    ]
    await value(exchange, BOB)
    assert not {"scope", "resource"} & set(endpoint.forms[1])


async def test_a_token_is_cached_until_shortly_before_it_expires(
    endpoint: TokenEndpoint, exchange: TokenExchange, clock: Clock
) -> None:
    endpoint.changes["expires_in"] = 90
    first = await value(exchange)
    clock.now += 59
    assert await value(exchange) == first
    clock.now += 2
    assert await value(exchange) == "issued-2-for-orders"
    assert endpoint.requests == 2


@pytest.mark.parametrize(
    "lifetime",
    [0, -1, -(10**400), 29, True, "soon", "", "-90", "29", "9" * 5000, [600]],
    ids=lambda told: repr(told)[:9],
)
async def test_a_token_without_a_useful_lifetime_is_used_once(
    endpoint: TokenEndpoint, exchange: TokenExchange, lifetime: Any
) -> None:
    endpoint.changes["expires_in"] = lifetime
    assert [await value(exchange), await value(exchange)] == ["issued-1-for-orders", "issued-2-for-orders"]


async def test_a_token_whose_lifetime_is_not_stated_is_cached_for_a_minute_and_not_beyond_the_callers_own(
    endpoint: TokenEndpoint, exchange: TokenExchange, clock: Clock
) -> None:
    endpoint.changes["expires_in"] = None
    began = clock.now
    for_token = exchange.for_token(TOKEN, ADA, lambda: began + 30 - clock.now)
    first = await value(exchange)
    await for_token(ORDERS)
    clock.now += 30
    with pytest.raises(TokenExchangeError, match="expired"):
        await for_token(ORDERS)
    clock.now += 29
    assert await value(exchange) == first
    clock.now += 1
    assert await value(exchange) != first


@pytest.mark.parametrize("lifetime", [1e300, 10**18, 10**400, "7200"], ids=lambda told: repr(told)[:9])
async def test_a_token_is_cached_for_an_hour_at_most(
    endpoint: TokenEndpoint, exchange: TokenExchange, clock: Clock, lifetime: Any
) -> None:
    endpoint.changes["expires_in"] = lifetime
    assert await value(exchange) == await value(exchange)
    clock.now += 3600
    assert await value(exchange) == "issued-2-for-orders"


async def test_no_caller_gets_what_another_caller_token_audience_scope_or_resource_got(
    endpoint: TokenEndpoint, exchange: TokenExchange
) -> None:
    asked = [
        (ADA, TOKEN, ORDERS),
        (BOB, TOKEN, ORDERS),
        (ADA, TOKEN + "2", ORDERS),
        (ADA, TOKEN, TokenWanted("bills")),
        (ADA, TOKEN, TokenWanted("orders", "read")),
        (ADA, TOKEN, TokenWanted("orders", resource="https://orders.test/")),
    ]
    got = [await value(exchange, who, token, wanted) for who, token, wanted in asked]
    assert len(set(got)) == len(asked)
    assert [await value(exchange, who, token, wanted) for who, token, wanted in asked] == got
    assert endpoint.requests == len(asked)


async def test_the_cache_drops_the_token_that_was_not_used_for_longest(endpoint: TokenEndpoint) -> None:
    exchange = TokenExchange(endpoint.url, CLIENT_ID, CLIENT_SECRET, cache_entries=2)
    for token in ("a", "b", "a", "c", "a"):
        await value(exchange, token=token)
    assert endpoint.requests == 3
    await value(exchange, token="b")
    assert endpoint.requests == 4


async def test_requests_for_one_token_share_one_exchange_and_none_can_end_it_for_the_others(
    endpoint: TokenEndpoint, exchange: TokenExchange
) -> None:
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def answer(request: Request) -> None:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(20)
        endpoint.exchange(request)

    endpoint.answer(answer)
    waiting = [asyncio.create_task(value(exchange)) for _ in range(5)]
    await asyncio.to_thread(endpoint.wait_for_request, 1)
    waiting.pop(0).cancel()
    release.set()
    assert await asyncio.gather(*waiting) == ["issued-1-for-orders"] * 4
    assert endpoint.requests == 1


async def most_at_once(endpoint: TokenEndpoint, exchange: TokenExchange, callers: list[Principal], most: int) -> int:
    """Let each caller exchange tokens, and return how many exchanges are in progress once there are `most`."""
    running: list[None] = []
    loop, release = asyncio.get_running_loop(), asyncio.Event()
    counts: list[int] = []

    async def hold() -> None:
        running.append(None)
        counts.append(len(running))
        await release.wait()
        running.pop()

    def answer(request: Request) -> None:
        asyncio.run_coroutine_threadsafe(hold(), loop).result(20)
        endpoint.exchange(request)

    endpoint.answer(answer)
    waiting = [
        asyncio.create_task(value(exchange, who, token=str(number))) for number in range(MAX_AT_ONCE) for who in callers
    ]
    await asyncio.to_thread(endpoint.wait_for_request, most)
    release.set()
    await asyncio.gather(*waiting)
    return max(counts)


async def test_only_so_many_exchanges_are_in_progress_at_once(endpoint: TokenEndpoint, exchange: TokenExchange) -> None:
    callers = [Principal("https://id.test", str(number), "app") for number in range(6)]
    assert await most_at_once(endpoint, exchange, callers, MAX_AT_ONCE) == MAX_AT_ONCE


async def test_one_caller_has_only_some_of_them_however_many_tokens_it_has(
    endpoint: TokenEndpoint, exchange: TokenExchange
) -> None:
    assert await most_at_once(endpoint, exchange, [ADA], MAX_OF_CALLER) == MAX_OF_CALLER <= MAX_AT_ONCE // 2
    assert not exchange._turns_of, "nothing is kept of a caller who waits for nothing"


@pytest.mark.parametrize("status", [400, 401])
async def test_a_refusal_has_the_code_of_the_endpoint_and_not_its_description(
    endpoint: TokenEndpoint, exchange: TokenExchange, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    endpoint.answer(lambda request: endpoint.refuse(request, "invalid_target", status))
    error = await failure(exchange)
    assert (str(error), error.code) == (
        "The token could not be exchanged for one for 'orders': invalid_target",
        "invalid_target",
    )
    (record,) = caplog.records
    assert (record.levelno, vars(record)["reason"]) == (logging.WARNING, "invalid_target")
    assert "refused" not in repr(vars(record))
    endpoint.answer(endpoint.exchange)
    assert await value(exchange) == "issued-1-for-orders"  # a refusal is not cached


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"", 500, "HTTP 500"),
        (b"{}", 302, "HTTP 302"),
        (b"<html>", 400, "HTTP 400"),
        (b'{"error": ["invalid_target"]}', 400, "HTTP 400"),
        (b'{"error": "a\\"quote"}', 401, "HTTP 401"),
        (b"<html>", 200, "the answer is not a JSON object"),
        (b"[" * 5000, 200, "the answer is not a JSON object"),
        (b"[]", 200, "the answer is not a JSON object"),
        (b"{}", 200, "the answer contains no token"),
        (b"x" * (MAX_ANSWER_BYTES + 1), 200, f"the answer is larger than {MAX_ANSWER_BYTES} bytes"),
    ],
)
async def test_any_other_answer_is_a_failure_that_says_why(
    endpoint: TokenEndpoint, exchange: TokenExchange, body: bytes, status: int, reason: str
) -> None:
    endpoint.send(body, status, [("Location", "/elsewhere")])
    error = await failure(exchange)
    assert (str(error).partition(": ")[2], error.code) == (reason, "")
    assert endpoint.requests == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"access_token": 1}, "the answer contains no token"),
        ({"access_token": ""}, "the answer contains no token"),
        ({"access_token": "a\r\nX-Admin: 1"}, "the answer contains no token"),
        ({"access_token": "å"}, "the answer contains no token"),
        (
            {"access_token": "a" * (MAX_TOKEN_CHARACTERS + 1)},
            f"the token is longer than {MAX_TOKEN_CHARACTERS} characters",
        ),
        ({"token_type": "DPoP"}, "the answer contains a token that is not a bearer token for an API"),
        ({"token_type": None}, "the answer contains a token that is not a bearer token for an API"),
        (
            {"issued_token_type": "urn:ietf:params:oauth:token-type:refresh_token"},
            "the answer contains a token that is not a bearer token for an API",
        ),
        ({"issued_token_type": ["x"]}, "the answer contains a token that is not a bearer token for an API"),
    ],
)
async def test_a_token_that_cannot_be_used_is_refused(
    endpoint: TokenEndpoint, exchange: TokenExchange, changes: dict[str, Any], reason: str
) -> None:
    endpoint.changes = changes
    assert str(await failure(exchange)).partition(": ")[2] == reason


async def test_no_frame_of_a_failure_has_the_callers_token_and_no_two_requests_get_one_error(
    endpoint: TokenEndpoint, exchange: TokenExchange
) -> None:
    endpoint.answer(lambda request: endpoint.refuse(request, "invalid_target"))
    callers = exchange.for_token(TOKEN, ADA, lambda: 60.0)
    errors = await asyncio.gather(callers(ORDERS), callers(ORDERS), return_exceptions=True)
    assert endpoint.requests == 1
    assert errors[0] is not errors[1]
    for error in errors:
        assert isinstance(error, TokenExchangeError)
        assert (error.code, error.__cause__, error.__context__) == ("invalid_target", None, None)
        text = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
        assert "wanted = TokenWanted" in text
        assert not [secret for secret in (TOKEN, CLIENT_SECRET, AUTHORIZATION) if secret in text]


async def test_a_token_that_has_expired_is_not_exchanged_and_its_cached_one_not_handed_out(
    endpoint: TokenEndpoint, exchange: TokenExchange
) -> None:
    left = 1.0
    callers = exchange.for_token(TOKEN, ADA, lambda: left)
    assert (await callers(ORDERS)).get_secret_value() == "issued-1-for-orders"
    left = 0.0
    for wanted in (ORDERS, TokenWanted("bills")):
        with pytest.raises(TokenExchangeError, match="The caller's token has expired"):
            await callers(wanted)
    assert endpoint.requests == 1


async def test_an_endpoint_that_stays_silent_has_a_time_limit(endpoint: TokenEndpoint) -> None:
    endpoint.hang()
    exchange = TokenExchange(endpoint.url, CLIENT_ID, CLIENT_SECRET, seconds=0.2)
    assert str(await failure(exchange)).endswith("'orders': no answer within 0.2 seconds")
    endpoint.drip(in_head=False)
    assert str(await failure(exchange)).endswith("'orders': no answer within 0.2 seconds")


async def test_an_endpoint_that_is_down_is_a_failure_and_the_next_request_tries_again() -> None:
    with TokenEndpoint() as endpoint:
        exchange = TokenExchange(endpoint.url, CLIENT_ID, CLIENT_SECRET)
        assert await value(exchange) == "issued-1-for-orders"
    with pytest.raises(TokenExchangeError, match="Connection refused"):
        await value(exchange, BOB)
    assert await value(exchange) == "issued-1-for-orders"  # it is still cached


def test_nothing_shows_a_token_or_the_secret(exchange: TokenExchange) -> None:
    exchanged = ExchangedToken("the-value", "orders")
    for shown in (exchanged, exchange, exchange.for_token(TOKEN, ADA, lambda: 60.0)):
        text = f"{shown} {shown!r} {dir(shown)}"
        assert not [secret for secret in ("the-value", TOKEN, CLIENT_SECRET) if secret in text]
    with pytest.raises(AuthoringError, match="is a secret"):
        pickle.dumps(exchanged)


async def test_a_token_that_was_refused_is_replaced_for_everyone(
    exchange: TokenExchange, endpoint: TokenEndpoint
) -> None:
    assert await value(exchange) == "issued-1-for-orders"
    assert await value(exchange, wanted=TokenWanted("orders", renewed=True)) == "issued-2-for-orders"
    assert await value(exchange) == "issued-2-for-orders"
    assert endpoint.requests == 2


async def test_a_service_that_refuses_every_token_causes_few_exchanges(
    exchange: TokenExchange, endpoint: TokenEndpoint, clock: Clock
) -> None:
    renewed = TokenWanted("orders", renewed=True)
    assert [await value(exchange, wanted=renewed) for _ in range(20)] == ["issued-1-for-orders"] * 20
    clock.now += RENEWAL_SECONDS
    assert [await value(exchange, wanted=renewed) for _ in range(20)] == ["issued-2-for-orders"] * 20
    assert endpoint.requests == 2
