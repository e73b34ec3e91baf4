"""Compare JSON, MessagePack and base64url libraries on payloads like ours, and print Markdown.

Needs no part of the project, only the compared libraries, in a separate environment:

    sh scripts/venv.sh .venvs/libraries scripts/measure_libraries.txt
    .venvs/libraries/bin/python scripts/measure_libraries.py
"""

from __future__ import annotations

import importlib
import json
import os
import timeit
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

REPEATS = 9
SECONDS_A_REPEAT = 0.05
URL_SAFE = b"-_"

Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def journal(size_bytes: int) -> dict[str, Any]:
    """Return a journal of about this size: short answers with digests, then one checkpoint that fills the rest."""
    answers = {
        f"question_{n}": {"digest": os.urandom(16).hex(), "action": "accept", "content": {"name": f"User {n}", "n": n}}
        for n in range(6)
    }
    document: dict[str, Any] = {
        "schema": 1,
        "flow": "4f" * 16,
        "deadline": 1_800_000_000.25,
        "answers": answers,
        "checkpoint": [0],
    }
    while len(json.dumps(document, separators=(",", ":"))) < size_bytes:
        document["checkpoint"] += [{"unit": len(document["checkpoint"]), "replica": "replica-1", "done": True}]
    return document


def tool_call() -> dict[str, Any]:
    """Return a `tools/call` of about 400 bytes, as a client of the 2026-07-28 wire sends it."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "client", "version": "1.0.0"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }
    arguments = {"workItemId": 4522, "fields": {"System.State": "Resolved", "System.Title": "It breaks"}}
    params = {"name": "update_work_item", "arguments": arguments, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


def json_codecs() -> dict[str, Codec]:
    """Name → (encode to bytes, decode from bytes)."""
    orjson, msgspec, pydantic_core = _load("orjson"), _load("msgspec"), _load("pydantic_core")
    dumps = json.JSONEncoder(separators=(",", ":")).encode
    return {
        "json (standard library)": (lambda value: dumps(value).encode(), json.loads),
        f"orjson {version('orjson')}": (orjson.dumps, orjson.loads),
        f"msgspec {version('msgspec')}": (msgspec.json.Encoder().encode, msgspec.json.Decoder().decode),
        f"pydantic_core {version('pydantic_core')}": (pydantic_core.to_json, pydantic_core.from_json),
    }


def messagepack_codecs() -> dict[str, Codec]:
    """Name → (encode to bytes, decode from bytes)."""
    msgpack, ormsgpack, msgspec = _load("msgpack"), _load("ormsgpack"), _load("msgspec")
    return {
        f"msgpack {version('msgpack')}": (msgpack.packb, msgpack.unpackb),
        f"ormsgpack {version('ormsgpack')}": (ormsgpack.packb, ormsgpack.unpackb),
        f"msgspec {version('msgspec')}": (msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode),
    }


def base64_codecs() -> dict[str, Codec]:
    """Name → (encode to unpadded URL-safe text, decode from it)."""
    standard, simd = _load("base64"), _load("pybase64")

    def padded(text: str) -> str:
        return text + "=" * (-len(text) % 4)

    return {
        "base64 (standard library)": (
            lambda data: standard.urlsafe_b64encode(data).decode().rstrip("="),
            lambda text: standard.b64decode(padded(text), URL_SAFE, validate=True),
        ),
        f"pybase64 {version('pybase64')}": (
            lambda data: simd.b64encode_as_string(data, URL_SAFE).rstrip("="),
            lambda text: simd.b64decode(padded(text), URL_SAFE, validate=True),
        ),
    }


def microseconds(work: Callable[[], object]) -> float:
    """Return the time of one call, the best of several repeats."""
    timer = timeit.Timer(work)
    calls = max(1, int(SECONDS_A_REPEAT / max(timer.timeit(10) / 10, 1e-7)))
    return min(timer.repeat(REPEATS, calls)) / calls * 1e6


def table(title: str, codecs: dict[str, Codec], payloads: dict[str, Any]) -> list[str]:
    """Return a Markdown table: a row per library, with encode and decode times of each payload in microseconds."""
    lines = [
        f"| {title}, µs to encode / decode | {' | '.join(payloads)} |",
        f"|---|{'---:|' * len(payloads)}",
    ]
    for name, (encode, decode) in codecs.items():
        cells = []
        for payload in payloads.values():
            encoded = encode(payload)
            if decode(encoded) != payload:
                raise SystemExit(f"{name} does not decode what it encoded")
            cells.append(f"{microseconds(partial(encode, payload)):.2f} / {microseconds(partial(decode, encoded)):.2f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def behaviour() -> list[str]:
    """Return a Markdown table: how each JSON library reads input that is ambiguous."""
    inputs = {
        "2^70 + 1": b"[1180591620717411303425]",
        "NaN": b"[NaN]",
        "lone surrogate": b'["\\ud800"]',
        "name twice": b'{"a":1,"a":2}',
        "10,000 deep": b"[" * 10_000 + b"]" * 10_000,
    }
    lines = [f"| JSON that misleads | {' | '.join(inputs)} |", f"|---|{'---|' * len(inputs)}"]
    for name, (_, decode) in json_codecs().items():
        lines.append(f"| {name} | {' | '.join(_verdict(decode, text) for text in inputs.values())} |")
    return [*lines, ""]


def _verdict(decode: Callable[[Any], Any], text: bytes) -> str:
    try:
        value = decode(text)
    except (ValueError, RecursionError) as error:
        return "RecursionError" if isinstance(error, RecursionError) else "refused"
    if text.startswith(b"[11"):
        return "exact" if value == [2**70 + 1] else f"{value[0]!r}"
    return "accepted"


def _load(name: str) -> Any:
    return importlib.import_module(name)


def main() -> None:
    """Print all tables."""
    small, large = journal(1024), journal(65_536)
    documents = {"tools/call, 400 B": tool_call(), "journal, 1 KiB": small, "journal, 64 KiB": large}
    tokens = {"200 B": os.urandom(200), "1 KiB": os.urandom(1024), "64 KiB": os.urandom(65_536)}
    for lines in (
        table("JSON", json_codecs(), documents),
        behaviour(),
        table("MessagePack", messagepack_codecs(), documents),
        table("base64url", base64_codecs(), tokens),
    ):
        print("\n".join(lines))


if __name__ == "__main__":
    main()
