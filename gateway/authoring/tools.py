"""The `tool` decorator, and the tools that it makes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, get_args, overload

from gateway.authoring.arguments import Arguments, SchemaArguments
from gateway.authoring.content import ToolResult, tool_result
from gateway.authoring.listings import tool_annotations
from gateway.authoring.mistakes import refuse_unknown_options
from gateway.authoring.outputs import output_of
from gateway.authoring.served import Icons, P, Q, R, R_co, Served, TaskStart, TaskSupport
from gateway.authoring.types.codecs import return_annotation
from gateway.errors import AuthoringError
from gateway.json_schema.portable import portable
from gateway.json_schema.validation import SchemaValidator
from gateway.protocol.param_headers import InvalidParamHeader, compile_param_headers

DEFAULT_ATTEMPTS: Final = 3

TASK_ONLY: Final = "This tool runs only as a task; it needs a client that supports tasks."
"""Ends the description of a tool that runs only as a task."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}", re.ASCII)
_PORTABLE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
"""What the APIs of Claude and OpenAI accept; the protocol allows more."""


class Tool(Served[P, R_co]):
    """A function that clients can call; see `tool` for the arguments.

    Attributes:
        name: 1 to 128 characters of `A-Z a-z 0-9 _ . -` (MCP "Tools", Tool Names).
        param_headers: the arguments that clients repeat in `Mcp-Param-*` headers.
        after_seconds: how long the answer to a call that started as a task waits for its result, in seconds; None if
            the task is the answer.
    """

    KIND = "tool"

    after_seconds: float | None = None

    def __init__(
        self,
        function: Callable[P, R_co],
        *,
        name: str | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        task: TaskSupport = "forbidden",
        start: TaskStart = "task",
        max_attempts: int = DEFAULT_ATTEMPTS,
        single_use: bool = False,
        streams: bool = False,
        leg_seconds: float | None = None,
        **options: Any,
    ) -> None:
        self._given_schema = input_schema
        super().__init__(function, name=name, **options)
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise AuthoringError(
                f"{self.name!r} is not a valid tool name; use 1 to 128 characters of A-Z a-z 0-9 _ . -, or for every "
                "client 1 to 64 of A-Z a-z 0-9 _ -"
            )
        self.task, self.start = task, start
        self.max_attempts, self.single_use, self.streams = max_attempts, single_use, streams
        self.leg_seconds = leg_seconds
        self._check_seconds("leg_seconds", leg_seconds)
        self._check_task_options()
        self.input_schema = self._arguments.schema
        self.annotations = None if annotations is None else tool_annotations(annotations, str(self))
        _refuse_no_schema("output_schema", output_schema, f"annotate the result of {self} with it instead")
        self._output_validator = None if output_schema is None else SchemaValidator(output_schema)
        self._output = None if output_schema is not None else output_of(return_annotation(function), str(self))
        self.output_schema = self._portable(output_schema if self._output is None else self._output.schema)
        try:
            self.param_headers = compile_param_headers(self.input_schema)
        except InvalidParamHeader as error:
            raise AuthoringError(f"{self}: {error}") from None

    def _read_signature(self, function: Callable[P, R_co]) -> Arguments:
        if self._given_schema is None:
            return super()._read_signature(function)
        _refuse_no_schema("input_schema", self._given_schema, f"annotate the parameters of {self} instead")
        return SchemaArguments(function, self._given_schema)

    def _portable(self, schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return an output schema as clients get it. Some lose all tools over one that they cannot read."""
        try:
            return None if schema is None else portable(schema)
        except AuthoringError as error:
            raise AuthoringError(f"the output schema of {self} is not for all clients: {error}") from None

    @property
    def needs_store(self) -> bool:
        """Whether the tool cannot be served without Redis."""
        return self.single_use or self.task == "required"

    @property
    def has_portable_name(self) -> bool:
        """Whether clients accept the name that pass it unchanged to the API of Claude or OpenAI."""
        return _PORTABLE_NAME.fullmatch(self.name) is not None

    def _check_task_options(self) -> None:
        self._check_choice("task", self.task, get_args(TaskSupport))
        self._check_choice("start", self.start, get_args(TaskStart))
        if self.task == "forbidden" and self.start == "call":
            raise AuthoringError(f"{self} has start='call' but never becomes a task; set task='optional'")
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            raise AuthoringError(f"{self} has max_attempts={self.max_attempts!r}; use 1, 2, 3, …")
        self._check_flag("single_use", self.single_use)
        self._check_flag("streams", self.streams)
        if self.streams and self.task == "forbidden":
            raise AuthoringError(f"{self} has streams=True, but only tasks can stream; set task='optional'")

    def _check_choice(self, option: str, given: str, choices: tuple[str, ...]) -> None:
        if given not in choices:
            raise AuthoringError(f"{self} has {option}={given!r}; use one of {', '.join(map(repr, choices))}")

    def _check_flag(self, option: str, given: object) -> None:
        if type(given) is not bool:
            raise AuthoringError(f"{self} has {option}={given!r}; use True or False")

    def result(self, value: Any, _target: str) -> dict[str, Any]:
        """Return the fields of a `CallToolResult` (MCP "Tools", Tool Result)."""
        is_spelled_out = isinstance(value, ToolResult)
        if is_spelled_out and value.is_error:
            return tool_result(value)
        if self._output is not None and not is_spelled_out:
            return self._output.result(value, self)
        try:
            result = tool_result(value)
        except AuthoringError as error:
            raise AuthoringError(f"{self}: {error}") from error.__cause__
        if self.output_schema is not None:
            self._check_structured(result)
        return result

    def _check_structured(self, result: Mapping[str, Any]) -> None:
        if "structuredContent" not in result:
            raise AuthoringError(f"{self} has an output schema but returned no structured value")
        if self._output is not None:
            self._output.check(result["structuredContent"], self)
        if self._output_validator is not None:
            problem = self._output_validator.problem(result["structuredContent"])
            if problem is not None:
                raise AuthoringError(f"{self} returned a value that its output schema does not allow: {problem}")

    def catalogue_entry(self) -> dict[str, Any]:
        """Return the tool's entry in `tools/list` (MCP "Tools", Tool)."""
        entry = super().catalogue_entry()
        if self.task == "required":  # a model learns this only from the description
            entry["description"] = f"{self.description}\n\n{TASK_ONLY}".lstrip()
        entry["inputSchema"] = self.input_schema
        if self.output_schema is not None:
            entry["outputSchema"] = self.output_schema
        if self.annotations is not None:
            entry["annotations"] = self.annotations
        return entry


def _refuse_no_schema(option: str, given: Any, instead: str) -> None:
    """Refuse a type where a JSON Schema belongs."""
    if given is None or isinstance(given, Mapping):
        return
    name = given.__name__ if isinstance(given, type) else repr(given)
    schema = f", or pass {name}.model_json_schema()" if hasattr(given, "model_json_schema") else ""
    raise AuthoringError(f"{option}={name} is not a JSON Schema; {instead}{schema}")


@overload
def tool(function: Callable[Q, R], /) -> Tool[Q, R]: ...


@overload
def tool(
    positional_name: str | None = None,
    /,
    *,
    name: str | None = None,
    version: int = 1,
    title: str | None = None,
    description: str | None = None,
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
    task: TaskSupport = "forbidden",
    start: TaskStart = "task",
    max_attempts: int = DEFAULT_ATTEMPTS,
    single_use: bool = False,
    streams: bool = False,
    leg_seconds: float | None = None,
    icons: Icons | None = None,
    meta: Mapping[str, Any] | None = None,
    state_ttl_seconds: float | None = None,
    scopes: Iterable[str] = (),
    asks: Mapping[str, Any] | None = None,
) -> Callable[[Callable[Q, R]], Tool[Q, R]]: ...


def tool(function_or_name: Callable[..., Any] | str | None = None, /, **options: Any) -> Any:
    """Turn a function into a tool: `@tool`, `@tool("name")` or `@tool(version=2, …)`.

    For example::

        @tool
        async def add(a: int, b: int) -> int:
            '''Add two numbers.'''
            return a + b

    The parameters of the function are the tool's arguments: their type hints become the input schema. A parameter
    annotated `Context` receives the context instead. The function returns text, content blocks, any value that
    pydantic can write as JSON, a list of these, or a `ToolResult`. Its return annotation becomes the output schema.

    Args:
        function_or_name: the function itself, or a name to use instead of the function's name.
        **options: any of these, as keywords:

            - `input_schema`: a JSON Schema that clients receive unchanged, and that replaces the type hints.
            - `output_schema`: a JSON Schema of the result, which replaces the return annotation.
            - `annotations`: hints for clients (`ToolAnnotations`).
            - `task`: whether calls may (`"optional"`) or must (`"required"`) become tasks. By default they never do
              (`"forbidden"`).
            - `start`: whether such a call starts as a task (`"task"`, the default), or becomes one when the function
              calls `ctx.detach()` (`"call"`).
            - `max_attempts`: how many workers may be lost while running a task before it fails; 3 by default.
            - `single_use`: whether each state of a call can be used for only one leg. Needs Redis.
            - `streams`: whether the result comes in segments (`ctx.emit`). Clients that accept segments then get a
              stream from the start, however late the first segment comes.
            - `leg_seconds`: how long a leg of a call may take; at most, and by default, `GATEWAY_LEG_SECONDS`. It does
              not limit tasks.
            - `version`, `title`, `description`, `icons`, `meta`, `state_ttl_seconds`, `scopes` and `asks`: the options
              that all decorators share; see `resource`.

    Raises:
        AuthoringError: the function or an option breaks a rule of the authoring API.
    """
    refuse_unknown_options("tool", options, Tool, Served)
    if callable(function_or_name) or isinstance(function_or_name, classmethod):
        return Tool(function_or_name, **options)
    options.setdefault("name", function_or_name)
    return lambda function: Tool(function, **options)
