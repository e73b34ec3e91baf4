"""The three proxies with the shipped configurations, in which only addresses and a test's own changes differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import httpx

from loadtest.cluster.balancer import EVERYTHING
from loadtest.cluster.common import HOST, LoggedProcess, find_program
from tests.deploy.files import DEPLOY

Address = tuple[str, int]
PATIENCE = "90s"


def changed(text: str, changes: Mapping[str, str]) -> str:
    """Return a configuration with each of these parts replaced. Each occurs once."""
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


class Front(LoggedProcess):
    """A proxy in front of replicas.

    Args:
        directory: where its files go.
        replicas: where the replicas are.
        certificate: a file with a certificate and its key, to serve TLS and HTTP/2.
        silence_seconds: how long a connection may be silent, instead of the time in the shipped file.

    Attributes:
        program: its name, which is that of its Debian package and of its section in `docs/run/load.md`.
        config: the shipped file.
        silence: the settings that limit silence.
        sees_leaving: whether it sends nothing more to a replica whose `/readyz` answers 503.
        repeats_refused: whether it asks another replica when one answers 503.
        repeats_lost: whether it sends a request again whose replica was lost.
        lost_status: the status with which it says so.
        explains_heads: whether a head that is too large is refused in JSON.
        limits_bodies: whether it refuses large bodies itself, so that a client which still sends gets the answer.
    """

    program: ClassVar[str]
    config: ClassVar[Path]
    silence: ClassVar[Sequence[str]]
    sees_leaving: ClassVar[bool] = True
    repeats_refused: ClassVar[bool] = True
    repeats_lost: ClassVar[bool] = False
    lost_status: ClassVar[int] = 504
    explains_heads: ClassVar[bool] = True
    limits_bodies: ClassVar[bool] = False

    def __init__(
        self,
        directory: Path,
        replicas: Sequence[Address],
        *,
        certificate: Path | None = None,
        silence_seconds: int | None = None,
    ) -> None:
        super().__init__(self.program, {}, directory / f"{self.program}.log")
        self.replicas = [f"{host}:{port}" for host, port in replicas]
        self.certificate = certificate
        self.netloc = f"{HOST}:{self._keep_port()}"
        self.path = directory / self.config.name
        text = self.config.read_text()
        if silence_seconds is not None:
            text = changed(text, {f"{name} {PATIENCE}": f"{name} {silence_seconds}s" for name in self.silence})
        self.path.write_text(self._placed(text))

    def _placed(self, text: str) -> str:
        """Return the configuration with the addresses of this site."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        """The MCP endpoint."""
        return f"{'http' if self.certificate is None else 'https'}://{self.netloc}/mcp"

    @property
    def closed_unsent(self) -> int:
        """How many requests it has dropped, without a response, before it sent them to a replica."""
        return 0

    def wait_ready(self) -> None:
        """Wait until it sends requests to a replica."""
        self._wait_started(self._serves)

    def _serves(self) -> bool:
        try:
            answer = httpx.get(self.url.replace("/mcp", "/readyz"), trust_env=False, verify=False, timeout=5)
        except httpx.HTTPError:
            return False
        return answer.status_code == 200


class HAProxy(Front):
    """HAProxy, with the list of a deployment without upstreams."""

    program = "haproxy"
    config = DEPLOY / "haproxy.cfg"
    silence = ("timeout client", "timeout server")
    repeats_lost = True
    lost_status = 502
    own: ClassVar[str | None] = EVERYTHING
    """The list of requests that it may send again, or None for none."""

    @property
    def closed_unsent(self) -> int:
        """How many requests were about to go to a replica in the moment in which that one was marked as down."""
        return self.log_path.read_text().count(" DC-- ")

    def _placed(self, text: str) -> str:
        self.environ |= {
            "GATEWAY_BALANCER_BIND": self.netloc,
            "GATEWAY_BALANCER_METRICS": f"{HOST}:{self._keep_port()}",
        }
        if self.own is not None:
            listed = self.path.parent / "own.lst"
            listed.write_text(self.own)
            self.environ["GATEWAY_BALANCER_OWN"] = str(listed)
        template = 'server-template replica 1-16 "${GATEWAY_BALANCER_REPLICAS-gateway:8080}"'
        servers = "\n    ".join(f"server r{number} {address}" for number, address in enumerate(self.replicas, 1))
        assert text.count(template) == 2
        text = text.replace(template, servers)
        if self.certificate is None:
            return text
        changes = {
            'bind "${GATEWAY_BALANCER_BIND-:8080}" tcp-ut 12s\n': "",
            "# With TLS: bind :443": f"bind {self.netloc}",
            "/etc/haproxy/site.pem": str(self.certificate),
        }
        return changed(text, changes)

    def _command(self) -> Sequence[str]:
        return [find_program("haproxy", package="haproxy"), "-db", "-f", str(self.path)]


class Nginx(Front):
    """nginx, as this user: without the system's paths for logs and temporary files."""

    program = "nginx"
    config = DEPLOY / "nginx.conf"
    silence = ("proxy_read_timeout",)
    sees_leaving = False
    limits_bodies = True

    def _placed(self, text: str) -> str:
        own = self.path.parent
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        temporary = "".join(f"    {kind}_temp_path {own}/{kind};\n" for kind in kinds)
        changes = {"\nhttp {\n": f"\nhttp {{\n    access_log {own}/access.log;\n{temporary}", "auto;": "2;"}
        if self.certificate is None:
            changes["listen 8080;"] = f"listen {self.netloc};"
        else:
            changes |= {
                "        listen 8080;\n": "",
                "# listen 443": f"listen {self.netloc}",
                "# ssl_certificate /etc/nginx/site.pem": f"ssl_certificate {self.certificate}",
                "# ssl_certificate_key /etc/nginx/site.key": f"ssl_certificate_key {self.certificate}",
            }
        for number, address in enumerate(self.replicas, 1):
            assert text.count(f"gateway-{number}:8080") == 2
            text = text.replace(f"gateway-{number}:8080", address)
        return changed(text, changes)

    def _command(self) -> Sequence[str]:
        own = self.path.parent
        settings = f"daemon off; pid {own}/nginx.pid;"
        program = find_program("nginx", package="nginx")
        return [program, "-p", str(own), "-c", str(self.path), "-e", "stderr", "-g", settings]


class Caddy(Front):
    """Caddy."""

    program = "caddy"
    config = DEPLOY / "Caddyfile"
    silence = ("response_header_timeout", "read_timeout")
    repeats_refused = False
    explains_heads = False

    def _placed(self, text: str) -> str:
        own = self.path.parent
        self.environ |= {"GATEWAY_BALANCER_REPLICAS": " ".join(self.replicas), "XDG_CONFIG_HOME": str(own)}
        self.environ |= {"GATEWAY_BALANCER_BIND": self.url.removesuffix("/mcp"), "XDG_DATA_HOME": str(own)}
        if self.certificate is None:
            # An address with a host would serve no other one.
            self.environ["GATEWAY_BALANCER_BIND"] = f":{self.netloc.rpartition(':')[2]}"
            return changed(text, {"BIND::8080} {": f"BIND::8080}} {{\n\tbind {HOST}"})
        # A test must not take port 80, from where Caddy sends browsers to HTTPS.
        changes = {"admin off": "admin off\n\tauto_https disable_redirects", "# tls /etc": "tls /etc"}
        files = {"/etc/caddy/site.pem": str(self.certificate), "/etc/caddy/site.key": str(self.certificate)}
        return changed(text, changes | files)

    def _command(self) -> Sequence[str]:
        program = find_program("caddy", package="caddy")
        return [program, "run", "--adapter", "caddyfile", "--config", str(self.path)]


class HAProxyWithoutList(HAProxy):
    """HAProxy as it is for a deployment whose calls may all reach an upstream."""

    repeats_lost = False
    own = None


PROXIES = (HAProxy, Nginx, Caddy)
ALL_FILES = (*PROXIES, HAProxyWithoutList)
