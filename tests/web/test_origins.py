"""Only hosts that are ours are answered for, and only pages that are allowed may call."""

from __future__ import annotations

import functools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.errors import HttpRefusal
from gateway.protocol.headers import Headers
from gateway.web.origins import MAX_KNOWN_HOSTS, OriginPolicy
from tests.asgi import Client, make_app
from tests.integration.raw import headers_of, request

ALLOWED = ("mcp.example.com", "dotted.example.com.", "EU.example.com:8443", "[2001:db8::1]")
PAGES = (
    "https://app.example.com",
    "http://Dev.example.com:3000",
    "https://port.example.com:443",
    "http://plain.example.com",
    "app://page",
)

LOCAL = OriginPolicy((), (), loopback=True)
NAMED = OriginPolicy(ALLOWED, PAGES, loopback=False)
OPEN = OriginPolicy(None, ("*",), loopback=False)

app_with = functools.cache(make_app)
"""The application with these settings, which no test changes."""


def check(policy: OriginPolicy, host: str | None, origin: str | None = None) -> list[tuple[bytes, bytes]]:
    raw = [(b"host", host.encode("latin-1"))] if host is not None else []
    if origin is not None:
        raw.append((b"origin", origin.encode("latin-1")))
    return policy.check(Headers(raw))


def is_refused(policy: OriginPolicy, host: str | None, origin: str | None = None) -> bool:
    try:
        check(policy, host, origin)
    except HttpRefusal as refusal:
        return refusal.status == 403
    return False


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8080",
        "LOCALHOST:1",
        "localhost.",
        "Localhost.:80",
        "127.0.0.1",
        "127.0.0.1:80",
        "[::1]",
        "[::1]:8080",
    ],
)
def test_on_a_loopback_address_its_names_are_ours_with_any_port(host: str) -> None:
    assert check(LOCAL, host) == []


TRICKS = [
    None,
    "",
    " ",
    "evil.example",
    "evil.example:8080",
    "localhost..",
    "localhost..:8080",
    ".",
    ".:80",
    "localhost.evil.example",
    "evil.example:localhost",
    "localhost:8080:evil.example",
    "localhost@evil.example",
    "localhost:80@evil.example:80",
    "evil.example#localhost",
    "evil.example/localhost",
    "localhost/",
    "localhost\\",
    "localhost\t:80",
    "localhost, evil.example",
    "http://localhost",
    "127.0.0.1.nip.example",
    "127.0.0.1.",
    "127.0.0.1.:80",
    "[::1].",
    "[::1].:80",
    "[::1.]",
    "127.1",
    "0.0.0.0",
    "0.0.0.0:8080",
    "[::]",
    "[::ffff:192.0.2.1]",
    "[::1%25lo]",
    "[::1]evil.example",
    "[::1].evil.example:80",
    "evil.example[::1]",
    "[::1",
    "::1",
    "169.254.169.254",
    "*",
]


@pytest.mark.parametrize("host", TRICKS)
def test_on_a_loopback_address_nothing_else_is_ours(host: str | None) -> None:
    assert is_refused(LOCAL, host)


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("mcp.example.com", True),
        ("MCP.Example.COM", True),
        ("mcp.example.com:443", True),
        ("mcp.example.com:8443", True),
        ("mcp.example.com.", True),
        ("MCP.example.com.:443", True),
        ("mcp.example.com..", False),
        ("mcp.example.com.:", False),
        ("mcp.example.com.evil.example.", False),
        ("[2001:db8::1].", False),
        ("dotted.example.com", True),
        ("dotted.example.com.:80", True),
        ("eu.example.com.:8443", True),
        ("eu.example.com.:443", False),
        ("mcp.example.com:", False),
        ("mcp.example.com:https", False),
        ("xmcp.example.com", False),
        ("a.mcp.example.com", False),
        ("mcp.example.com.evil.example", False),
        ("mcp.example.comm", False),
        ("example.com", False),
        ("eu.example.com:8443", True),
        ("eu.example.com", False),
        ("eu.example.com:443", False),
        ("eu.example.com:08443", False),
        ("eu.example.com:8443:8443", False),
        ("[2001:db8::1]", True),
        ("[2001:DB8::1]:8080", True),
        ("2001:db8::1", False),
        ("localhost", False),
        ("127.0.0.1", False),
        ("[::1]:8080", False),
    ],
)
def test_hosts_that_are_named_are_ours_and_no_other(host: str, ours: bool) -> None:
    assert is_refused(NAMED, host) != ours


def test_hosts_that_are_named_come_on_top_of_the_loopback_names() -> None:
    policy = OriginPolicy(ALLOWED, (), loopback=True)
    assert not is_refused(policy, "localhost:8080")
    assert not is_refused(policy, "mcp.example.com")
    assert is_refused(policy, "evil.example")


@pytest.mark.parametrize("host", ["anything.example", "", None, "\xff"])
def test_without_a_list_any_host_is_served(host: str | None) -> None:
    assert check(OPEN, host) == []


ALLOWED_NAMES = (
    *("mcp.example.com", "mcp.example.com.", "dotted.example.com", "dotted.example.com."),
    "[2001:db8::1]",
)


@given(st.text(st.characters(codec="latin-1")))
@example("mcp.example.com:443")
@example("mcp.example.com.:443")
@example("mcp.example.com\x00")
def test_nothing_but_an_allowed_host_passes(host: str) -> None:
    seen = host.strip(" \t").lower()
    allowed = seen in {*ALLOWED_NAMES, "eu.example.com:8443", "eu.example.com.:8443"}
    for name in (f"{name}:" for name in ALLOWED_NAMES):
        port = seen.removeprefix(name)
        allowed = allowed or (port != seen and port.isdecimal() and len(port) <= 5)
    assert is_refused(NAMED, host) != allowed


@given(st.sampled_from(["localhost", "127.0.0.1", "[::1]"]), st.text(st.characters(codec="latin-1"), min_size=1))
@example("localhost", ".")
def test_nothing_but_a_port_may_follow_a_loopback_name(name: str, rest: str) -> None:
    port = rest.strip(" \t").removeprefix(".")  # a final dot does not count
    if port and not (port[1:].isdecimal() or rest.isdecimal()):
        assert is_refused(LOCAL, name + rest)
        assert is_refused(LOCAL, "localhost", f"http://{name}{rest}")


def test_the_memory_of_known_hosts_is_bounded_and_holds_no_host_that_was_refused() -> None:
    policy = OriginPolicy((), (), loopback=True)
    for number in range(2 * MAX_KNOWN_HOSTS):
        assert is_refused(policy, f"evil{number}.example")
        assert not is_refused(policy, f"localhost:{number}")
    assert len(policy._known_hosts) == MAX_KNOWN_HOSTS
    assert all(host is not None and host.startswith(b"localhost:") for host in policy._known_hosts)
    assert is_refused(policy, "localhost:" + "0" * 100_000 + "80")


def test_blanks_after_a_host_take_no_memory() -> None:
    policy = OriginPolicy((), (), loopback=True)
    for number in range(100):
        assert not is_refused(policy, "localhost" + " " * number + "\t" * 1000)
    assert policy._known_hosts == {b"localhost"}


def test_where_any_host_is_served_none_is_remembered() -> None:
    policy = OriginPolicy(None, (), loopback=False)
    assert check(policy, "x" * 100_000) == []
    assert not policy._known_hosts


def test_a_host_that_is_known_is_judged_as_before() -> None:
    policy = OriginPolicy((), (), loopback=True)
    for _ in range(3):
        assert not is_refused(policy, "localhost")
        assert is_refused(policy, "evil.example")


@pytest.mark.parametrize(
    "origin",
    ["http://localhost", "http://localhost:6274", "HTTPS://LocalHost", "http://127.0.0.1:3000", "http://[::1]:3000"],
)
def test_on_a_loopback_address_pages_of_this_machine_may_call(origin: str) -> None:
    cors = dict(check(LOCAL, "localhost", origin))
    assert cors[b"access-control-allow-origin"] == origin.encode()
    assert cors[b"vary"] == b"origin"
    exposed = cors[b"access-control-expose-headers"].decode().split(", ")
    assert {"mcp-session-id", "mcp-protocol-version", "www-authenticate", "retry-after"} <= set(exposed)


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        "NULL",
        "localhost",
        "//localhost",
        "http:localhost",
        "http://",
        "http:///localhost",
        "http://localhost@evil.example",
        "http://localhost:80@evil.example",
        "http://evil.example@localhost",
        "http://user:80@localhost:80",
        "http://localhost.evil.example",
        "http://localhost.",
        "http://evil.example",
        "http://evil.example#localhost",
        "http://evil.example\\@localhost",
        "http://localhost\\evil.example",
        "http://localhost/",
        "http://localhost/evil",
        "http://localhost?x",
        "http://local\thost",
        "http://localhost http://evil.example",
        "http://evil.example http://localhost",
        "http://localhost, http://evil.example",
        "http://localhost,",
        "http://[::1",
        "http://[::1]evil.example",
        "http://[::ffff:192.0.2.1]",
        "http://0.0.0.0",
        "http://0.0.0.0:8080",
        "http://127.0.0.1.evil.example",
        "http://localhost:99999999999",
        "ftp://localhost",
        "file://localhost",
        "javascript://localhost",
        "chrome-extension://localhost",
        "data:text/html,localhost",
        "http://xn--lcalhost-54a",
        "\xff",
    ],
)
def test_on_a_loopback_address_no_other_page_may_call(origin: str) -> None:
    assert is_refused(LOCAL, "localhost", origin)


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("https://app.example.com", True),
        ("https://app.example.com:443", True),
        ("HTTPS://APP.example.com", True),
        ("https://port.example.com", True),
        ("https://port.example.com:443", True),
        ("http://dev.example.com:3000", True),
        ("http://plain.example.com:80", True),
        ("http://plain.example.com:443", False),
        ("app://page", True),
        ("http://app.example.com", False),
        ("http://app.example.com:443", False),
        ("https://app.example.com:80", False),
        ("https://app.example.com:8443", False),
        ("https://app.example.com:4430", False),
        ("https://app.example.com.", False),
        ("https://app.example.com/", False),
        ("https://xapp.example.com", False),
        ("https://a.app.example.com", False),
        ("https://app.example.com.evil.example", False),
        ("https://app.example.com@evil.example", False),
        ("http://dev.example.com", False),
        ("http://dev.example.com:30000", False),
        ("http://localhost", False),
        ("null", False),
        ("*", False),
    ],
)
def test_pages_that_are_named_may_call_and_no_other(origin: str, allowed: bool) -> None:
    assert is_refused(NAMED, "mcp.example.com", origin) != allowed


@given(st.text(st.characters(codec="latin-1")))
def test_no_page_may_call_by_accident(origin: str) -> None:
    assert is_refused(OriginPolicy(None, (), loopback=False), "any.example", origin)
    assert is_refused(LOCAL, "localhost", f"http://evil.example{origin}")


@pytest.mark.parametrize("origin", ["https://any.example", "null", "http://[::1"])
def test_all_pages_may_call_where_the_operator_says_so(origin: str) -> None:
    assert dict(check(OPEN, "any.example", origin))[b"access-control-allow-origin"] == origin.encode()


def test_a_page_that_is_allowed_cannot_ask_for_another_host() -> None:
    assert is_refused(NAMED, "evil.example", "https://app.example.com")


def test_a_request_that_no_page_sent_has_no_cors_headers() -> None:
    assert check(NAMED, "mcp.example.com") == []


def preflight(policy: OriginPolicy, wanted: str | None) -> dict[bytes, bytes]:
    raw = [] if wanted is None else [(b"access-control-request-headers", wanted.encode())]
    return dict(policy.preflight(Headers(raw)))


def test_a_preflight_allows_the_headers_it_asks_for_parameters_of_tools_included() -> None:
    answer = preflight(NAMED, "content-type,mcp-param-region")
    assert answer[b"access-control-allow-headers"] == b"content-type,mcp-param-region"
    assert answer[b"access-control-allow-methods"] == b"GET, POST, DELETE"
    assert int(answer[b"access-control-max-age"]) > 0


def test_a_preflight_that_asks_for_no_headers_gets_those_of_the_protocol() -> None:
    allowed = preflight(NAMED, None)[b"access-control-allow-headers"].decode().split(", ")
    assert {"authorization", "content-type", "mcp-protocol-version", "mcp-method", "mcp-name"} <= set(allowed)
    assert {"mcp-session-id", "last-event-id"} <= set(allowed)


PAGE = {"origin": "http://localhost:6274"}


def raw(method: str | None = None, **headers: str) -> list[tuple[bytes, bytes]]:
    given = headers_of(request(method)) if method else {}
    given = {"host": "localhost:8080", **given, **headers}
    return [(name.encode(), value.encode()) for name, value in given.items()]


async def test_the_endpoint_answers_a_preflight_without_a_token() -> None:
    app = app_with(auth="jwt", jwt_secret="a secret that only this test knows, 32 bytes")
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization, mcp-name"}
    answer = await Client(app).send([], raw(**PAGE, **asked), method="OPTIONS")
    assert answer.status == 204
    assert answer.body == b""
    assert "content-length" not in answer.headers
    assert answer.headers["access-control-allow-origin"] == PAGE["origin"]
    assert answer.headers["access-control-allow-headers"] == "authorization, mcp-name"
    assert answer.headers["access-control-allow-methods"] == "GET, POST, DELETE"
    assert answer.headers["vary"] == "origin"


@pytest.mark.parametrize("more", [{}, {"origin": "http://evil.example"}, {"origin": "http://[::1"}])
async def test_the_endpoint_answers_no_other_options(more: dict[str, str]) -> None:
    answer = await Client(app_with()).send([], raw(**more), method="OPTIONS")
    assert answer.status == (403 if more else 405)
    assert "access-control-allow-origin" not in answer.headers
    assert "access-control-allow-headers" not in answer.headers


async def test_a_page_reads_errors_too() -> None:
    app = app_with(auth="jwt", jwt_secret="a secret that only this test knows, 32 bytes")
    unauthorized = await Client(app).post(request("tools/list"), **PAGE)
    assert unauthorized.status == 401
    assert unauthorized.headers["access-control-allow-origin"] == PAGE["origin"]
    assert "www-authenticate" in unauthorized.headers["access-control-expose-headers"]
    for message, status in ((request("no/such"), 404), (request("tools/call"), 400), (request("tools/list"), 200)):
        answer = await Client(app_with()).post(message, **PAGE)
        assert answer.status == status
        assert answer.headers["access-control-allow-origin"] == PAGE["origin"]


@pytest.mark.parametrize("more", [{"host": "evil.example"}, {"origin": "http://evil.example"}, {"origin": "null"}])
async def test_a_caller_that_is_not_allowed_is_refused_before_the_body_is_read(more: dict[str, str]) -> None:
    client = Client(app_with())
    answer = await client.send([b"{}"], raw("tools/list", **more))
    assert answer.status == 403
    assert answer.message["error"]["code"] == -32600
    named = "GATEWAY_ALLOWED_HOSTS" if "host" in more else "GATEWAY_ALLOWED_ORIGINS"
    assert answer.message["error"]["message"].endswith(named)
    assert answer.message["id"] is None
    assert client.asked_for == 0
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("name", ["host", "origin"])
async def test_a_host_that_comes_twice_is_refused_and_so_are_two_origins(name: str) -> None:
    twice = {"host": "localhost", "origin": "http://localhost"}[name].encode()
    headers = [*raw("tools/list", **PAGE), (name.encode(), twice)]
    answer = await Client(app_with()).send([b"{}"], headers)
    assert answer.status == (400 if name == "host" else 403)


async def test_health_checks_are_answered_for_any_host() -> None:
    for path in ("/healthz", "/readyz"):
        answer = await Client(app_with()).send([], raw(host="10.1.2.3:8080"), method="GET", path=path)
        assert answer.status == 200
