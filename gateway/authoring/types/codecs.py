"""Reads and writes the values of a type annotation as JSON, through pydantic.

A `Codec` writes a value so that it can be read again: steps and checkpoints record values this way.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import types
import typing
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from pydantic import (
    ConfigDict,
    JsonValue,
    PydanticInvalidForJsonSchema,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import PydanticSerializationError, SchemaError, to_jsonable_python

from gateway.authoring.types.typed_dicts import UNIONS, readable
from gateway.engine.values import MAX_DEPTH, Json, json_value
from gateway.errors import AuthoringError

MAX_PROBLEMS: Final = 10
"""How many wrong parts of a value one error names."""

_SCALARS: Final = (str, int, float, bool, None, type(None))
_UNCHECKED: Final = (Any, object, JsonValue, dict, list, inspect.Parameter.empty)
_AWAITABLES: Final = (Awaitable, Coroutine)

_UNKNOWN_TYPE: Final = re.compile(r"Unable to generate pydantic-core schema for (?:<class '([^']+)'>|(.+?))\. ")
_QUALIFIER: Final = re.compile(r"(?:(?:\w+|<locals>)\.)+")
_MEMBER: Final = re.compile(r"<\w+\.\w+: ")
"""A member of an enum in `Literal`, in pydantic's words."""
_WRONG_FIELD: Final = re.compile(r"field_name='(\w+)'")

_EXACT_BYTES: Final = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
"""By default pydantic writes bytes as UTF-8, which not all bytes are."""


class Codec:
    """Writes the values of one annotation as JSON, and reads them again. Make one with `codec_for`.

    `name` is what an error calls the type.
    """

    def __init__(self, annotation: Any) -> None:
        # The tuple carries the configuration, which pydantic does not take for a model or a dataclass itself.
        self._adapter: TypeAdapter[Any] = adapter_of(tuple.__class_getitem__(annotation), _EXACT_BYTES)
        self.name = name_of(annotation)

    def encode(self, value: object, where: str) -> Json:
        """Return a value as JSON.

        The value may be something that pydantic converts to the type. `where` names it in an error, such as `the result
        of step 'fetch'`.

        Raises:
            AuthoringError: the value does not fit the type, or cannot be written as JSON. The message quotes no value.
        """
        return self.write(self.fit(value, where), where)

    def fit(self, value: object, where: str) -> Any:
        """Return a value of the type. The validators of the type run, and may change the value itself.

        Raises:
            AuthoringError: the value does not fit the type.
        """
        try:
            return self._adapter.validate_python((value,))[0]
        except ValidationError as error:
            raise AuthoringError(f"{where} is not a valid {self.name}: {problems_of(error, 1)}") from None
        except Exception as error:  # noqa: BLE001 - validators are the author's code and may raise anything
            raise AuthoringError(f"{where} cannot be written as JSON: {why_not_written(error)}") from None

    def write(self, value: object, where: str) -> Json:
        """Return a value of the type as JSON.

        Raises:
            AuthoringError: the value, or a part of it, has another type.
        """
        try:
            whole = (value,)
            written = self._adapter.dump_python(whole, mode="json", by_alias=False, round_trip=True, warnings="error")
        except Exception as error:  # noqa: BLE001 - serializers are the author's code and may raise anything
            raise AuthoringError(f"{where} cannot be written as JSON: {why_not_written(error)}") from None
        return json_value(written[0], where)

    def decode(self, value: Json, where: str) -> Any:
        """Return the value that was encoded.

        Raises:
            AuthoringError: the JSON does not fit the type, for example because the type has changed since.
        """
        try:
            return self._adapter.validate_json(msgspec.json.encode([value]), by_alias=False, by_name=True)[0]
        except ValidationError as error:
            raise AuthoringError(f"{where} cannot be read as {self.name}: {problems_of(error, 1)}") from None

    def schema(self, mode: Literal["validation", "serialization"] = "serialization") -> dict[str, Any]:
        """Return the JSON Schema of an encoded value."""
        whole = self._adapter.json_schema(by_alias=False, mode=mode)
        schema: dict[str, Any] = whole["prefixItems"][0]
        return {**schema, "$defs": whole["$defs"]} if "$defs" in whole else schema


def codec_for(annotation: Any, owner: str) -> Codec | None:
    """Return the codec of an annotation, or None if all its values are JSON already. Codecs are cached.

    The annotation is one whose forward references are resolved, such as `return_annotation` returns. Errors name the
    owner, such as `the step 'fetch'`.

    Raises:
        AuthoringError: pydantic does not know the type. The message names type, owner and way out.
    """
    if is_json_type(annotation):
        return None
    try:
        if not _is_hashable(annotation):  # for example a constraint in `Annotated`
            return Codec(annotation)
        # Equal unions may differ in their order, which decides when a value fits two choices.
        return _cached_codec(annotation, "" if isinstance(annotation, type) else repr(annotation))
    except UNSERVABLE as error:
        raise unservable(annotation, owner, error) from None


@functools.lru_cache(maxsize=128)
def _cached_codec(annotation: Any, _order: str) -> Codec:
    return Codec(annotation)


def is_json_type(annotation: Any) -> bool:
    """Return whether every value of an annotation is JSON already, or the annotation says nothing about it."""
    if annotation in _UNCHECKED or annotation in _SCALARS:
        return True
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is dict:
        return parts == () or (parts[0] is str and is_json_type(parts[1]))
    if origin is list or origin in UNIONS:
        return all(map(is_json_type, parts))
    return origin is Literal and all(type(part) in _SCALARS for part in parts)


def return_annotation(function: Callable[..., Any]) -> Any:
    """Return what a function's value is annotated with, or `inspect.Parameter.empty`.

    Forward references are resolved in the function's module and in the variables that it uses of an outer function.

    Raises:
        AuthoringError: a name in the annotation is not defined.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isclass(function):
        return function
    if not hasattr(function, "__annotations__"):
        function = type(function).__call__
    annotation = getattr(function, "__annotations__", {}).get("return", inspect.Parameter.empty)
    if annotation is inspect.Parameter.empty or isinstance(annotation, type):
        return annotation
    annotation = _resolved(annotation, inspect.unwrap(function))
    is_awaited = typing.get_origin(annotation) in _AWAITABLES and not inspect.iscoroutinefunction(function)
    return typing.get_args(annotation)[-1] if is_awaited else annotation


def _resolved(annotation: Any, function: Callable[..., Any]) -> Any:
    holder = types.SimpleNamespace(__annotations__={"return": annotation})
    where = getattr(function, "__qualname__", repr(function))
    names, outer = getattr(function, "__globals__", {}), outer_names(function)
    return hints_of(holder, names, outer, where, "its return annotation")["return"]


def hints_of(holder: Any, names: dict[str, Any] | None, outer: dict[str, Any], where: str, what: str) -> dict[str, Any]:
    """Return the annotations of a function or a namespace; `where` and `what` begin the errors.

    Raises:
        AuthoringError: an annotation is not defined, or raises something: annotations are code.
    """
    try:
        return typing.get_type_hints(holder, names, outer, include_extras=True)
    except NameError as error:
        raise AuthoringError(f"{where}: the annotation {error.name!r} is not defined in its module") from None
    except Exception as error:  # noqa: BLE001 - see above
        raise AuthoringError(f"{where}: {what} cannot be read: {error}") from None


def outer_names(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the variables of outer functions that a function uses."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    outer = zip(code.co_freevars, cells, strict=True) if code is not None else ()
    return {name: cell.cell_contents for name, cell in outer if _is_filled(cell)}


def _is_filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # it is empty
        return False
    return True


UNSERVABLE: Final = (PydanticUserError, NameError, TypeError, RecursionError, SchemaError)
"""The errors of pydantic for an annotation that it cannot serve."""


def adapter_of(annotation: Any, config: ConfigDict | None = None) -> TypeAdapter[Any]:
    """Return pydantic's adapter of a type; see `UNSERVABLE` for what it raises."""
    adapter: TypeAdapter[Any] = TypeAdapter(readable(annotation), config=config)
    if not adapter.pydantic_complete:
        adapter.rebuild()  # raises an error that names what is undefined
    return adapter


def unservable(annotation: Any, owner: str, error: Exception) -> AuthoringError:
    """Return the error for an annotation that pydantic cannot serve."""
    unknown = _UNKNOWN_TYPE.search(str(error))
    if unknown is not None or isinstance(error, PydanticInvalidForJsonSchema):
        culprit = name_of(annotation) if unknown is None else _short(unknown[1] or unknown[2])
        within = f" in {name_of(annotation)}" if culprit != name_of(annotation) else ""
        return AuthoringError(
            f"{owner}: the type {culprit}{within} has no JSON form; use a pydantic model, a dataclass, a TypedDict or "
            "`Any` instead"
        )
    if isinstance(error, (NameError, RecursionError)):
        undefined = f"{error.name!r} is not defined" if isinstance(error, NameError) else "it refers to itself"
        return AuthoringError(
            f"{owner}: the type {name_of(annotation)} cannot be resolved, because {undefined}; define its names before "
            "the function, and use pydantic.JsonValue for a type of any JSON"
        )
    return AuthoringError(f"{owner}: the type {name_of(annotation)} cannot be served: {str(error).splitlines()[0]}")


def name_of(annotation: Any) -> str:
    """Return an annotation as an author would write it."""
    if typing.get_origin(annotation) is Annotated:
        return name_of(typing.get_args(annotation)[0])
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return _short(annotation.__qualname__)
    return _short(repr(annotation))


def _short(name: str) -> str:
    """Drop the modules from a type's name."""
    return _QUALIFIER.sub("", name)


def problems_of(error: ValidationError, skipped: int = 0) -> str:
    """Return what is wrong with a value, by field, in pydantic's words. No value is quoted.

    The first `skipped` parts of each place are our own, not the author's.
    """
    problems = error.errors(include_url=False, include_input=False)[:MAX_PROBLEMS]
    lines = [": ".join(filter(None, (_place(each["loc"][skipped:]), _reason(each)))) for each in problems]
    if error.error_count() > MAX_PROBLEMS:
        lines.append(f"and {error.error_count() - MAX_PROBLEMS} more")
    return "; ".join(lines)


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)


def _reason(problem: Any) -> str:
    if problem["type"] == "union_tag_invalid":  # pydantic's words quote the tag
        return f"The value of {problem['ctx']['discriminator']} should be one of {problem['ctx']['expected_tags']}"
    if problem["type"] == "literal_error" and _MEMBER.search(problem["ctx"]["expected"]):
        return f"{problem['msg']}, which JSON lacks; use a `str` enum, or give the value a JSON form"
    return str(problem["msg"])


def why_not_written(error: Exception) -> str:
    """Return why pydantic could not write a value, without quoting the value."""
    if isinstance(error, UnicodeDecodeError) or "utf-8" in str(error):
        return (
            "bytes that are not UTF-8; set ser_json_bytes and val_json_bytes in the model's configuration to 'base64'"
        )
    if not isinstance(error, PydanticSerializationError):
        return type(error).__name__
    fields = _WRONG_FIELD.findall(str(error))
    if fields:
        return f"the field {fields[0]} has a value of the wrong type"
    return str(error).splitlines()[0]


def _is_hashable(annotation: Any) -> bool:
    try:
        hash(annotation)
    except TypeError:
        return False
    return True


def written_value(value: object, where: str) -> Json:
    """Return a value without an annotation as JSON. Pydantic writes the parts that are not JSON themselves.

    Raises:
        AuthoringError: a part of the value has no JSON form; the message names the part.
    """
    try:
        return json_value(value, where)
    except AuthoringError:
        return json_value(_plain(value, where, MAX_DEPTH), where)


def _plain(value: object, where: str, depth: int) -> object:
    """Return a value with every part that pydantic can write replaced by its JSON."""
    if depth == 0 or value is None or isinstance(value, (str, int, float, Iterator)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{index}]", depth - 1) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        written = {_name(name, where): _plain(item, f"{where}.{name}", depth - 1) for name, item in value.items()}
        if len(written) < len(value):
            raise AuthoringError(f"{where}: two keys of the dict are equal in JSON")
        return written
    with contextlib.suppress(Exception):  # serializers are the author's code; the caller names the value
        return to_jsonable_python(value, by_alias=True)
    return value


def _name(key: object, where: str) -> object:
    """Return the name that pydantic writes for the key of a dict."""
    try:
        (name,) = to_jsonable_python({key: None})
    except Exception:  # noqa: BLE001 - serializers are the author's code
        raise AuthoringError(f"{where}: a key of type {type(key).__name__} is not a JSON name") from None
    return name
