"""The client on the event loop that replicas use."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import uvloop

from gateway.http_client.client import HttpClient
from gateway.http_client.failures import HttpFailure, HttpReason
from gateway.http_client.tls import TlsFiles
from tests.certificates import make_certificate
from tests.http_client.peers import OK, always, ask, serving, then_silence


@pytest.mark.parametrize("encrypted", [False, True])
def test_requests_are_sent_reused_and_cut_on_uvloop(tmp_path: Path, encrypted: bool) -> None:
    certificate = make_certificate(tmp_path)
    tls = None
    if encrypted:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)

    async def run() -> None:
        scheme = "https" if encrypted else "http"
        async with serving(always(OK), tls=tls) as peer:
            client = HttpClient(peer.url(scheme), tls=TlsFiles(ca=certificate))
            for _ in range(3):
                assert await ask(client) == b"ok"
            assert len(peer.talks) == 1
            await client.aclose()
            await peer.talks[0].is_over.wait()
        async with serving(then_silence(), tls=tls) as peer:
            client = HttpClient(peer.url(scheme), tls=TlsFiles(ca=certificate))
            with pytest.raises(HttpFailure) as caught:
                await ask(client, seconds=0.1)
            assert (caught.value.reason, caught.value.sent) == (HttpReason.TIMED_OUT, True)
            await peer.talks[0].is_over.wait()

    uvloop.run(run())
