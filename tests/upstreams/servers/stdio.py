"""A server on standard streams, for children of tests. Its tools do what real servers do, and what none should do.

It uses only the standard library, since it runs alone: `python stdio.py [option …]`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Arguments = Mapping[str, Any]
OPTIONS = sys.argv[1:]
_writing = threading.Lock()
_cancelled: list[Any] = []
_replies: dict[str, Any] = {}
_declared: dict[str, Any] = {}
_replied = threading.Condition()


def raw(text: bytes) -> None:
    with _writing:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()


def send(message: Mapping[str, Any]) -> None:
    raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def answer(number: Any, text: Any) -> None:
    send({"id": number, "result": {"content": [{"type": "text", "text": json.dumps(text)}]}})


def complaint(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def ask(method: str) -> Any:
    """Send a request to the client, and return its response."""
    send({"id": method, "method": method, "params": {}})
    with _replied:
        _replied.wait_for(lambda: method in _replies)
        return _replies.pop(method)


def echo(number: Any, _meta: Arguments, given: Arguments) -> None:
    answer(number, given)


def about(number: Any, _meta: Arguments, _given: Arguments) -> None:
    answer(
        number,
        {
            "pid": os.getpid(),
            "env": dict(os.environ),
            "cwd": str(Path.cwd()),
            "cancelled": _cancelled,
            "declared": _declared,
        },
    )


def slow(number: Any, _meta: Arguments, given: Arguments) -> None:
    time.sleep(given["seconds"])
    answer(number, given)


def hang(_number: Any, _meta: Arguments, _given: Arguments) -> None:
    """Never answer."""


def notices(number: Any, meta: Arguments, given: Arguments) -> None:
    token = meta.get("progressToken")
    for step in range(given.get("steps", 2)):
        send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
        send(
            {
                "method": "notifications/message",
                "params": {"level": "info", "data": f"step {step}" + given.get("more", "")},
            }
        )
    answer(number, "done")


def noise(number: Any, _meta: Arguments, given: Arguments) -> None:
    raw(given.get("text", "starting up\n\n[INFO] ready\n{not json}\n[1, 2]\n").encode())
    answer(number, "heard")


def asks(number: Any, _meta: Arguments, given: Arguments) -> None:
    answer(number, {method: ask(method) for method in given["methods"]})


def half(number: Any, _meta: Arguments, _given: Arguments) -> None:
    raw(b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [{"type": "te' % number)
    os._exit(7)


def die(_number: Any, _meta: Arguments, given: Arguments) -> None:
    complaint("Traceback: out of luck")
    if "signal" in given:
        os.kill(os.getpid(), given["signal"])
        time.sleep(60)  # another thread gets it
    os._exit(given.get("code", 3))


def flood(_number: Any, _meta: Arguments, _given: Arguments) -> None:
    while True:
        raw(b"x" * 65536)


def large(number: Any, _meta: Arguments, given: Arguments) -> None:
    text, end = "x" * given["size"], b"\n"
    result = json.dumps({"content": [{"type": "text", "text": text}]}).encode()
    if given.get("id") == "last":
        raw(b'{"result":' + result + b',"jsonrpc":"2.0","id":%d}' % number + end)
    elif given.get("id") == "hidden":
        raw(b'{"result":' + result + b',"id":%d,"jsonrpc":"2.0"}' % number + end)
    else:
        raw(b'{"jsonrpc":"2.0","id":%d,"result":' % number + result + b"}" + end)


def written(number: Any, _meta: Arguments, given: Arguments) -> None:
    """Answer with bytes in which `ID` stands for the id."""
    raw(given["text"].replace("ID", str(number)).encode("latin-1"))


def complain(number: Any, _meta: Arguments, given: Arguments) -> None:
    for line in range(given["lines"]):
        complaint(f"complaint {line} {'x' * given.get('size', 0)}")
    answer(number, "complained")


def change(number: Any, _meta: Arguments, _given: Arguments) -> None:
    send({"method": "notifications/tools/list_changed"})
    answer(number, "changed")


def deaf(number: Any, _meta: Arguments, _given: Arguments) -> None:
    """Answer, and read nothing from now on."""
    answer(number, "I do not listen")
    time.sleep(600)


def pester(number: Any, _meta: Arguments, given: Arguments) -> None:
    """Send requests without reading any answer."""
    for each in range(given["requests"]):
        send({"id": f"ping {each} {'x' * 80}", "method": "ping"})
    answer(number, "pestered")


def sign_in(number: Any, _meta: Arguments, given: Arguments) -> None:
    """Send the user to a URL until a file is there."""
    if Path(given["file"]).exists():
        answer(number, "signed in")
        return
    url = {"mode": "url", "elicitationId": "e1", "message": "Please sign in", "url": "https://example.com/in"}
    send({"id": number, "error": {"code": -32042, "message": "Sign in first", "data": {"elicitations": [url]}}})


def delete(number: Any, _meta: Arguments, given: Arguments) -> None:
    """Ask for consent to delete some files, then for many more."""
    form = {"type": "object", "properties": {"sure": {"type": "string"}}, "required": ["sure"]}
    answers = []
    for files in given.get("files", (3, 300)):
        key = f"{number}-{files}"
        params = {"mode": "form", "message": f"Delete {files} files?", "requestedSchema": form}
        send({"id": key, "method": "elicitation/create", "params": params})
        if given.get("repeats"):
            send({"id": key, "method": "elicitation/create", "params": params})
        if given.get("again"):
            send({"method": "notifications/cancelled", "params": {"requestId": key}})
            send({"id": key, "method": "elicitation/create", "params": params})
        if given.get("withdraws"):
            send({"method": "notifications/cancelled", "params": {"requestId": key}})
            answers.append([files, "withdrawn"])
            continue
        with _replied:
            while key not in _replies:
                _replied.wait()
            answers.append([files, _replies.pop(key)])
    answer(number, answers)


def act(number: Any, _meta: Arguments, given: Arguments) -> None:
    """Append a key to the file that `EFFECTS` names, and answer; work before and after it."""
    time.sleep(given["seconds"])
    file = os.open(os.environ["EFFECTS"], os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(file, f"{given['key']}\n".encode())
    os.close(file)
    time.sleep(given["seconds"])
    send({"id": number, "result": {"content": [{"type": "text", "text": given["key"]}]}})


TOOLS: Mapping[str, Callable[[Any, Arguments, Arguments], None]] = {
    tool.__name__: tool
    for tool in (
        *(echo, about, slow, hang, notices, noise, asks, half, die, flood, large, written, complain, change),
        *(deaf, pester, sign_in, delete, act),
    )
}
IN_PLACE = frozenset({"deaf", "pester"})
"""These keep the server from reading."""


def handle(message: Mapping[str, Any]) -> None:
    method, number, params = message.get("method"), message.get("id"), message.get("params", {})
    if method is None:
        with _replied:
            _replies[str(number)] = message.get("result", message.get("error"))
            _replied.notify_all()
    elif method == "notifications/cancelled":
        _cancelled.append(params["requestId"])
    elif method == "initialize":
        initialize(number, params)
    elif method == "tools/list":
        schema = {"type": "object"}
        send({"id": number, "result": {"tools": [{"name": name, "inputSchema": schema} for name in TOOLS]}})
    elif method == "tools/call":
        work = TOOLS[params["name"]], (number, params.get("_meta", {}), params.get("arguments", {}))
        if params["name"] in IN_PLACE:
            work[0](*work[1])
        else:
            threading.Thread(target=work[0], args=work[1], daemon=True).start()
    elif method in ("ping", "logging/setLevel"):
        if method != "ping" and "slow-level" in OPTIONS:
            time.sleep(2.8)
        send({"id": number, "result": {}})
    elif number is not None:
        send({"id": number, "error": {"code": -32601, "message": f"no {method}"}})


def initialize(number: Any, params: Arguments) -> None:
    if "hangs" in OPTIONS:
        return
    _declared.update(params["capabilities"])
    version = "1999-01-01" if "unknown-version" in OPTIONS else params["protocolVersion"]
    capabilities = {"tools": {"listChanged": True}, "logging": {}}
    server = {"name": "stub", "version": "1", "title": "x" * (300_000 if "long-introduction" in OPTIONS else 0)}
    if "early" in OPTIONS:
        answer(number + 1, "before the question")
    if "asks-first" in OPTIONS:
        send({"id": "first", "method": "roots/list"})
    for _ in range(1 + ("twice" in OPTIONS)):
        send({"id": number, "result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": server}})


def be_stubborn() -> None:
    """Ignore SIGTERM and the end of the input, together with a child and a daemon."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for is_daemon in (False, True):
        if os.fork() == 0:
            if is_daemon:
                os.setsid()
                if os.fork():
                    os._exit(0)
            while True:
                time.sleep(60)


def main() -> None:
    if "fails" in OPTIONS:
        complaint("usage: stdio.py TOKEN\nno token given")
        os._exit(2)
    if "stubborn" in OPTIONS:
        be_stubborn()
    if "mortal" in OPTIONS:
        threading.Timer(1, os._exit, [1]).start()
    if "noisy" in OPTIONS:
        raw(b"Welcome!\n")
    for line in sys.stdin.buffer:
        handle(json.loads(line))
    while "stubborn" in OPTIONS:
        time.sleep(60)


if __name__ == "__main__":
    main()
