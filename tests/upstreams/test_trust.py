"""Rights at upstreams, and the secrets that an upstream and the surroundings of the gateway see."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from gateway.auth.tokens import mint
from loadtest.cluster import wait_until
from tests.identity import Request
from tests.storage.servers import Server
from tests.token_endpoint import TokenEndpoint
from tests.upstreams.conftest import SHARED_CREDENTIAL, UserOf
from tests.upstreams.servers.plain_http import Exchange
from tests.upstreams.servers.recording import Recording
from tests.upstreams.site import SECONDS, Site, entry
from tests.upstreams.test_asking import ADA, ANSWERS
from tests.wires.draft.deployment import AUDIENCE, SECRET
from tests.wires.draft.messages import accept, call_params
from tests.wires.legacy.speaking import text_of
from tests.workers.conftest import durable_server

UPSTREAM_SECRET = "a secret of the upstream's authorization server, long enough"
UPSTREAM_AUDIENCE = "https://orders.example.com"


class Exchanging(TokenEndpoint):
    """Exchanges a caller's token for one that names the same subject, for another audience."""

    def __init__(self) -> None:
        super().__init__()
        self.issued: list[str] = []
        self.expires_in = 600

    def exchange(self, request: Request) -> None:
        subject = jwt.decode(request.form["subject_token"], SECRET, ["HS256"], audience=AUDIENCE)["sub"]
        claims = {
            "sub": subject,
            "aud": request.form["audience"],
            "exp": int(time.time()) + self.expires_in,
            "number": len(self.issued),
        }
        self.issued.append(jwt.encode(claims, UPSTREAM_SECRET, "HS256"))
        self.changes = {"access_token": self.issued[-1], "expires_in": self.expires_in}
        super().exchange(request)


class Checking:
    """Lets the gateway itself list, and callers call only with a token for this upstream.

    Attributes:
        subjects: who called, by number of the call.
        refuses: whether to refuse the next call, as if its token were revoked.
    """

    def __init__(self) -> None:
        self.subjects: list[str] = []
        self.refuses = 0

    def __call__(self, exchange: Exchange) -> int | None:
        message = json.loads(exchange.body)
        token = (exchange.header("authorization") or "").removeprefix("Bearer ")
        if not token and message["method"] in {"server/discover", "subscriptions/listen"}:
            return None
        try:
            claims = jwt.decode(token, UPSTREAM_SECRET, ["HS256"], audience=UPSTREAM_AUDIENCE)
        except jwt.InvalidTokenError:
            return 401
        if message["method"] == "tools/call":
            self.subjects.append(claims["sub"])
            if self.refuses:
                self.refuses -= 1
                return 401
        return None


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Exchanging]:
    with Exchanging() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def store() -> Iterator[Server]:
    """A store that no worker of another site looks into."""
    with durable_server() as store:
        yield store


@pytest.fixture(scope="module")
def checking() -> Checking:
    return Checking()


@pytest.fixture(scope="module")
def orders(checking: Checking) -> Iterator[Recording]:
    """An upstream that knows its users."""
    with Recording(authorize=checking) as orders:
        yield orders


@pytest.fixture(scope="module")
def exchanging_site(
    orders: Recording, endpoint: Exchanging, store: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    exchange = {"kind": "token_exchange", "audience": UPSTREAM_AUDIENCE}
    options: dict[str, Any] = {"credentials": exchange, "timeout_seconds": 10}
    upstreams = {
        "orders": entry(orders.url, **options),
        "later": entry(orders.url, task="optional", **options),
    }
    with Site(tmp_path_factory.mktemp("exchanging"), upstreams, store, endpoint.environ) as site:
        yield site


@pytest.fixture
def fresh(exchanging_site: Site, orders: Recording, checking: Checking, endpoint: Exchanging) -> Site:
    """The site, with nothing recorded yet."""
    orders.clear()
    checking.subjects.clear()
    endpoint.forms.clear()
    return exchanging_site


# Users of one upstream credential


def asked(upstream: Recording) -> list[str]:
    """Return what callers made the upstream do. The gateway reads its lists whenever it likes."""
    of_callers = ("tools/call", "prompts/get", "resources/read", "completion/complete")
    return [call.method for call in upstream.calls if call.method in of_callers]


async def test_another_user_cannot_continue_a_call_though_both_use_one_credential(
    user_of: UserOf, upstream: Recording
) -> None:
    ada, eve = user_of("ada"), user_of("eve")
    params = call_params("rec__two_rounds")
    asked = await ada.send("tools/call", params)
    stolen = {**params, **await eve.retry(asked, {"name": accept(name="Eve")})}
    for _ in range(2):  # at each replica
        refused = await eve.send("tools/call", stolen)
        assert refused.error["code"] == -32602
    assert [call.answers for call in upstream.of("two_rounds")] == [None]
    own = await ada.complete("tools/call", {**params, **await ada.retry(asked, ANSWERS)}, ANSWERS)
    assert own.said["first"] == ADA
    assert {call.header("authorization") for call in upstream.of("two_rounds")} == {SHARED_CREDENTIAL}


async def test_a_state_continues_neither_another_tool_nor_other_arguments_nor_another_upstream(
    user_of: UserOf, upstream: Recording
) -> None:
    ada = user_of("ada")
    asked = await ada.send("tools/call", call_params("rec__ask_name", {"a": 1}))
    retry = await ada.retry(asked, ANSWERS)
    for other in (
        call_params("rec__no_state", {"a": 1}),
        call_params("rec__ask_name", {"a": 2}),
        call_params("tasks__ask_name", {"a": 1}),
    ):
        assert (await ada.send("tools/call", {**other, **retry})).error["code"] == -32602
    assert [call.name for call in upstream.calls if call.method == "tools/call"] == ["ask_name"]


async def test_another_user_reads_answers_and_cancels_no_task(user_of: UserOf, upstream: Recording) -> None:
    ada, eve = user_of("ada"), user_of("eve")
    task_id = await ada.task("tasks__ask_name")
    for method, more in {
        "tasks/get": {},
        "tasks/update": {"inputResponses": {"name": accept(name="Eve")}},
        "tasks/cancel": {},
    }.items():
        assert (await eve.send(method, {"taskId": task_id, **more})).error["code"] == -32602
    assert json.loads(text_of((await ada.finish(task_id, ANSWERS))["result"])) == {"name": ADA}
    assert [call.answers for call in upstream.of("ask_name")] == [None, {"name": ADA}]


# A token for each user


async def test_two_users_of_token_exchange_reach_an_upstream_that_checks_who_they_are(
    fresh: Site, orders: Recording, checking: Checking, endpoint: Exchanging
) -> None:
    async with fresh.user("ada") as ada, fresh.user("bob") as bob:
        for user in (ada, bob, ada, bob):
            assert (await user.call("orders__two_rounds", {}, ANSWERS)).said["first"] == ADA
    assert checking.subjects == [name for name in ("ada", "bob", "ada", "bob") for _ in range(3)]
    assert {form["audience"] for form in endpoint.forms} == {UPSTREAM_AUDIENCE}
    assert len(endpoint.forms) <= 4, "each replica asks once for each user"


async def test_many_calls_of_one_user_at_once_exchange_its_token_once(fresh: Site, endpoint: Exchanging) -> None:
    async with fresh.user("crowd", urls=fresh.urls[:1]) as user:
        replies = await asyncio.gather(*(user.call("orders__echo", {"text": str(n)}) for n in range(10)))
    assert [reply.text for reply in replies] == [str(n) for n in range(10)]
    assert len(endpoint.forms) == 1


async def test_a_token_that_the_upstream_refuses_is_renewed_once(
    fresh: Site, checking: Checking, endpoint: Exchanging
) -> None:
    async with fresh.user("revoked", urls=fresh.urls[:1]) as user:
        checking.refuses = 1
        assert (await user.call("orders__echo", {"text": "renewed"})).text == "renewed"
        assert len(endpoint.forms) == 2
        checking.refuses = 5
        reply = await user.call("orders__echo", {"text": "refused"})
        assert reply.status == 200, "the client's own token is good"
        assert reply.result["isError"]
        assert 5 - checking.refuses <= 2
        checking.refuses = 0


async def test_an_upstream_that_cannot_be_reached_is_refused_until_it_answers_without_any_call(
    fresh: Site, orders: Recording
) -> None:
    """The gateway itself has no token for it, and finds out all the same."""
    replica = fresh.replicas[0]

    def is_open() -> bool:
        return replica.metric("gateway_upstream_breaker_open", upstream="orders") == 1

    async with fresh.user("patient", urls=[replica.url]) as user:
        assert (await user.call("orders__echo", {"text": "before"})).text == "before"
        orders.server.run(orders.server.stop())
        try:
            async with asyncio.timeout(SECONDS):
                while not is_open():
                    assert (await user.call("orders__echo", {"text": "lost"})).result["isError"]
        finally:
            orders.server.run(orders.server.listen())
        await asyncio.to_thread(wait_until, lambda: not is_open(), "the end of the refusals")
        assert (await user.call("orders__echo", {"text": "after"})).text == "after"


async def test_a_caller_whose_token_cannot_be_exchanged_does_not_reach_the_upstream(
    fresh: Site, orders: Recording, endpoint: Exchanging
) -> None:
    endpoint.answer(lambda request: endpoint.refuse(request, "invalid_grant"))
    try:
        async with fresh.user("unwelcome") as user:
            reply = await user.call("orders__echo", {"text": "a"})
        assert "a" not in {call.arguments["text"] for call in orders.of("echo")}
        assert reply.response.get("result", {}).get("isError") or "error" in reply.response
        assert orders.of("echo") == []
    finally:
        endpoint.answer(endpoint.exchange)


async def test_a_task_uses_the_token_that_was_exchanged_when_it_was_created(
    fresh: Site, checking: Checking, endpoint: Exchanging
) -> None:
    async with fresh.user("dora") as user:
        task = await user.finish(await user.task("later__two_rounds"), ANSWERS)
    assert json.loads(text_of(task["result"]))["first"] == ADA
    assert set(checking.subjects) == {"dora"}
    assert len(endpoint.forms) <= 2


async def test_a_task_whose_token_has_expired_ends_with_an_error(
    fresh: Site, checking: Checking, endpoint: Exchanging
) -> None:
    async with fresh.user("late") as user:
        task_id = await user.task("later__ask_name")
        questions = await user.asked_in_task(task_id)
        checking.refuses = 5
        responses = dict.fromkeys(questions, ADA)
        await user.send("tasks/update", {"taskId": task_id, "inputResponses": responses})
        ended = await user.finish(task_id)
        exchanged = len(endpoint.forms)
        checking.refuses = 0
    assert ended["status"] == "failed" or ended["result"]["isError"]
    assert exchanged == 1, "nothing is refreshed in a user's absence"


# The canary


async def test_a_callers_token_is_nowhere_but_at_the_token_endpoint(
    fresh: Site, orders: Recording, endpoint: Exchanging, store: Server
) -> None:
    canary = mint(SECRET, "canary", AUDIENCE, claims={"note": "canary"})
    async with fresh.user("canary") as user:
        user.token = canary
        user.headers = {"cookie": f"session={canary}", "x-github-token": "not-forwarded-here"}
        await user.call("orders__two_rounds", {}, ANSWERS)
        await user.finish(await user.task("later__two_rounds"), ANSWERS)
        await user.names()
        await user.call("orders__rpc_error")
        await user.call("orders__big", {"bytes": 5_000_000})
        task_id = await user.task("later__ask_name")  # is left in the store
        await user.asked_in_task(task_id)
    assert any(form["subject_token"] == canary for form in endpoint.forms)
    places = {
        "upstream": "\n".join(f"{call.headers}{call.body.decode()}" for call in orders.calls),
        "logs": fresh.logged_text(),
        "store": _everything_in(store),
        "metrics": "\n".join(replica._metrics() for replica in [*fresh.replicas, *fresh.workers]),
        "file": fresh.file.read_text(),
    }
    assert all(places.values())
    for place, content in places.items():
        assert canary not in content, place
        assert canary.rsplit(".", 1)[1] not in content, place
        assert "not-forwarded-here" not in content, place
    for place in ("logs", "store", "metrics"):
        for issued in endpoint.issued:
            assert issued.rsplit(".", 1)[1] not in places[place], f"an exchanged token is in {place}"


def _everything_in(redis: Server) -> str:
    names = redis.ask("KEYS", "*")
    assert isinstance(names, list)
    return "\n".join(repr((name, redis.ask("DUMP", name.decode()))) for name in names)


# Headers of the caller


async def test_only_named_headers_are_forwarded_and_not_into_tasks(user_of: UserOf, upstream: Recording) -> None:
    ada = user_of("ada")
    ada.headers = {"x-github-token": "ghp-of-ada", "x-other": "no", "cookie": "session=1"}
    await ada.call("guarded__echo", {"text": "a"})
    await ada.call("rec__echo", {"text": "b"})
    forwarded, plain = upstream.of("echo")
    assert forwarded.header("x-github-token") == "ghp-of-ada"
    assert plain.header("x-github-token") is None
    for call in (forwarded, plain):
        assert call.header("x-other") is None
        assert call.header("cookie") is None
    assert forwarded.header("authorization") is None


@pytest.mark.parametrize("values", [(b"evil", b"good"), (b"same", b"same"), (b"a\xff",)])
async def test_a_named_header_that_is_repeated_or_not_ascii_refuses_the_request(
    values: tuple[bytes, ...], user_of: UserOf, upstream: Recording
) -> None:
    ada = user_of("ada")
    for method, params in (("tools/call", call_params("guarded__echo", {"text": "a"})), ("tools/list", {})):
        body, headers = ada.request(method, params)
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        raw += [(b"X-GitHub-Token", value) for value in values]
        answer = await ada.http.post(ada.urls[0], content=body, headers=raw)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600)
        assert "Header x-github-token must" in answer.json()["error"]["message"]
    assert upstream.of("echo") == []
    body, headers = ada.request("tools/call", call_params("rec__echo", {"text": "b"}))
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    raw += [(b"x-github-token", value) for value in values]
    answer = await ada.http.post(ada.urls[0], content=body, headers=raw)
    assert answer.status_code == 200, "upstreams that do not get the header are not affected"


# Refused before anything is sent


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", call_params("guarded__act", {"key": "x"})),
        ("prompts/get", {"name": "guarded__greeting", "arguments": {"name": "x"}}),
        ("resources/read", {"uri": "guarded+note://today"}),
    ],
)
async def test_missing_scopes_are_refused_before_the_upstream_is_asked(
    user_of: UserOf, upstream: Recording, method: str, params: dict[str, Any]
) -> None:
    refused = await user_of("ada").send(method, params)
    assert refused.status == 403
    assert "insufficient_scope" in refused.headers["www-authenticate"]
    assert asked(upstream) == []
    allowed = await user_of("ada", scopes=["may-act", "may-greet", "may-read"]).send(method, params)
    assert "result" in allowed.response
    # A replica that has not read this caller's list does so first.
    assert [call.method for call in upstream.calls if not call.method.endswith("/list")] == [method]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", call_params("guarded__ask_then_act", {"key": "x"})),
        ("tools/call", call_params("guarded__two_rounds")),
        ("tools/call", call_params("guarded__unheard_of")),
        ("prompts/get", {"name": "guarded__asking"}),
        ("resources/read", {"uri": "guarded+file:///picture.png"}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "guarded__asking"}, "argument": {"name": "a", "value": ""}},
        ),
    ],
)
async def test_denied_names_are_refused_before_the_upstream_is_asked(
    user_of: UserOf, upstream: Recording, method: str, params: dict[str, Any]
) -> None:
    for _ in range(2):
        assert (await user_of("ada").send(method, params)).error["code"] == -32602
    assert asked(upstream) == []


async def test_entries_are_listed_for_those_who_may_use_them(user_of: UserOf) -> None:
    names = await user_of("ada").names()
    assert "guarded__echo" in names
    assert "guarded__act" not in names
    assert "guarded__ask_then_act" not in names
    assert "guarded__act" in await user_of("ada", scopes=["may-act"]).names()


@pytest.mark.parametrize(
    ("arguments", "header"),
    [({"region": "eu"}, "us"), ({"region": "eu"}, None), ({}, "eu")],
    ids=["other", "missing", "unasked"],
)
async def test_headers_that_differ_from_their_arguments_are_refused_before_the_upstream_is_asked(
    user_of: UserOf, upstream: Recording, arguments: dict[str, str], header: str | None
) -> None:
    headers = {} if header is None else {"mcp-param-region": header}
    reply = await user_of("ada").send("tools/call", call_params("rec__regional", arguments), **headers)
    assert (reply.status, reply.error["code"]) == (400, -32020)
    assert asked(upstream) == []


async def test_a_name_in_the_header_that_differs_is_refused_before_the_upstream_is_asked(
    user_of: UserOf, upstream: Recording
) -> None:
    reply = await user_of("ada").send("tools/call", call_params("rec__echo", {"text": "a"}), **{"mcp-name": "rec__act"})
    assert (reply.status, reply.error["code"]) == (400, -32020)
    assert asked(upstream) == []


async def test_requests_that_are_too_large_or_too_deep_are_refused_before_the_upstream_is_asked(
    user_of: UserOf, upstream: Recording
) -> None:
    ada = user_of("ada")
    with contextlib.suppress(httpx.TransportError):  # the gateway may close the connection while this still sends
        large = await ada.send("tools/call", call_params("rec__echo", {"text": "x" * 1_050_000}))
        assert large.status == 413
    nested: Any = 1
    for _ in range(500):
        nested = [nested]
    deep = await ada.send("tools/call", call_params("rec__echo", {"text": "a", "deep": nested}))
    assert deep.status == 400
    no_object = await ada.send("tools/call", {"name": "rec__echo", "arguments": [1]})
    assert no_object.error["code"] == -32602
    assert asked(upstream) == []


async def test_an_anonymous_request_is_refused_before_the_upstream_is_asked(
    user_of: UserOf, upstream: Recording
) -> None:
    ada = user_of("ada")
    ada.token = None
    assert (await ada.send("tools/call", call_params("rec__echo", {"text": "a"}))).status == 401
    assert asked(upstream) == []


async def test_a_caller_over_its_limit_and_an_upstream_over_its_own_refuse_before_the_upstream_is_asked(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Recording() as upstream:
        upstreams = {
            "rec": entry(upstream.url),
            "rated": entry(upstream.url, rate="1/m burst 2"),
            "narrow": entry(upstream.url, max_in_flight=1),
        }
        settings = {"GATEWAY_RATE_LIMIT": "1/m burst 5"}
        with Site(tmp_path_factory.mktemp("limits"), upstreams, None, settings, ["r1"]) as site:
            site.wait_listed()
            async with site.user("many") as many, site.user("rated") as rated, site.user("narrow") as narrow:
                calls = [await many.call("rec__echo", {"text": str(n)}) for n in range(8)]
                assert [reply.status for reply in calls] == [200] * 5 + [429] * 3
                assert len(upstream.of("echo")) == 5
                calls = [await rated.call("rated__echo", {"text": str(n)}) for n in range(4)]
                assert [reply.status for reply in calls] == [200] * 2 + [503] * 2
                assert all(reply.error["code"] == -31001 for reply in calls[2:])
                assert len(upstream.of("echo")) == 7
                first = asyncio.create_task(narrow.call("narrow__slow"))
                await asyncio.to_thread(upstream.wait_begun)
                waited = await narrow.call("narrow__echo", {"text": "no place"})
                assert (waited.status, waited.error["code"]) == (503, -31001)
                assert len(upstream.of("echo")) == 7
                await asyncio.to_thread(upstream.open)
                assert (await first).text == "finally"


async def test_a_changed_address_ends_calls_that_wait_at_the_old_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Their state belongs to another server, which must not get it."""
    with Recording() as old, Recording() as new, _site_of(tmp_path_factory.mktemp("moved"), old) as site:
        async with site.user() as user:
            params = call_params("rec__ask_name")
            asked = await user.send("tools/call", params)
            site.configure({"rec": entry(new.url)})
            await asyncio.to_thread(wait_until, lambda: new.count("tools/list") > 0, "the new server's list")
            await asyncio.to_thread(_call_until, site, new)
            refused = await user.send("tools/call", {**params, **await user.retry(asked, ANSWERS)})
            assert "error" in refused.response or refused.result["isError"]
        assert new.of("ask_name") == []
        assert len(old.of("ask_name")) == 1


@contextmanager
def _site_of(directory: Path, upstream: Recording) -> Iterator[Site]:
    with Site(directory, {"rec": entry(upstream.url)}, names=["r1"]) as site:
        site.wait_listed()
        yield site


def _call_until(site: Site, upstream: Recording) -> None:
    """Call until calls reach the new server."""

    async def call() -> None:
        async with site.user() as user:
            await user.call("rec__echo", {"text": "a"})

    def reached() -> bool:
        asyncio.run(call())
        return bool(upstream.of("echo"))

    wait_until(reached, "calls at the new server")
