"""A message goes to every address of every peer, sealed again each time. A slow lookup does not block it for long."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.http_client.tls import contexts_of_system
from gateway.observability.metrics import Telemetry
from gateway.tokens.hop_messages import HOP_PATH
from gateway.web import peers
from gateway.web.hop import HopClient
from gateway.web.peers import MAX_PEERS, Lookup, Peers, look_up
from tests.certificates import make_certificate

NAME = "replicas.test"
ANSWERED = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class Network:
    """Replicas at several loopback addresses, on one port, and names for them.

    Attributes:
        seen: address, `Host` and body of each message.
        names: the addresses of each name.
        looked_up: each name that was asked for.
        now: what the clock says.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bytes]] = []
        self.names: dict[str, list[str]] = {}
        self.looked_up: list[str] = []
        self.now = 0.0
        self.port = 0
        self.telemetry = Telemetry()
        self._numbers = itertools.count()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            assert head.startswith(f"post {HOP_PATH} http/1.1\r\n")
            fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:-2])
            body = await reader.readexactly(int(fields["content-length"]))
            self.seen.append((writer.get_extra_info("sockname")[0], fields["host"], body))
            writer.write(ANSWERED)
            await writer.drain()
        writer.close()

    def look_up(self, host: str, port: int) -> list[str]:
        assert port == self.port
        self.looked_up.append(host)
        if host not in self.names:
            raise socket.gaierror
        return self.names[host]

    def seal(self) -> bytes:
        return b"sealed %d" % next(self._numbers)

    def peers(self, *urls: str, own_url: str | None = None, lookup: Lookup | None = None) -> Peers:
        return Peers(urls, own_url, HopClient(), self.telemetry, clock=lambda: self.now, look_up=lookup or self.look_up)

    def counted(self, result: str) -> float:
        return self.telemetry.registry.get_sample_value("gateway_hop_messages_sent_total", {"result": result}) or 0.0


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    network = Network()
    async with contextlib.AsyncExitStack() as stack:
        for address in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
            server = await asyncio.start_server(network.serve, address, network.port)
            stack.callback(server.close)
            network.port = server.sockets[0].getsockname()[1]
        yield network


async def test_a_name_stands_for_all_its_addresses(network: Network) -> None:
    network.names[NAME] = ["127.0.0.1", "127.0.0.3"]
    assert await network.peers(f"http://{NAME}:{network.port}").send(network.seal)
    assert sorted(address for address, _, _ in network.seen) == ["127.0.0.1", "127.0.0.3"]
    assert {host for _, host, _ in network.seen} == {f"{NAME}:{network.port}"}
    assert len({body for _, _, body in network.seen}) == 2
    assert network.counted("answered") == 2


async def test_a_list_of_urls_goes_to_all_but_this_replica(network: Network) -> None:
    network.names = {address: [address] for address in ("127.0.0.1", "127.0.0.2", "127.0.0.3")}
    urls = [f"http://{address}:{network.port}" for address in network.names]
    assert await network.peers(*urls, urls[0], own_url=urls[1]).send(network.seal)
    assert sorted(address for address, _, _ in network.seen) == ["127.0.0.1", "127.0.0.3"]


async def test_an_unreachable_peer_is_logged_and_does_not_block_the_others(network: Network) -> None:
    network.names[NAME] = ["127.0.0.1", "127.0.0.9", "127.0.0.2"]
    assert not await network.peers(f"http://{NAME}:{network.port}").send(network.seal)
    assert len(network.seen) == 2
    assert (network.counted("answered"), network.counted("failed")) == (2, 1)


async def test_addresses_are_looked_up_again_after_a_while_and_not_before(network: Network) -> None:
    network.names[NAME] = ["127.0.0.1"]
    sender = network.peers(f"http://{NAME}:{network.port}")
    for now, addresses in ((0.0, 1), (4.9, 1), (5.1, 2)):
        network.now = now
        network.seen.clear()
        assert await sender.send(network.seal)
        assert len(network.seen) == addresses
        network.names[NAME] = ["127.0.0.1", "127.0.0.2"]
    assert network.looked_up == [NAME, NAME]


async def test_what_was_found_last_counts_while_nobody_knows(network: Network) -> None:
    network.names[NAME] = ["127.0.0.1"]
    sender = network.peers(f"http://{NAME}:{network.port}", f"http://unknown.test:{network.port}")
    assert not await sender.send(network.seal), "nobody knows of one of the names"
    del network.names[NAME]
    network.now = 100.0
    assert not await sender.send(network.seal)
    assert [address for address, _, _ in network.seen] == ["127.0.0.1"] * 2


async def test_a_lookup_that_hangs_is_not_waited_for_and_not_begun_twice(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "LOOKUP_SECONDS", 0.05)
    answers = threading.Event()
    begun: list[str] = []

    def hang(host: str, _port: int) -> list[str]:
        begun.append(host)
        assert answers.wait(20)
        return ["127.0.0.1"]

    sender = network.peers(f"http://{NAME}:{network.port}", lookup=hang)
    async with sender.listening(print):
        for _ in range(3):
            assert not await sender.send(network.seal)
        assert begun == [NAME]
        answers.set()
        monkeypatch.setattr(peers, "LOOKUP_SECONDS", 20)
        assert await sender.send(network.seal)
    assert len(network.seen) == 1


async def test_a_name_with_too_many_addresses_is_not_followed_to_all(network: Network) -> None:
    network.names[NAME] = [f"127.0.1.{number}" for number in range(MAX_PEERS + 5)]
    await network.peers(f"http://{NAME}:{network.port}").send(network.seal)
    assert network.counted("failed") == MAX_PEERS


async def test_what_not_all_addresses_were_sent_is_not_delivered(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.web.peers.MAX_PEERS", 2)
    network.names[NAME] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    assert not await network.peers(f"http://{NAME}:{network.port}").send(network.seal)
    assert len(network.seen) == 2


def test_the_system_knows_the_addresses_of_a_name() -> None:
    assert look_up("127.0.0.1", 80) == ["127.0.0.1"]
    assert set(look_up("localhost", 80)) & {"127.0.0.1", "::1"}


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ssl.SSLContext]:
    """Return the TLS context of a server whose certificate for this name is trusted by clients."""
    certificate = make_certificate(tmp_path, NAME)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    contexts_of_system.cache_clear()
    yield context
    contexts_of_system.cache_clear()


async def test_a_certificate_is_that_of_the_name_and_not_of_the_address(
    network: Network, certificate: ssl.SSLContext
) -> None:
    server = await asyncio.start_server(network.serve, "127.0.0.1", 0, ssl=certificate)
    network.port = server.sockets[0].getsockname()[1]
    network.names = {name: ["127.0.0.1"] for name in (NAME, "other.test")}
    try:
        assert await network.peers(f"https://{NAME}:{network.port}").send(network.seal)
        assert not await network.peers(f"https://other.test:{network.port}").send(network.seal)
    finally:
        server.close()
    assert len(network.seen) == 1
