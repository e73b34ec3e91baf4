"""TLS: who is trusted, who is shown what, and files that change."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import pytest

from gateway.http_client.client import HttpClient
from gateway.http_client.failures import HttpFailure, HttpReason
from gateway.http_client.tls import TlsFiles
from tests.certificates import make_certificate
from tests.http_client.peers import OK, Talk, always, ask, once, serving


def made(directory: Path, host: str = "127.0.0.1") -> Path:
    directory.mkdir()
    return make_certificate(directory, host)


def server(certificate: Path, *, clients: Path | None = None, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients)
    if version is not None:
        context.maximum_version = version
    return context


def ending(path: Path, end: str) -> Path:
    """Write something to the end of a file, and return it."""
    with path.open("a") as file:
        file.write(end)
    return path


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def test_a_certificate_of_a_given_authority_is_accepted(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    async with serving(always(OK), tls=server(certificate)) as peer:
        client = peer.closing(HttpClient(peer.url("https"), tls=TlsFiles(ca=certificate)))
        assert [await ask(client), await ask(client)] == [b"ok", b"ok"]
        assert len(peer.talks) == 1


async def test_the_name_in_the_url_is_the_one_that_is_checked(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "upstream.example")
    async with serving(always(OK), tls=server(certificate)) as peer:
        client = HttpClient(peer.url("https", "upstream.example"), tls=TlsFiles(ca=certificate), resolve=loopback)
        assert await ask(client) == b"ok"
        await client.aclose()
        other = HttpClient(peer.url("https", "other.example"), tls=TlsFiles(ca=certificate), resolve=loopback)
        with pytest.raises(HttpFailure) as caught:
            await ask(other)
        assert (caught.value.reason, caught.value.sent) == (HttpReason.UNREACHABLE, False)
        assert "upstream.example" not in caught.value.detail
        assert "other.example" in caught.value.detail
        assert len(peer.requests) == 1


@pytest.mark.parametrize("trusts_another", [True, False])
async def test_a_certificate_of_another_authority_is_refused(tmp_path: Path, trusts_another: bool) -> None:
    certificate, another = made(tmp_path / "one"), made(tmp_path / "two")
    async with serving(always(OK), tls=server(certificate)) as peer:
        client = HttpClient(peer.url("https"), tls=TlsFiles(ca=another) if trusts_another else TlsFiles())
        with pytest.raises(HttpFailure) as caught:
            await ask(client)
        assert (caught.value.reason, caught.value.sent) == (HttpReason.UNREACHABLE, False)
        assert "certificate" in caught.value.detail
        assert not peer.requests


async def test_a_client_certificate_is_presented(tmp_path: Path) -> None:
    certificate, ours = made(tmp_path / "one"), made(tmp_path / "ours", "gateway.example")
    async with serving(always(OK), tls=server(certificate, clients=ours)) as peer:
        client = peer.closing(HttpClient(peer.url("https"), tls=TlsFiles(ca=certificate, cert=ours)))
        assert await ask(client) == b"ok"


@pytest.mark.parametrize("end", ["\n\n", "\r\n", " \n", "\t"], ids=repr)
async def test_files_may_end_in_blanks_and_line_ends(tmp_path: Path, end: str) -> None:
    certificate, ours = ending(made(tmp_path / "one"), end), ending(made(tmp_path / "ours", "gateway.example"), end)
    async with serving(always(OK), tls=server(certificate, clients=ours)) as peer:
        client = peer.closing(HttpClient(peer.url("https"), tls=TlsFiles(ca=certificate, cert=ours)))
        assert await ask(client) == b"ok"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_missing_client_certificate_is_a_failure(tmp_path: Path, version: ssl.TLSVersion) -> None:
    certificate, ours = made(tmp_path / "one"), made(tmp_path / "ours", "gateway.example")
    async with serving(always(OK), tls=server(certificate, clients=ours, version=version)) as peer:
        with pytest.raises(HttpFailure) as caught:
            await ask(HttpClient(peer.url("https"), tls=TlsFiles(ca=certificate)))
        # With TLS 1.3 the refusal comes after the request.
        is_late = version is ssl.TLSVersion.TLSv1_3
        assert (caught.value.reason, caught.value.sent) == (
            HttpReason.CUT if is_late else HttpReason.UNREACHABLE,
            is_late,
        )
        assert not peer.requests


async def test_tls_1_1_is_refused(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    old = server(certificate)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = ssl.TLSVersion.TLSv1_1
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    async with serving(always(OK), tls=old) as peer:
        with pytest.raises(HttpFailure) as caught:
            await ask(HttpClient(peer.url("https"), tls=TlsFiles(ca=certificate)))
        assert (caught.value.reason, caught.value.sent) == (HttpReason.UNREACHABLE, False)


async def test_a_server_without_tls_is_not_sent_anything(tmp_path: Path) -> None:
    async def banner(talk: Talk) -> None:
        await talk.send(b"220 mail.example ESMTP\r\n")
        await talk.until_closed()

    async with serving(banner) as peer:
        with pytest.raises(HttpFailure) as caught:
            await ask(HttpClient(peer.url("https"), tls=TlsFiles(ca=make_certificate(tmp_path))))
        assert (caught.value.reason, caught.value.sent) == (HttpReason.UNREACHABLE, False)


async def test_files_that_were_replaced_are_used_for_new_connections(tmp_path: Path) -> None:
    certificate, renewed = made(tmp_path / "one"), made(tmp_path / "two")
    trusted = tmp_path / "trusted.pem"
    shutil.copy(certificate, trusted)
    async with serving(once(OK), tls=server(certificate)) as before, serving(once(OK), tls=server(renewed)) as after:
        client = HttpClient(before.url("https"), tls=TlsFiles(ca=trusted))
        later = HttpClient(after.url("https"), tls=TlsFiles(ca=trusted))
        assert await ask(client) == b"ok"
        with pytest.raises(HttpFailure):
            await ask(later)
        shutil.copy(renewed, trusted)
        assert await ask(later) == b"ok"
        trusted.write_text("half a file")
        assert await ask(later) == b"ok"
        trusted.unlink()
        assert await ask(later) == b"ok"


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    certificate, missing = make_certificate(tmp_path), tmp_path / "missing.pem"
    without_key = tmp_path / "public.pem"
    without_key.write_text(certificate.read_text().partition("-----BEGIN CERT")[2])
    url = "https://upstream.example/"
    with pytest.raises(ValueError, match=r"missing\.pem: No such file"):
        HttpClient(url, tls=TlsFiles(ca=missing))
    with pytest.raises(ValueError, match=r"public\.pem"):
        HttpClient(url, tls=TlsFiles(ca=without_key))
    with pytest.raises(ValueError, match=r"public\.pem"):
        HttpClient(url, tls=TlsFiles(cert=without_key))
    with pytest.raises(ValueError, match="needs a certificate"):
        HttpClient(url, tls=TlsFiles(key=certificate))
