"""A fake model: one server that speaks the API of each vendor, so that agents run without an account.

It follows one plan. While an agent offers the tool that is to be called, the model calls it once for each of the
arguments in turn. Then it repeats the last result, so that the agent shows what its model has read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Self

from loadtest.cluster.common import HOST

JSON = dict[str, Any]
Event = tuple[str | None, JSON]
"""The name of an event, where the API has names, and its data."""

SAID = "The tool said: "
IDLE = "Nothing to do."


@dataclass(frozen=True)
class Call:
    """A call of a tool, by the name that the agent gave the tool.

    Attributes:
        group: the namespace of the tool, where the agent has such.
    """

    name: str
    arguments: Mapping[str, Any]
    number: int
    group: str | None = None


class Model:
    """Chooses what to reply, and remembers what it has read.

    Args:
        tool: the tool's name, without what agents put in front of it.
        plan: the arguments of each call.

    Attributes:
        offered: the names of the tools in the first request that had the wanted one.
        results: the results of all calls of the longest conversation.
        read: all requests, as text.
    """

    def __init__(self, tool: str, plan: Sequence[Mapping[str, Any]]) -> None:
        self._tool = tool
        self._plan = plan
        self.offered: list[str] = []
        self.results: list[str] = []
        self.read: list[str] = []

    def reply(self, tools: Sequence[tuple[str, str | None]], results: list[str]) -> Call | str:
        """Return the next call, or the text that ends the turn.

        Args:
            tools: the name and the namespace of each.
            results: of the calls so far.
        """
        wanted = [(name, group) for name, group in tools if name.endswith(self._tool)]
        if not wanted:
            return IDLE
        self.offered = self.offered or [name for name, _ in tools]
        if len(results) >= len(self.results):
            self.results = results
        if len(results) == len(self._plan):
            return SAID + results[-1]
        (name, group), *_ = wanted
        return Call(name, self._plan[len(results)], len(results), group)


def text_of(content: Any) -> str:
    """Return the text in a result, in whichever form."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(map(text_of, content))
    return str(content.get("text", "")) if isinstance(content, dict) else ""


class Anthropic:
    """`POST /v1/messages`."""

    path = "/messages"

    def tools(self, body: JSON) -> list[tuple[str, str | None]]:
        return [(tool["name"], None) for tool in body.get("tools", [])]

    def results(self, body: JSON) -> list[str]:
        blocks = [block for message in body["messages"] for block in message["content"] if isinstance(block, dict)]
        return [text_of(block.get("content")) for block in blocks if block.get("type") == "tool_result"]

    def events(self, reply: Call | str) -> Iterator[Event]:
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "fake", "content": []}
        if isinstance(reply, str):
            block: JSON = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": reply}
        else:
            block = {"type": "tool_use", "id": f"toolu_{reply.number}", "name": reply.name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(reply.arguments)}
        reason = "end_turn" if isinstance(reply, str) else "tool_use"
        start = {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}
        for event in (
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ):
            yield str(event["type"]), event


class Responses:
    """OpenAI's `POST /v1/responses`."""

    path = "/responses"

    def tools(self, body: JSON) -> list[tuple[str, str | None]]:
        found = []
        for tool in body.get("tools", []):
            group = tool.get("name") if tool["type"] == "namespace" else None
            found += [(each["name"], group) for each in tool.get("tools", [tool]) if "name" in each]
        return found

    def results(self, body: JSON) -> list[str]:
        return [text_of(item["output"]) for item in body["input"] if item.get("type") == "function_call_output"]

    def events(self, reply: Call | str) -> Iterator[Event]:
        if isinstance(reply, str):
            text = {"type": "output_text", "text": reply, "annotations": []}
            item: JSON = {"type": "message", "role": "assistant", "id": "item_1", "content": [text]}
        else:
            call = {"name": reply.name, "arguments": json.dumps(reply.arguments), "call_id": f"call_{reply.number}"}
            group = {"namespace": reply.group} if reply.group else {}
            item = {"type": "function_call", "id": f"item_{reply.number}", **call, **group}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        response = {"id": "resp_1", "object": "response", "model": "fake", "output": [item], "usage": usage}
        for event in (
            {"type": "response.created", "response": {**response, "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": response},
        ):
            yield str(event["type"]), event


class Completions:
    """OpenAI's `POST /v1/chat/completions`, as many others speak it too."""

    path = "/chat/completions"

    def tools(self, body: JSON) -> list[tuple[str, str | None]]:
        return [(tool["function"]["name"], None) for tool in body.get("tools", [])]

    def results(self, body: JSON) -> list[str]:
        return [text_of(message["content"]) for message in body["messages"] if message["role"] == "tool"]

    def events(self, reply: Call | str) -> Iterator[Event]:
        if isinstance(reply, str):
            delta: JSON = {"role": "assistant", "content": reply}
        else:
            function = {"name": reply.name, "arguments": json.dumps(reply.arguments)}
            call = {"index": 0, "id": f"call_{reply.number}", "type": "function", "function": function}
            delta = {"role": "assistant", "content": None, "tool_calls": [call]}
        reason = "stop" if isinstance(reply, str) else "tool_calls"
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "fake"}
        yield None, {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield None, {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}


class Gemini:
    """Google's `POST /v1beta/models/…:streamGenerateContent`, and its sibling without a stream."""

    path = "enerateContent"

    def tools(self, body: JSON) -> list[tuple[str, str | None]]:
        groups = [tool.get("functionDeclarations", []) for tool in body.get("tools", [])]
        return [(each["name"], None) for group in groups for each in group]

    def results(self, body: JSON) -> list[str]:
        parts = [part for content in body["contents"] for part in content["parts"]]
        replies = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
        return [text_of(reply.get("output", reply.get("error", reply))) for reply in replies]

    def events(self, reply: Call | str) -> Iterator[Event]:
        if isinstance(reply, str):
            part: JSON = {"text": reply}
        else:
            part = {"functionCall": {"name": reply.name, "args": dict(reply.arguments), "id": f"call_{reply.number}"}}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        yield None, {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake"}


DIALECTS = (Anthropic(), Responses(), Completions(), Gemini())


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of agents to the model."""

    protocol_version = "HTTP/1.1"
    model: ClassVar[Model]
    lock: ClassVar[threading.Lock]

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        self.model.read.append(text)
        body = json.loads(text or "{}")
        path = self.path.partition("?")[0]
        for dialect in DIALECTS:
            if path.endswith(dialect.path):
                with self.lock:
                    reply = self.model.reply(dialect.tools(body), dialect.results(body))
                events = list(dialect.events(reply))
                return self._stream(events) if self._is_streamed(body) else self._send(events[-1][1])
        return self._send({"input_tokens": 1, "totalTokens": 1})

    def _is_streamed(self, body: JSON) -> bool:
        return bool(body.get("stream")) or ":stream" in self.path

    def do_GET(self) -> None:
        self._send({"object": "list", "data": []})

    def do_HEAD(self) -> None:
        self._send({})

    def _stream(self, events: Sequence[Event]) -> None:
        lines = [f"event: {name}\n" * bool(name) + f"data: {json.dumps(data)}\n\n" for name, data in events]
        if events[-1][1].get("object") == "chat.completion.chunk":
            lines.append("data: [DONE]\n\n")
        self._write("text/event-stream", "".join(lines))

    def _send(self, body: JSON) -> None:
        self._write("application/json", json.dumps(body))

    def _write(self, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Write nothing: a failed test shows what the model has read."""


class ModelServer:
    """Serves a model at a free port."""

    def __init__(self, model: Model) -> None:
        handler = type("Own", (Handler,), {"model": model, "lock": threading.Lock()})
        self._server = ThreadingHTTPServer((HOST, 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://{HOST}:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
