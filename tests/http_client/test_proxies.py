"""Proxies: the one of the definition is used, and that of the environment only if the definition says so."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.http_client.addresses import AddressRule
from gateway.http_client.client import HttpClient
from gateway.http_client.failures import HttpFailure, HttpReason
from gateway.http_client.tls import TlsFiles
from tests.certificates import make_certificate
from tests.http_client.peers import OK, Peer, Script, Talk, always, ask, once, serving, then_silence
from tests.http_client.test_tls import server

GOOD_NAME = "upstream.example"


def tunnel_to(upstream: Peer, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> Script:
    """Make each tunnel end at one upstream, whatever address was named."""

    async def script(talk: Talk) -> None:
        await talk.request()
        reader, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
        await talk.send(answer)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                while data := await source.read(65536):
                    target.write(data)
            target.close()

        try:
            await asyncio.gather(copy(talk.reader, writer), copy(reader, talk.writer))
        finally:
            writer.close()

    return script


async def nowhere(host: str, port: int) -> list[str]:
    raise AssertionError(f"{host} was resolved")


async def test_plain_requests_go_to_the_proxy_with_the_whole_url() -> None:
    async with serving(always(OK)) as proxy:
        url = f"http://us%2Ber:p%40ss@127.0.0.1:{proxy.port}"
        client = proxy.closing(HttpClient("http://upstream.example/mcp?a=1", proxy=url, resolve=nowhere))
        assert [await ask(client), await ask(client)] == [b"ok", b"ok"]
        first = proxy.requests[0]
        assert first.line == "POST http://upstream.example/mcp?a=1 HTTP/1.1"
        assert first.values("host") == ["upstream.example"]
        assert first.values("proxy-authorization") == ["Basic dXMrZXI6cEBzcw=="]
        assert len(proxy.talks) == 1


@pytest.mark.parametrize("encrypted_proxy", [False, True])
@pytest.mark.parametrize("length", [b"", b"Content-Length: 0\r\n"])
async def test_encrypted_requests_go_through_a_tunnel(tmp_path: Path, encrypted_proxy: bool, length: bytes) -> None:
    (tmp_path / "proxy").mkdir()
    certificate, certificate_of_proxy = make_certificate(tmp_path, GOOD_NAME), make_certificate(tmp_path / "proxy")
    both = tmp_path / "both.pem"
    both.write_text(certificate.read_text() + certificate_of_proxy.read_text())
    answer = b"HTTP/1.1 200 Connection established\r\n" + length + b"\r\n"
    tls = server(certificate_of_proxy) if encrypted_proxy else None
    async with (
        serving(always(OK), tls=server(certificate)) as upstream,
        serving(tunnel_to(upstream, answer), tls=tls) as proxy,
    ):
        url = f"{'https' if encrypted_proxy else 'http'}://user:secret@127.0.0.1:{proxy.port}"
        client = HttpClient("https://upstream.example/mcp", tls=TlsFiles(ca=both), proxy=url, resolve=nowhere)
        assert [await ask(client), await ask(client)] == [b"ok", b"ok"]
        (asked,) = proxy.requests
        assert asked.line == "CONNECT upstream.example:443 HTTP/1.1"
        assert asked.values("proxy-authorization") == ["Basic dXNlcjpzZWNyZXQ="]
        assert [received.line for received in upstream.requests] == ["POST /mcp HTTP/1.1"] * 2
        assert upstream.requests[0].values("proxy-authorization") == []
        await client.aclose()


async def test_a_proxy_cannot_pose_as_the_upstream(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "proxy.example")
    async with (
        serving(always(OK), tls=server(certificate)) as other,
        serving(tunnel_to(other)) as proxy,
    ):
        client = HttpClient("https://upstream.example/", tls=TlsFiles(ca=certificate), proxy=proxy.url(path=""))
        with pytest.raises(HttpFailure) as caught:
            await ask(client)
        assert (caught.value.reason, caught.value.sent) == (HttpReason.UNREACHABLE, False)
        assert not other.requests


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        (always(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"), "status 407"),
        (always(b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"), "status 302"),
        (once(), "closed the connection"),
        (once(b"SSH-2.0\r\n"), "not a valid HTTP/1.1 response"),
        (once(b"HTTP/1.1 200 OK\r\n\r\n"), ""),
        (once(b"HTTP/1.1 200 OK\r\n\r\nnot TLS"), ""),
    ],
)
async def test_a_proxy_that_makes_no_tunnel_is_a_failure_before_sending(script: Script, detail: str) -> None:
    async with serving(script) as proxy:
        client = HttpClient("https://upstream.example/", proxy=proxy.url(path=""))
        with pytest.raises(HttpFailure) as caught:
            await ask(client)
        assert (caught.value.reason, caught.value.sent) == (HttpReason.UNREACHABLE, False)
        assert detail in caught.value.detail
        await asyncio.gather(*(talk.is_over.wait() for talk in proxy.talks))


@pytest.mark.parametrize("pieces", [(), (b"HTTP/1.1 200 OK\r\n\r\n",)])
async def test_a_silent_proxy_ends_at_the_deadline(pieces: tuple[bytes, ...]) -> None:
    async with serving(then_silence(*pieces)) as proxy:
        client = HttpClient("https://upstream.example/", proxy=proxy.url(path=""))
        with pytest.raises(HttpFailure) as caught:
            await ask(client, seconds=0.1)
        assert (caught.value.reason, caught.value.sent) == (HttpReason.UNREACHABLE, False)
        await proxy.talks[0].is_over.wait()


async def test_a_url_of_somebody_else_reaches_no_private_address_through_a_proxy() -> None:
    async def private(host: str, port: int) -> list[str]:
        return ["10.0.0.1"] if host == GOOD_NAME else ["127.0.0.1"]

    async with serving(always(OK)) as proxy:
        client = HttpClient(
            "https://upstream.example/", proxy=proxy.url(path=""), rule=AddressRule.GLOBAL, resolve=private
        )
        with pytest.raises(HttpFailure) as caught:
            await ask(client)
        assert (caught.value.reason, caught.value.sent) == (HttpReason.REFUSED_ADDRESS, False)
        assert not proxy.requests
    with pytest.raises(ValueError, match="must be https"):
        HttpClient("http://upstream.example/", proxy="http://proxy.example", rule=AddressRule.GLOBAL)
