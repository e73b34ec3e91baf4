"""Fetching a key set from servers that behave, and from servers that do not."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.auth.fetch import Fetched, FetchFailed, fetch
from tests.certificates import make_certificate
from tests.identity import IdentityProvider, Request

SECONDS = 20.0
SHORT = 0.3


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as provider:
        yield provider


async def failure(url: str, seconds: float = SECONDS, max_bytes: int = 1000) -> str:
    with pytest.raises(FetchFailed) as caught:
        await fetch(url, seconds=seconds, max_bytes=max_bytes)
    return str(caught.value)


async def test_the_body_of_a_response_is_returned_and_the_request_names_us(provider: IdentityProvider) -> None:
    provider.send(b"{}")
    assert (await fetch(provider.url, seconds=SECONDS, max_bytes=2)).body == b"{}"
    assert provider.seen["User-Agent"].startswith("sealed-gateway/")
    assert "application/jwk-set+json" in provider.seen["Accept"]


async def test_a_chunked_body_is_put_together(provider: IdentityProvider) -> None:
    def answer(request: Request) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n")

    provider.answer(answer)
    assert (await fetch(provider.url, seconds=SECONDS, max_bytes=1000)).body == b"{}"


@pytest.mark.parametrize(
    ("headers", "told", "step"),
    [
        ([("Date", "Sun, 06 Nov 1994 08:49:37 GMT")], 784111777.0, 1.0),
        ([("Date", "Sun, 06 Nov 1994 08:49:37 GMT"), ("Age", "3600")], 784115377.0, 2.0),
    ],
    ids=["from the provider", "from a cache"],
)
async def test_a_response_contains_the_time(
    provider: IdentityProvider, headers: list[tuple[str, str]], told: float, step: float
) -> None:
    provider.answer(lambda request: undated(request, headers))
    before = time.time()
    reading = (await fetch(provider.url, seconds=SECONDS, max_bytes=1000)).time
    assert reading is not None
    assert (reading.told, reading.step) == (told, step)
    assert before <= reading.heard_at <= time.time()
    assert 0 < reading.took < SECONDS


@pytest.mark.parametrize(
    "headers",
    [[], [("Date", "yesterday")], [("Date", "Sun, 06 Nov 1994 08:49:37 GMT"), ("Age", "9" * 400)]],
    ids=["none", "no date", "no age"],
)
async def test_a_time_that_makes_no_sense_is_none(provider: IdentityProvider, headers: list[tuple[str, str]]) -> None:
    provider.answer(lambda request: undated(request, headers))
    assert await fetch(provider.url, seconds=SECONDS, max_bytes=1000) == Fetched(b"{}", None)


def undated(request: Request, headers: list[tuple[str, str]]) -> None:
    """Answer with only these headers."""
    lines = [f"{name}: {value}\r\n" for name, value in [*headers, ("Content-Length", "2")]]
    request.wfile.write(f"HTTP/1.1 200 OK\r\n{''.join(lines)}\r\n{{}}".encode())


@pytest.mark.parametrize("status", [201, 204, 400, 401, 404, 429, 500, 503])
async def test_only_200_counts(provider: IdentityProvider, status: int) -> None:
    provider.send(b"", status)
    assert await failure(provider.url) == f"HTTP {status}"


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_to_wherever_it_points(provider: IdentityProvider, status: int) -> None:
    with IdentityProvider() as elsewhere:
        for target in (elsewhere.url, provider.url, "file:///etc/passwd"):
            provider.send(b"", status, [("Location", target)])
            before = provider.requests
            assert await failure(provider.url) == f"HTTP {status}"
            assert provider.requests == before + 1
        assert elsewhere.requests == 0


async def test_a_body_may_be_as_large_as_the_limit_and_no_larger(provider: IdentityProvider) -> None:
    provider.send(b"x" * 1000)
    assert len((await fetch(provider.url, seconds=SECONDS, max_bytes=1000)).body) == 1000
    provider.send(b"x" * 1001)
    assert await failure(provider.url) == "the answer is larger than 1000 bytes"


async def test_an_endless_body_is_not_read_to_its_end(provider: IdentityProvider) -> None:
    def answer(request: Request) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not provider.stopping.is_set():
            request.wfile.write(b"x" * 65536)

    provider.answer(answer)
    assert await failure(provider.url) == "the answer is larger than 1000 bytes"


@pytest.mark.parametrize("in_head", [True, False])
async def test_a_server_that_drips_has_no_more_time_than_any_other(provider: IdentityProvider, in_head: bool) -> None:
    provider.drip(in_head=in_head)
    assert await failure(provider.url, SHORT) == f"no answer within {SHORT:g} seconds"
    await asyncio.to_thread(provider.wait_for_leaving)


async def test_a_silent_server_times_out(provider: IdentityProvider) -> None:
    def answer(_request: Request) -> None:
        provider.stopping.wait(SECONDS)

    provider.answer(answer)
    assert await failure(provider.url, SHORT) == f"no answer within {SHORT:g} seconds"


async def test_a_fetch_that_is_cancelled_ends_its_connection(provider: IdentityProvider) -> None:
    provider.drip(in_head=False)
    fetching = asyncio.create_task(fetch(provider.url, seconds=SECONDS, max_bytes=10**9))
    await asyncio.to_thread(provider.wait_for_request, 1)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    await asyncio.to_thread(provider.wait_for_leaving)


@pytest.mark.parametrize(
    "answer",
    [b"", b"garbage\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"],
)
async def test_anything_but_http_is_a_failure(provider: IdentityProvider, answer: bytes) -> None:
    def send(request: Request) -> None:
        request.wfile.write(answer)

    provider.answer(send)
    assert await failure(provider.url)


async def test_a_head_without_end_is_a_failure(provider: IdentityProvider) -> None:
    def answer(request: Request) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(1000)))

    provider.answer(answer)
    assert await failure(provider.url)


async def test_nobody_there_is_a_failure() -> None:
    with IdentityProvider() as gone:
        url = gone.url
    assert await failure(url) == "Connection refused"


async def test_proxies_are_for_other_machines_only(provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", provider.url)
    monkeypatch.setenv("no_proxy", "")
    provider.send(b"{}")
    with IdentityProvider() as gone:
        url = gone.url
    assert await failure(url) == "Connection refused"
    assert (await fetch("http://id.example.test/keys", seconds=SECONDS, max_bytes=10)).body == b"{}"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return make_certificate(tmp_path)


async def test_a_certificate_must_be_trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with IdentityProvider(tls=tls) as provider:
        provider.send(b"{}")
        assert "the certificate is not accepted" in await failure(provider.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert (await fetch(provider.url, seconds=SECONDS, max_bytes=10)).body == b"{}"
        provider.drip(in_head=False)
        assert await failure(provider.url, SHORT) == f"no answer within {SHORT:g} seconds"
        assert "the certificate is not accepted" in await failure(provider.url.replace("127.0.0.1", "localhost"))
        await asyncio.to_thread(provider.wait_for_leaving)
