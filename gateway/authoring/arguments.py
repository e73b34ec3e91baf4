"""From a function's type hints to its input schema, and from a caller's arguments to its keywords."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo

from gateway.authoring.context import Context
from gateway.authoring.schemas import model_schema
from gateway.errors import AuthoringError, GatewayError

MAX_PROBLEMS = 10
"""How many wrong arguments one error names."""

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class InvalidArguments(GatewayError):
    """The caller's arguments do not fit; the message names each one, for the language model to do better."""


class Arguments:
    """The arguments of one function: their schema, and validation compiled once.

    Args:
        function: an authored function. A parameter annotated `Context` (or named `ctx`, without annotation)
            gets the context; every other one is an argument.

    Raises:
        AuthoringError: a parameter cannot be filled from JSON.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        name = getattr(function, "__qualname__", repr(function))
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except NameError as error:
            raise AuthoringError(f"{name}: the annotation {error.name!r} is not defined in its module") from None
        except Exception as error:  # noqa: BLE001 - annotations are code and may raise anything
            raise AuthoringError(f"{name}: its annotations cannot be read: {error}") from None
        self.context_name: str | None = None
        fields: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        for parameter in inspect.signature(function).parameters.values():
            annotation = hints.get(parameter.name, Any)
            if parameter.kind not in _NAMED:
                raise AuthoringError(f"{name}: the parameter {parameter.name!r} must be one that has a name")
            if annotation is Context or (parameter.name == "ctx" and parameter.name not in hints):
                if self.context_name is not None:
                    raise AuthoringError(f"{name}: two parameters take the context; one is enough")
                self.context_name = parameter.name
                continue
            # Fields get names of their own: an argument may be called like an attribute of BaseModel.
            field = f"argument_{len(fields)}"
            fields[field] = _field(parameter, annotation)
            self._names[field] = parameter.name
        try:
            model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
            self.schema = _input_schema(model)
        except PydanticUserError as error:
            raise AuthoringError(f"{name}: {error.message.splitlines()[0]}") from None
        self._validate = model.__pydantic_validator__.validate_python

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return keywords for the function.

        Raises:
            InvalidArguments: an argument is missing, unknown or of the wrong kind.
        """
        try:
            values = self._validate(arguments).__dict__
        except ValidationError as error:
            raise InvalidArguments(_problems(error)) from None
        except RecursionError:
            raise InvalidArguments("the arguments are nested too deeply") from None
        return {name: values[field] for field, name in self._names.items()}


def _field(parameter: inspect.Parameter, annotation: Any) -> tuple[Any, Any]:
    """Return pydantic's definition of an argument; the author's `Field(…)` may be a default or in `Annotated`."""
    default = parameter.default
    if isinstance(default, FieldInfo):
        return Annotated[annotation, default], Field(alias=parameter.name)
    if default is inspect.Parameter.empty:
        return annotation, Field(alias=parameter.name)
    return annotation, Field(default, alias=parameter.name)


def _input_schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model_schema(model)
    schema.setdefault("properties", {})
    return schema


def _problems(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}" for problem in problems]
    if len(lines) > MAX_PROBLEMS:
        lines[MAX_PROBLEMS:] = [f"and {len(lines) - MAX_PROBLEMS} more"]
    return "; ".join(lines)
