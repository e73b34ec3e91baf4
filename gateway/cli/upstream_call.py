"""`gateway upstreams test`: calls a tool of an upstream, and lets the user answer its questions in the terminal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gateway.cli.upstreams import EXIT_UNREACHABLE, connected, problem_of, read_file, read_lists
from gateway.engine.questions import ELICIT, ROOTS, InvalidAnswer
from gateway.errors import ConfigurationError
from gateway.process.upstreams import UpstreamConnection
from gateway.protocol.param_headers import InvalidParamHeader, compile_param_headers
from gateway.protocol.upstream.asking import MAX_TASK_BYTES, AskedQuestion, Misasked, input_required
from gateway.protocol.upstream.cleaning import clean_line, clean_text
from gateway.protocol.upstream.names import exposed_name
from gateway.protocol.upstream.requests import mirrored
from gateway.registry.relayed import forwarded_question
from gateway.settings.model import Settings
from gateway.upstreams.config.definition import Definition
from gateway.upstreams.failures import UpstreamError, UpstreamFailure
from gateway.upstreams.ports import Continued, HeldRound, UpstreamCaller

MAX_ROUNDS: Final = 20
"""How often a tool may ask, or ask to be called again."""
PAUSE_SECONDS: Final = 0.2
"""How long to wait before each further request."""
EXIT_FAILED: Final = 1

DECLINE, CANCEL = "/decline", "/cancel"
TERMINAL: Final = UpstreamCaller(capabilities={"elicitation": {"form": {}, "url": {}}, "roots": {}})
"""A person at a terminal, who can fill in forms and open addresses."""

Say = Callable[[str], None]
Read = Callable[[str], str]


class _NoAnswer(Exception):
    """The user does not want to answer; the action is `decline` or `cancel`."""

    def __init__(self, action: str) -> None:
        super().__init__(action)
        self.action = action


def call(settings: Settings, name: str, tool: str | None, given: Sequence[str], *, say: Say, read: Read) -> int:
    """Ask one upstream for its tools, or call one of them.

    The upstream's name of the `tool` will do, and so will ours; None lists all tools. The arguments are given as
    `key=value`. `read` returns an answer after showing a prompt, and raises `EOFError` at the end of the input. Return
    1 if the upstream does not answer, the tool does not exist or the call fails.

    Raises:
        ConfigurationError: the file is wrong, or has no such upstream.
    """
    definition = _definition(settings, name)
    return asyncio.run(_Trial(definition, settings, say, read).run(tool, given))


def _definition(settings: Settings, name: str) -> Definition:
    found = read_file(settings, needs_lock=False)
    for definition in found.definitions:
        if definition.name == name:
            return definition
    names = ", ".join(definition.name for definition in found.definitions) or "none"
    raise ConfigurationError(f"{settings.upstreams}: no upstream is named {name!r}; use one of: {names}")


class _Trial:
    """One test of an upstream."""

    def __init__(self, definition: Definition, settings: Settings, say: Say, read: Read) -> None:
        self._definition = definition
        self._settings = settings
        self._say = say
        self._read = read

    async def run(self, tool: str | None, given: Sequence[str]) -> int:
        """List the tools, or call one of them."""
        async with connected(self._definition, self._settings) as connection:
            try:
                listed = (await read_lists(self._definition, connection)).lists["tools"]
                tools = {entry["name"]: entry for entry in listed if self._definition.serves_tool(entry["name"])}
                if tool is None:
                    return self._list(tools)
                exposed = {exposed_name(self._definition.prefix, own): own for own in tools}
                entry = tools.get(exposed.get(tool, tool))
                if entry is None:
                    self._say(
                        f"{self._definition.name} serves no tool {tool!r}; it serves: {', '.join(tools) or 'none'}"
                    )
                    return EXIT_FAILED
                return self._show(await self._call(connection, entry, _arguments(entry, given)))
            except (UpstreamFailure, UpstreamError) as failure:
                self._say(f"{self._definition.name}: {problem_of(self._definition, failure)}")
                return EXIT_UNREACHABLE
            except Misasked as problem:
                self._say(f"{self._definition.name} needs an answer, but {problem}")
                return EXIT_FAILED

    def _list(self, tools: Mapping[str, dict[str, Any]]) -> int:
        self._say(f"{self._definition.name} answers; its tools:")
        for name, entry in tools.items():
            schema = entry.get("inputSchema")
            properties = schema.get("properties") if isinstance(schema, dict) else None
            arguments = " ".join(f"{argument}=…" for argument in properties) if isinstance(properties, dict) else ""
            self._say(clean_line(f"  {name} {arguments}".rstrip()))
        return 0

    async def _call(
        self, connection: UpstreamConnection, tool: Mapping[str, Any], arguments: dict[str, Any]
    ) -> dict[str, Any]:
        """Call a tool until it has a result, answering what it asks."""
        params: dict[str, Any] = {"name": tool["name"], "arguments": arguments}
        try:
            headers = mirrored(compile_param_headers(tool.get("inputSchema", {})), arguments)
        except InvalidParamHeader as error:
            raise Misasked(f"its x-mcp-header breaks the rules: {error}") from None
        continued: Continued | None = None
        for _ in range(MAX_ROUNDS):
            result = await connection.client.request(
                "tools/call",
                params,
                requester=TERMINAL,
                param_headers=headers,
                on_notice=self._notice,
                wants_progress=True,
                log_level="info",
                continued=continued,
                seconds=self._definition.timeout_seconds,
                max_bytes=self._definition.max_result_bytes,
            )
            asked = input_required(result, max_bytes=MAX_TASK_BYTES)
            if asked is None:
                return result
            params = {"name": tool["name"], "arguments": arguments}
            answers = {question.key: self._answer(question) for question in asked.questions}
            if isinstance(result, HeldRound):
                results = {key: {"result": answer} for key, answer in answers.items()}
                continued = Continued(asked.state or "", results)
                continue
            if answers:
                params["inputResponses"] = answers
            # While the user was typing, nothing noticed whether the upstream closed the connection.
            await asyncio.sleep(PAUSE_SECONDS)
            if asked.state is not None:
                params["requestState"] = asked.state
        raise Misasked(f"it asked {MAX_ROUNDS} times without a result")

    def _notice(self, method: str, params: Mapping[str, Any]) -> None:
        self._say(f"[{method.rpartition('/')[2]}] {clean_line(json.dumps(params, ensure_ascii=False))}")

    def _answer(self, asked: AskedQuestion) -> dict[str, Any]:
        """Return the user's answer to a question, which is asked again until it fits."""
        if asked.method == ROOTS:
            return {"roots": []}
        if asked.method != ELICIT:
            raise Misasked(f"{asked.method} cannot be answered in a terminal")
        question = forwarded_question(asked.method, asked.params)
        self._say(clean_text(str(asked.params["message"])))
        self._say(f"({DECLINE} or {CANCEL} refuses to answer)")
        while True:
            try:
                answer = self._form(asked.params) if "requestedSchema" in asked.params else self._visit(asked.params)
                question.read({"result": answer})
            except (_NoAnswer, EOFError) as refused:
                return {"action": refused.action if isinstance(refused, _NoAnswer) else "cancel"}
            except InvalidAnswer as problem:
                self._say(f"the answer does not fit: {clean_line(str(problem))}")
            else:
                return answer

    def _visit(self, params: Mapping[str, Any]) -> dict[str, Any]:
        self._say(f"open {clean_line(str(params['url']))}")
        self._input("press Enter when you are done: ")
        return {"action": "accept"}

    def _form(self, params: Mapping[str, Any]) -> dict[str, Any]:
        schema = params["requestedSchema"]
        properties = schema.get("properties")
        required = schema.get("required")
        content = {}
        for name, wanted in properties.items() if isinstance(properties, dict) else ():
            wants = wanted if isinstance(wanted, dict) else {}
            text = self._input(_prompt(name, wants, isinstance(required, list) and name in required))
            if text:
                content[name] = _value(text, wants)
            elif "default" in wants:
                content[name] = wants["default"]
        return {"action": "accept", "content": content}

    def _input(self, prompt: str) -> str:
        text = self._read(prompt).strip()
        if text in (DECLINE, CANCEL):
            raise _NoAnswer(text[1:])
        return text

    def _show(self, result: Mapping[str, Any]) -> int:
        """Print a result. Texts are printed as they are, but for control characters; anything else as JSON."""
        content = result.get("content")
        for block in content if isinstance(content, list) else ():
            is_text = isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
            self._say(clean_text(block["text"] if is_text else json.dumps(block, ensure_ascii=False)))
        if not content and "structuredContent" in result:
            self._say(clean_text(json.dumps(result["structuredContent"], ensure_ascii=False, indent=2)))
        if result.get("isError") is True:
            self._say("the tool reports an error")
            return EXIT_FAILED
        return 0


def _arguments(tool: Mapping[str, Any], given: Sequence[str]) -> dict[str, Any]:
    """Return arguments from `key=value` texts; raise `ConfigurationError` for any other text."""
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    arguments = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ConfigurationError(f"{text!r} is not key=value, such as text=hello")
        wanted = properties.get(name) if isinstance(properties, dict) else None
        arguments[name] = _value(value, wanted if isinstance(wanted, dict) else {})
    return arguments


def _value(text: str, schema: Mapping[str, Any]) -> Any:
    """Return the value that a user wrote: a text where the schema wants one, else JSON if it parses."""
    if schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _prompt(name: str, schema: Mapping[str, Any], required: bool) -> str:
    """Return what is shown for a field of a form."""
    title = schema.get("title") or schema.get("description") or name
    choices = schema.get("enum")
    notes = [] if required else ["optional"]
    if isinstance(choices, list):
        notes.append("one of " + ", ".join(str(choice) for choice in choices))
    elif isinstance(schema.get("type"), str) and schema["type"] != "string":
        notes.append(str(schema["type"]))
    if "default" in schema:
        notes.append(f"default {schema['default']}")
    note = f" ({'; '.join(notes)})" if notes else ""
    return clean_line(f"{title}{note}: ")
