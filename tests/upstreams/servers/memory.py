"""A server on standard streams with a memory, which asks its user twice before it deletes anything.

It uses only the standard library, since it runs alone. It notes in the file that `NOTES` names what it did.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

_writing = threading.Lock()
_numbers = itertools.count(1)
_answers: dict[str, Any] = {}
_answered = threading.Condition()
_remembered: list[str] = []


def send(message: Mapping[str, Any]) -> None:
    with _writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def note(what: str) -> None:
    file = os.open(os.environ["NOTES"], os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(file, f"{what}\n".encode())
    os.close(file)


def ask(text: str) -> Any:
    """Ask the user for consent, and return the answer."""
    form = {"type": "object", "properties": {"sure": {"type": "string"}}, "required": ["sure"]}
    with _answered:
        number = f"q-{next(_numbers)}"
        params = {"mode": "form", "message": text, "requestedSchema": form}
        send({"id": number, "method": "elicitation/create", "params": params})
        _answered.wait_for(lambda: number in _answers)
        return _answers.pop(number)


def delete(given: Mapping[str, Any]) -> Any:
    """Delete some files, then many more, each time with the consent of the user, and as the gate opens."""
    answers = []
    for files in (3, 300):
        question = f"Delete {files} files of {given['owner']}?"
        answer = ask(question)
        if "content" not in answer:
            return answer
        answers.append([question, answer["content"]["sure"]])
        note(f"{given['owner']} {files}")
        wait(given.get("gate"))
    return answers


def remember(given: Mapping[str, Any]) -> Any:
    _remembered.append(given["text"])
    return _remembered


def about(_given: Mapping[str, Any]) -> Any:
    return os.getpid()


def wait(gate: str | None) -> None:
    """Wait until there is a file, if one is named."""
    while gate is not None and not os.path.exists(gate):  # noqa: PTH110 - it starts faster without pathlib
        threading.Event().wait(0.02)


def work(given: Mapping[str, Any]) -> Any:
    """Note the beginning and the end, and wait for a gate between them."""
    note(f"begun {given['owner']}")
    wait(given.get("gate"))
    note(f"ended {given['owner']}")
    return "worked"


def change(_given: Mapping[str, Any]) -> Any:
    send({"method": "notifications/tools/list_changed"})
    return "changed"


TOOLS = {tool.__name__: tool for tool in (delete, remember, about, work, change)}


def call(number: Any, params: Mapping[str, Any]) -> None:
    said = TOOLS[params["name"]](params.get("arguments", {}))
    send({"id": number, "result": {"content": [{"type": "text", "text": json.dumps(said)}]}})


def handle(message: Mapping[str, Any]) -> None:
    method, number, params = message.get("method"), message.get("id"), message.get("params", {})
    if method is None:
        with _answered:
            _answers[str(number)] = message.get("result", message.get("error"))
            _answered.notify_all()
    elif method == "initialize":
        capabilities = {"tools": {"listChanged": True}}
        server = {"name": "memory", "version": "1"}
        version = params["protocolVersion"]
        send({"id": number, "result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": server}})
    elif method == "tools/list":
        schema = {"type": "object"}
        send({"id": number, "result": {"tools": [{"name": name, "inputSchema": schema} for name in TOOLS]}})
    elif method == "tools/call":
        threading.Thread(target=call, args=(number, params), daemon=True).start()
    elif number is not None:
        send({"id": number, "result": {}})


if __name__ == "__main__":
    for line in sys.stdin:
        handle(json.loads(line))
