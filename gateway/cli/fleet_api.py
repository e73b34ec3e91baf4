"""The API of the playground for the processes of `gateway dev`.

The parent answers it itself, so it works while all replicas are down. Only pages of this run may use it.
The connection and the host are loopback, the page has the same origin, and each request has the token of the run. The
token is in the address of the page that the run prints, behind `#`: no server gets that part, and no other user of the
machine reads it.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec
from typing_extensions import override

from gateway.cli.fleet import CannotDo, Fleet, Kind, Member
from gateway.cli.fleet_metrics import FleetMetrics
from gateway.cli.round_robin import FLEET, Address, Backends, Stream, finish
from gateway.settings.hosts import is_loopback, without_port
from gateway.web.playground.headers import HEADERS

RUN_HEADER: Final = "x-fleet-token"
FRAGMENT: Final = "fleet="
"""What the token follows in the address of the page."""
MAX_HEAD_BYTES: Final = 16384
READ_SECONDS: Final = 5.0

_PATH: Final = re.compile(r"/(replicas|holders|workers)/([A-Za-z0-9_-]{1,32})/(stop|kill|start)")
_KINDS: Final[Mapping[str, Kind]] = {"/replicas": "replica", "/workers": "worker"}


class FleetRefusal(Exception):
    """A request that is not answered, with its status and a message for people."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class _FleetRequest:
    method: str
    path: str
    headers: Mapping[str, str]


class FleetApi(Backends):
    """Answers requests about the processes of a run.

    `has_store` says whether this run has a task store of its own.
    """

    def __init__(self, fleet: Fleet, *, has_store: bool) -> None:
        self._fleet = fleet
        self._has_store = has_store
        self._token = secrets.token_urlsafe(32)
        self._metrics = FleetMetrics()

    def page_of(self, origin: str) -> str:
        """Return the address of the page that may control the processes."""
        return f"{origin}/#{FRAGMENT}{self._token}"

    @override
    def addresses(self) -> Sequence[Address]:
        return self._fleet.addresses()

    @override
    def address_of(self, name: str) -> Address | None:
        return self._fleet.address_of(name)

    @override
    async def answer(self, head: bytes, client: Stream) -> None:
        reader, writer = client
        try:
            request = await _read_request(head, reader)
            self._check(request, writer.get_extra_info("peername"))
            status, body = HTTPStatus.OK, await self._respond(request)
        except FleetRefusal as refused:
            status, body = refused.status, {"error": str(refused)}
        except CannotDo as problem:
            status, body = HTTPStatus.CONFLICT, {"error": str(problem)}
        writer.write(_response(status, body))
        await finish(client)

    def _check(self, request: _FleetRequest, peer: Any) -> None:
        """Refuse requests from other machines, other sites, and rebound names."""
        host = request.headers.get("host", "")
        name = without_port(host.lower())
        if not (isinstance(peer, tuple) and is_loopback(peer[0])) or name is None or not is_loopback(name):
            raise FleetRefusal(HTTPStatus.FORBIDDEN, "Only this machine controls the processes")
        origin = request.headers.get("origin")
        if origin not in (None, f"http://{host}"):
            raise FleetRefusal(HTTPStatus.FORBIDDEN, "Another page may not control the processes")
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise FleetRefusal(HTTPStatus.FORBIDDEN, "Another site may not control the processes")
        if not hmac.compare_digest(request.headers.get(RUN_HEADER, "").encode(), self._token.encode()):
            raise FleetRefusal(
                HTTPStatus.FORBIDDEN, "This page has not the token of this run; open the address that it printed"
            )

    async def _respond(self, request: _FleetRequest) -> Any:
        if request.method == "GET":
            if request.path == "":
                return await self._state()
        elif request.method == "POST":
            return await self._order(request.path)
        else:
            raise FleetRefusal(HTTPStatus.METHOD_NOT_ALLOWED, "Use GET or POST")
        raise FleetRefusal(HTTPStatus.NOT_FOUND, "There is nothing here")

    async def _order(self, path: str) -> Any:
        fleet = self._fleet
        if path == "/keys/rotate":
            return {"said": fleet.rotate_keys(), **await self._state()}
        if path == "/release":
            return {"said": f"Release {fleet.switch_release()} is rolled out", **await self._state()}
        if path in _KINDS:
            return {"said": f"{fleet.add(_KINDS[path])} starts", **await self._state()}
        found = _PATH.fullmatch(path)
        if found is None:
            raise FleetRefusal(HTTPStatus.NOT_FOUND, "There is nothing here")
        kind, name, what = found.groups()
        member = fleet.members.get(name)
        if member is None or f"{member.kind}s" != kind:
            raise FleetRefusal(HTTPStatus.NOT_FOUND, f"There is no process with the name {name}")
        fleet.order(name, what)
        return await self._state()

    async def _state(self) -> dict[str, Any]:
        members = list(self._fleet.members.values())
        running = [each for each in members if each.child.state == "ready"]  # others would keep the page waiting
        loads = await self._metrics.read({each.child.name: each.metrics for each in running if each.metrics})
        return {
            **{
                f"{kind}s": [_shown(each) | loads.get(each.child.name, {}) for each in members if each.kind == kind]
                for kind in ("replica", "holder")
            },
            "workers": [_shown(each) for each in members if each.kind == "worker"],
            "store": {"state": "running" if self._has_store else "external"},
            "keys": self._keys(),
            "release": self._fleet.release,
        }

    def _keys(self) -> list[dict[str, Any]]:
        keys = [] if self._fleet.keys is None else self._fleet.keys.ids
        return [{"id": key, "role": "opens" if place else "seals"} for place, key in enumerate(keys)]


def _shown(member: Member) -> dict[str, Any]:
    child = member.child
    process = child.process
    return {
        "id": child.name,
        "state": child.state,
        "pid": None if process is None else process.pid,
        "restarts": max(0, child.starts - 1),
    }


async def _read_request(head: bytes, reader: asyncio.StreamReader) -> _FleetRequest:
    """Read the head of a request. Orders have no body, so a body is not read.

    Raises:
        FleetRefusal: the head is too large, too slow or not valid.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(READ_SECONDS):
            while b"\r\n\r\n" not in head:
                more = await reader.read(MAX_HEAD_BYTES)
                head += more
                if not more or len(head) > MAX_HEAD_BYTES:
                    break
    lines = head.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if b"\r\n\r\n" not in head or len(parts) != len(("method", "target", "version")):
        raise FleetRefusal(HTTPStatus.BAD_REQUEST, "Not a valid HTTP/1.1 request")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if headers.setdefault(name.lower(), value.strip()) != value.strip():
            raise FleetRefusal(HTTPStatus.BAD_REQUEST, f"The header {name} comes twice")
    target = parts[1].partition("?")[0]
    return _FleetRequest(parts[0], target.removeprefix(FLEET.decode()), headers)


def _response(status: HTTPStatus, body: Any) -> bytes:
    content = msgspec.json.encode(body)
    headers = [
        f"HTTP/1.1 {status.value} {status.phrase}".encode(),
        b"content-type: application/json",
        b"cache-control: no-store",
        b"connection: close",
        b"content-length: %d" % len(content),
        *(name + b": " + value for name, value in HEADERS),
    ]
    return b"\r\n".join([*headers, b"", content])
