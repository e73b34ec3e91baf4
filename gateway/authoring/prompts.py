"""The `prompt` decorator, and the prompts that it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, overload

from gateway.authoring.arguments import refuse_composite
from gateway.authoring.content import prompt_messages
from gateway.authoring.mistakes import refuse_unknown_options
from gateway.authoring.served import Icons, P, Q, R, R_co, Served


class Prompt(Served[P, R_co]):
    """A message template that users can pick; see `prompt` for the arguments."""

    KIND = "prompt"

    def __init__(self, function: Callable[P, R_co], **options: Any) -> None:
        super().__init__(function, **options)
        properties: Mapping[str, Any] = self._arguments.schema.get("properties", {})
        required = self._arguments.schema.get("required", ())
        refuse_composite(self._arguments, self, "clients send every prompt argument as text")
        self._listed = [_argument(name, schema, name in required) for name, schema in properties.items()]

    @property
    def argument_names(self) -> frozenset[str]:
        """The names of the prompt's arguments."""
        return frozenset(argument["name"] for argument in self._listed)

    def result(self, value: Any, _target: str) -> dict[str, Any]:
        """Return the fields of a `GetPromptResult` (MCP "Prompts")."""
        fields: dict[str, Any] = {"messages": prompt_messages(value)}
        if self.description:
            fields["description"] = self.description
        return fields

    def catalogue_entry(self) -> dict[str, Any]:
        """Return the prompt's entry in `prompts/list` (MCP "Prompts", Prompt)."""
        entry = super().catalogue_entry()
        entry["arguments"] = self._listed
        return entry


def _argument(name: str, schema: Mapping[str, Any], required: bool) -> dict[str, Any]:
    told: dict[str, Any] = {"name": name}
    told.update({field: schema[field] for field in ("title", "description") if field in schema})
    told["required"] = required
    return told


@overload
def prompt(function: Callable[Q, R], /) -> Prompt[Q, R]: ...


@overload
def prompt(
    positional_name: str | None = None,
    /,
    *,
    name: str | None = None,
    version: int = 1,
    title: str | None = None,
    description: str | None = None,
    icons: Icons | None = None,
    meta: Mapping[str, Any] | None = None,
    state_ttl_seconds: float | None = None,
    scopes: Iterable[str] = (),
    asks: Mapping[str, Any] | None = None,
) -> Callable[[Callable[Q, R]], Prompt[Q, R]]: ...


def prompt(function_or_name: Callable[..., Any] | str | None = None, /, **options: Any) -> Any:
    """Turn a function into a prompt: `@prompt`, `@prompt("name")` or `@prompt(title=…)`.

    The parameters of the function are the prompt's arguments, which clients send as text. The function returns text,
    which becomes one message with the role `user`, content blocks, or messages made by `content.user` and
    `content.assistant`.

    Args:
        function_or_name: the function itself, or a name to use instead of the function's name.
        **options: the options that all decorators share: `version`, `title`, `description`, `icons`, `meta`,
            `state_ttl_seconds`, `scopes` and `asks`; see `resource`.

    Raises:
        AuthoringError: the function or an option breaks a rule of the authoring API.
    """
    refuse_unknown_options("prompt", options, Served)
    if callable(function_or_name) or isinstance(function_or_name, classmethod):
        return Prompt(function_or_name, **options)
    options.setdefault("name", function_or_name)
    return lambda function: Prompt(function, **options)
