"""Input schemas made from type hints, and keyword arguments made from what a caller sent."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from gateway.authoring.context import Context, PlainContext
from gateway.authoring.mistakes import classes_in
from gateway.authoring.other_libraries import refuse_other_libraries
from gateway.authoring.types.codecs import UNSERVABLE, adapter_of, hints_of, outer_names, unservable
from gateway.authoring.types.json_texts import UnreadableText, opened
from gateway.authoring.types.model_schemas import model_schema, type_schema
from gateway.authoring.types.model_validators import SMALL, NestingLimit, bounded_validator, has_null, is_small
from gateway.authoring.types.reading_costs import ReadingLimit
from gateway.authoring.types.reading_memory import ReadingMemory
from gateway.authoring.types.typed_dicts import readable
from gateway.errors import AuthoringError, GatewayError
from gateway.json_schema.inlining import inlined
from gateway.json_schema.nulls import without_optional_nulls
from gateway.json_schema.validation import SchemaValidator

MAX_PROBLEMS = 10
"""How many wrong arguments one error names."""

MAX_READ_PROBLEMS = 1000
"""With more problems than this, an error only counts them: listing each one would take longer than most calls."""

MAX_PARTS_WITH_NULL = 500
"""Null is left out inside of objects only where arguments have no more parts: looking for it takes long, compared with
the check."""

MAX_PLACE_CHARACTERS = 100
"""Argument names come from the caller; longer ones are cut."""

MAX_MESSAGE_CHARACTERS = 4000
"""A message may quote what the caller sent; longer messages are cut."""

_PLAIN = (str, int, float, list, dict)
_MISFITS = ("_type", "_parsing", "literal_error")
"""How the errors end that are about the type. A default may break a constraint on purpose: 0 may mean no limit."""

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class InvalidArguments(GatewayError):
    """The caller's arguments are not valid. The message names each problem, so that the language model can fix it."""

    def __init__(self, message: str) -> None:
        super().__init__(_cut(message, MAX_MESSAGE_CHARACTERS))


class Arguments:
    """The arguments of one function: their schema, and validation that is compiled once.

    A parameter annotated `Context`, or named `ctx` without an annotation, receives the context. Every other
    parameter is an argument.

    Attributes:
        are_plain: whether each one is a text, a number or a bool: reading them is quick, and runs no author's code.

    Raises:
        AuthoringError: a parameter cannot be filled from JSON.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        name = _name_of(function)
        hints = _hints(function)
        self.context_name, parameters = _split_signature(function, hints)
        fields: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        for parameter in parameters:
            annotation = hints.get(parameter.name, Any)
            if parameter.kind not in _NAMED:
                raise AuthoringError(
                    f"{name}: the parameter {parameter.name!r} must be named, not positional-only, *args or **kwargs; "
                    f"for several values, take `{parameter.name}: list[…]`; a wrapper needs functools.wraps, and a "
                    "tool with input_schema=… can take **arguments"
                )
            # Fields get generated names, because an argument may have the name of a BaseModel attribute.
            field = f"argument_{len(fields)}"
            fields[field] = _field(parameter, annotation)
            self._names[field] = parameter.name
        try:
            model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
            schema = _input_schema(model)
            self._validate = bounded_validator(model.__pydantic_core_schema__).validate_python
            self._list_all = bounded_validator(model.__pydantic_core_schema__, stops=False).validate_python
        except UNSERVABLE as error:
            raise _unservable(name, hints, parameters, error) from None
        _refuse_misfit_defaults(name, model, parameters)
        self.schema = inlined(schema)
        self._nesting = NestingLimit(schema)
        self._limit = ReadingLimit(model.__pydantic_core_schema__, self._names)
        self._memory = ReadingMemory(model.__pydantic_core_schema__, self._names, self._limit.texts)
        self.are_plain = self._limit.are_plain
        self._small = max(MAX_PARTS_WITH_NULL, int(SMALL / self._limit.dearest))

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return keyword arguments for the function. An argument that is null, and may not be, gets its default.

        Raises:
            InvalidArguments: an argument is missing, unknown or of the wrong type.
        """
        seen = arguments if self.are_plain else self._seen(arguments)
        try:
            if None in arguments.values():
                arguments = self._once_readable(arguments, seen)
            values = self._validated(arguments, seen)
        except RecursionError:
            raise InvalidArguments("the arguments are nested too deeply") from None
        return {name: values[field] for field, name in self._names.items()}

    @property
    def makes_objects(self) -> bool:
        """Whether arguments may become objects, such as models."""
        return self._memory.has_objects

    def memory_of(self, arguments: Mapping[str, Any]) -> int:
        """Return how many bytes of memory the objects take that are made of these arguments, 0 if they are few."""
        return self._memory.of(arguments)

    def _seen(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return arguments with all values that pydantic will read, also those that it reads from texts.

        Raises:
            InvalidArguments: it would take too long to read them.
        """
        seen = self._opened(arguments) if self._limit.texts else arguments
        if self._nesting.exceeded(seen):
            raise InvalidArguments("the arguments are nested too deeply for this recursive schema")
        dear = self._limit.exceeded(seen)
        if dear is not None:
            name, most = dear
            raise InvalidArguments(
                f"{name}: it has more values than can be read in one call; send a part of them, at most {most}"
            )
        return seen

    def _opened(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return opened(arguments, self._limit.texts)
        except UnreadableText as error:
            raise InvalidArguments(str(error)) from None
        except RecursionError:
            raise InvalidArguments("the arguments are nested too deeply") from None

    def _once_readable(self, arguments: Mapping[str, Any], seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return arguments without those that are null and may not be if they are large: nothing is read twice."""
        if is_small(seen, self._small):
            return arguments
        given = without_optional_nulls(self.schema, arguments, inner=False)
        try:  # a validator of the author may take null
            self._validate({name: None for name in self._names.values() if name in arguments and name not in given})
        except ValidationError as error:
            refused = {problem["loc"][0] for problem in error.errors(include_url=False) if problem["type"] != "missing"}
            return {name: value for name, value in arguments.items() if name in given or name not in refused}
        return arguments

    def _validated(self, arguments: Mapping[str, Any], seen: Mapping[str, Any]) -> dict[str, Any]:
        try:
            values: dict[str, Any] = self._validate(arguments).__dict__
        except ValidationError as error:
            given = _given(self.schema, arguments) if is_small(seen, self._small) else None
            if given is None:
                raise InvalidArguments(_problems(self._all_problems(arguments, seen, error))) from None
            return self._validated(given, seen)
        return values

    def _all_problems(
        self, arguments: Mapping[str, Any], seen: Mapping[str, Any], first: ValidationError
    ) -> ValidationError:
        """Return an error that also names every wrong item, if there cannot be many."""
        if is_small(seen, self._small):
            try:
                self._list_all(arguments)
            except ValidationError as error:
                return error
        return first


def refuse_composite(arguments: Arguments, owner: object, senders: str) -> None:
    """Refuse arguments that are lists or objects, in what clients fill with text.

    Raises:
        AuthoringError: no value of an argument can be sent as text.
    """
    for name, schema in arguments.schema.get("properties", {}).items():
        options = schema.get("anyOf", [schema])
        if all("$ref" in option or option.get("type") in ("array", "object", "null") for option in options):
            raise AuthoringError(f"{owner}: the argument {name!r} must be text; {senders}")


class SchemaArguments(Arguments):
    """The arguments of a function with its own schema: they are checked against it and passed on unchanged.

    Args:
        function: takes `**arguments`, or has a parameter for every property of the schema.
        schema: a JSON Schema with type `object`, which clients receive unchanged.

    Raises:
        AuthoringError: the schema is not valid, or the function does not take its properties.
    """

    def __init__(self, function: Callable[..., Any], schema: Mapping[str, Any]) -> None:
        name = _name_of(function)
        if schema.get("type") != "object":
            raise AuthoringError(f"{name}: the input schema must have type 'object'")
        self.context_name, parameters = _split_signature(function, _hints(function))
        takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
        named = {parameter.name for parameter in parameters if parameter.kind in _NAMED}
        unnamed = sorted(set(schema.get("properties", {})) - named)
        if unnamed and not takes_all:
            raise AuthoringError(
                f"{name}: the function does not take {', '.join(unnamed)} of its schema; add parameters or **arguments"
            )
        self.schema = dict(schema)
        self._validator = SchemaValidator(schema)
        self._taken = None if takes_all else named
        self.are_plain = False

    @property
    def makes_objects(self) -> bool:
        """Whether arguments may become objects: they are passed on as they are."""
        return False

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return keyword arguments for the function.

        Raises:
            InvalidArguments: the arguments do not match the schema.
        """
        problem = self._validator.problem(arguments)
        if problem is not None:
            raise InvalidArguments(problem)
        if self._taken is None:
            return {name: value for name, value in arguments.items() if name != self.context_name}
        return {name: value for name, value in arguments.items() if name in self._taken}


def _given(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return arguments without those that are null instead of left out, or None if none is found."""
    inner = has_null(arguments, MAX_PARTS_WITH_NULL)
    if not inner and None not in arguments.values():
        return None
    given: dict[str, Any] = without_optional_nulls(schema, arguments, inner=inner)
    return None if given == arguments else given


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return hints_of(function, None, outer_names(inspect.unwrap(function)), _name_of(function), "its annotations")


def _split_signature(
    function: Callable[..., Any], hints: Mapping[str, Any]
) -> tuple[str | None, list[inspect.Parameter]]:
    """Return the name of the parameter that takes the context, or None, and the other parameters."""
    refuse_other_libraries(function, hints)
    context_name: str | None = None
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        annotation = hints.get(parameter.name)
        if annotation in (Context, PlainContext) or (parameter.name == "ctx" and annotation is None):
            if context_name is not None:
                raise AuthoringError(f"{_name_of(function)}: only one parameter can take the context")
            if parameter.kind not in _NAMED:
                raise AuthoringError(
                    f"{_name_of(function)}: the parameter {parameter.name!r} must be named, "
                    "not positional-only, *args or **kwargs"
                )
            _check_context(function, parameter.name, annotation)
            context_name = parameter.name
        else:
            _refuse_context_in(function, parameter.name, annotation)
            parameters.append(parameter)
    return context_name, parameters


def _check_context(function: Callable[..., Any], name: str, annotation: Any) -> None:
    """Refuse an annotation that promises more than the function gets."""
    if annotation is Context and not inspect.iscoroutinefunction(function):
        raise AuthoringError(
            f"{_name_of(function)}: a function without `async` gets no Context; use `async def`, or annotate "
            f"`{name}: PlainContext`, which cannot ask; in `async def`, write `await` before its questions and steps"
        )


def _refuse_context_in(function: Callable[..., Any], name: str, annotation: Any) -> None:
    """Refuse a context in a union, which would become an argument of clients."""
    for kind in classes_in(annotation):
        if kind is PlainContext:
            raise AuthoringError(
                f"{_name_of(function)}: annotate the context as `{name}: Context`, without anything else"
            )


def _field(parameter: inspect.Parameter, annotation: Any) -> tuple[Any, Any]:
    """Return pydantic's definition of an argument. The author's `Field(…)` may be a default or in `Annotated`."""
    default = parameter.default
    annotation = _described(readable(annotation))
    if isinstance(default, FieldInfo):
        return Annotated[annotation, default], Field(alias=parameter.name)
    if default is inspect.Parameter.empty:
        return annotation, Field(alias=parameter.name)
    return annotation, Field(default, alias=parameter.name)


def _refuse_misfit_defaults(name: str, model: type[BaseModel], parameters: list[inspect.Parameter]) -> None:
    """Refuse a plain default of another type than its parameter's, which callers would get unchecked.

    None and objects of the author's classes can be marks for "not given".
    """
    defaults = {each.name: each.default for each in parameters if isinstance(each.default, _PLAIN)}
    if not defaults:
        return
    for problem in _misfits(model, defaults):
        parameter = str(problem["loc"][0]) if problem["loc"] else ""
        if parameter in defaults and problem["type"].endswith(_MISFITS):
            raise AuthoringError(
                f"{name}: the default {defaults[parameter]!r} of the parameter {parameter!r} does not fit its "
                f"annotation: {problem['msg']}"
            )


def _misfits(model: type[BaseModel], values: Mapping[str, Any]) -> list[ErrorDetails]:
    with contextlib.suppress(Exception):  # the author's validators may raise anything
        try:
            model.__pydantic_validator__.validate_python(values)
        except ValidationError as error:
            return error.errors(include_url=False, include_input=False, include_context=False)
    return []


def _described(annotation: Any) -> Any:
    """Make the text in `Annotated[int, "in metres"]` the description of the argument."""
    metadata: tuple[Any, ...] = getattr(annotation, "__metadata__", ())
    if len(metadata) == 1 and isinstance(metadata[0], str):
        return Annotated[annotation, Field(description=metadata[0])]
    return annotation


def _unservable(
    name: str, hints: Mapping[str, Any], parameters: list[inspect.Parameter], error: Exception
) -> AuthoringError:
    """Return an error that names the parameter whose type pydantic cannot serve."""
    for parameter in parameters:
        annotation = hints.get(parameter.name, Any)
        try:
            adapter = adapter_of(annotation)
            type_schema(adapter, "validation")
            bounded_validator(adapter.core_schema)
        except UNSERVABLE as own:
            return unservable(annotation, f"{name}: the parameter {parameter.name!r}", own)
    return AuthoringError(f"{name}: its parameters cannot be arguments: {str(error).splitlines()[0]}")


def _input_schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model_schema(model)
    schema.setdefault("properties", {})
    return schema


def _problems(error: ValidationError) -> str:
    count = error.error_count()
    if count > MAX_READ_PROBLEMS:
        return f"the arguments break the input schema in {count} places"
    problems = error.errors(include_url=False, include_input=False, include_context=False)[:MAX_PROBLEMS]
    lines = [f"{_place(problem['loc'])}: {problem['msg']}" for problem in problems]
    if count > MAX_PROBLEMS:
        lines.append(f"and {count - MAX_PROBLEMS} more")
    return "; ".join(lines)


def _place(location: tuple[int | str, ...]) -> str:
    return _cut(".".join(str(part) for part in location), MAX_PLACE_CHARACTERS)


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[:size] + "…"
