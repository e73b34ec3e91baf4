"""Streams: the memory that each open stream takes in a replica."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final

from bench import goals, servers
from bench.cases import request
from bench.load import OK, LoadError
from bench.options import Options
from bench.report import Section
from bench.servers import Cores, Server
from bench.tables import table

WARMUP: Final = 200
"""The number of streams opened first, so that one-time costs of a replica do not count."""
STREAMS: Final = 2000
SETTINGS: Final = {"GATEWAY_MAX_INFLIGHT": "100000", "GATEWAY_TOOLS": "bench.stream_tools"}
ANSWER_SECONDS: Final = 10.0
MOST_HEAD_BYTES: Final = 65536

Open = Callable[[int, int, str | None], bytes]
"""Makes the request that opens a stream, from a port, the stream's number and a token."""


def _listen(port: int, number: int, token: str | None) -> bytes:
    params = {"notifications": {"toolsListChanged": True}}
    return request(port, number, "subscriptions/listen", "", params, token=token)


def _linger(port: int, number: int, token: str | None) -> bytes:
    params = {"name": "linger", "arguments": {}}
    return request(port, number, "tools/call", "linger", params, token=token, progress_token="p")


KINDS: Final[dict[str, Open]] = {"that listens for changes": _listen, "of a call that has reported progress": _linger}


def section(_options: Options, cores: Cores) -> Section:
    """Measure open streams and sum them up.

    Raises:
        ServerError, LoadError: something cannot be measured.
    """
    print("streams", file=sys.stderr, flush=True)
    return summary({kind: _kib_each(cores, opening) for kind, opening in KINDS.items()})


def summary(taken: Mapping[str, float]) -> Section:
    """Sum up how many KiB a stream of each kind takes."""
    lines = [
        "## Open streams",
        "",
        f"Resident memory of {STREAMS:,} more streams, each of a different user, on a replica with {WARMUP} streams.",
        "",
        *table(("an open stream", "KiB"), ((kind, f"{kib:.1f}") for kind, kib in taken.items())),
    ]
    measured = ", ".join(f"{kib:.1f} KiB {kind}" for kind, kib in taken.items())
    verdicts = [goals.STREAM.judge(max(taken.values()), measured)]
    document = {"streams": STREAMS, "kib": dict(taken)}
    return Section("streams", "a replica, `gateway serve`", "\n".join(lines) + "\n", document, verdicts)


def _kib_each(cores: Cores, opening: Open) -> float:
    with servers.ours(cores, servers.production(**SETTINGS)) as server, ExitStack() as stack:
        requests = [opening(server.port, number, token) for number, token in enumerate(server.tokens(WARMUP + STREAMS))]
        for sent in requests[:WARMUP]:
            stack.enter_context(_stream(server, sent))
        before = server.resident_mib()
        for sent in requests[WARMUP:]:
            stack.enter_context(_stream(server, sent))
        return (server.resident_mib() - before) * 1024 / STREAMS


def _stream(server: Server, sent: bytes) -> socket.socket:
    """Open a stream, and wait for its first message.

    Raises:
        LoadError: the server answers with something else.
    """
    link = socket.create_connection(("127.0.0.1", server.port), timeout=ANSWER_SECONDS)
    link.sendall(sent)
    answer = b""
    while b"data: " not in answer:
        received = link.recv(MOST_HEAD_BYTES)
        answer += received
        if not received or not answer.startswith(OK):
            link.close()
            raise LoadError(f"expected a stream, got {answer[:300]!r}")
    return link
