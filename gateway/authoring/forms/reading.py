"""Forms: what a client shows for a type or a list of choices, and how its answers become values."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Final, Literal, NewType, TypeAlias, Union, get_args, get_origin

import msgspec
from pydantic import (
    BaseModel,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    create_model,
)
from pydantic_core import CoreSchema, SchemaError, SchemaValidator
from typing_extensions import TypeAliasType, is_typeddict

from gateway.authoring.forms.misfit_texts import misfit_of_model
from gateway.authoring.forms.schemas import FIELD, FormSchemas, Texts, bare, flat_form, property_names, type_name
from gateway.authoring.types.codecs import adapter_of
from gateway.authoring.types.model_validators import bounded_validator
from gateway.authoring.types.reading_costs import reads_json_texts
from gateway.engine.questions import ELICIT, InvalidAnswer, question_digest
from gateway.errors import AuthoringError

Choices: TypeAlias = list[str] | list[tuple[str, str]]
"""The texts to choose from, or pairs of a text and the title that the user sees instead."""

SeveralChoices: TypeAlias = list[list[str]] | list[list[tuple[str, str]]]
"""The same in a list, to let the user choose several."""

MOST_FORMS: Final = 10_000
"""How many forms are known by their digest. A tool that creates a model in each call must not fill the memory."""

_EXACT_FLOATS: Final = 2**53
"""Below this, a float with an integral value is exactly that integer."""

_forms: Final[dict[bytes, Form | None]] = {}


class Reader:
    """Reads what a client answers as a type.

    It validates strictly as JSON: `"5"` is not a number, but a string can be a date.
    """

    def __init__(
        self, validator: SchemaValidator, texts: Mapping[str, Texts] | None = None, *, has_one_field: bool = False
    ) -> None:
        self.has_one_field = has_one_field
        self.fields: Mapping[str, Any] = {}
        self._validate = validator.validate_json
        self._texts = texts

    def read(self, content: Mapping[str, Any]) -> Any:
        """Return the value that the content of an answer stands for.

        Raises:
            InvalidAnswer: the content does not fit the type.
        """
        given = {name: _integral(item) if type(item) is float else item for name, item in content.items()}
        if self._texts:
            given |= {name: _chosen(texts, given[name]) for name, texts in self._texts.items() if name in given}
        try:  # as `model_validate_json` does, without its options
            value = self._validate(msgspec.json.encode(given), strict=True)
        except ValidationError as error:
            raise misfit_of_model(error, content, self.fields, of_one_field=self.has_one_field) from None
        except (ValueError, RecursionError):
            raise InvalidAnswer from None
        return getattr(value, FIELD) if self.has_one_field else value


class Form(Reader):
    """A form and the reader of its answers.

    `has_one_field` says whether the type is that of the only field, `value`.
    """

    def __init__(
        self,
        kind: Any,
        schema: dict[str, Any],
        identity: dict[str, Any],
        texts: Mapping[str, Texts],
        validator: SchemaValidator,
        *,
        has_one_field: bool,
    ) -> None:
        super().__init__(validator, texts, has_one_field=has_one_field)
        self.kind = kind
        self.schema = schema
        self.fields = schema["properties"]
        self.digest = question_digest(ELICIT, {"mode": "form", "requestedSchema": identity})

    def titled(self, message: str) -> dict[str, Any]:
        """Return the `requestedSchema`, with the first line of the message as the title of the field `value`."""
        title = message.partition("\n")[0]
        if not title or not self.has_one_field:
            return self.schema
        return {**self.schema, "properties": {FIELD: {"title": title, **self.schema["properties"][FIELD]}}}


def form_of(kind: Any) -> Form:
    """Return the form that asks for a type, or for one of a list of choices.

    Raises:
        AuthoringError: no form can ask for it.
    """
    if isinstance(kind, type):
        return form_of_class(kind)
    if isinstance(kind, Form):
        return kind
    if isinstance(kind, list):
        return _form_of_choices(kind)
    if get_origin(kind) is None and not isinstance(kind, NewType | TypeAliasType):
        given = "None" if kind is None else f"an object of the type {type_name(type(kind))}"
        raise AuthoringError(
            f"{given} is neither a type, a list of choices nor a JSON Schema; to let the user confirm, use bool"
        )
    # Python takes two Literals for the same if only the order of their choices differs.
    return _form_of_type(kind, repr(kind)) if _is_hashable(kind) else _remembered(_made(kind))


def form_by_digest(digest: bytes) -> Form | None:
    """Return the form that this process has made with a digest; None if there is none, or more than one."""
    return _forms.get(digest)


@lru_cache(maxsize=1024)
def form_of_class(kind: type[Any]) -> Form:
    """Return the form that asks for a class, at the cost of a look-up."""
    return _remembered(_made(kind))


@lru_cache(maxsize=1024)
def _form_of_type(kind: Hashable, _order: str) -> Form:
    return _remembered(_made(kind))


def _remembered(form: Form) -> Form:
    """Let `form_by_digest` find a form, unless it has one field: other tools may ask for another type with its schema.

    Forms of choices can be read by their schema too, and may differ in each call.
    """
    if not form.has_one_field and len(_forms) < MOST_FORMS:
        known = _forms.get(form.digest, form)
        _forms[form.digest] = form if known is not None and known.kind == form.kind else None
    return form


def _form_of_choices(given: list[Any]) -> Form:
    several = len(given) == 1 and isinstance(given[0], list)
    pairs = [(choice, "") if isinstance(choice, str) else choice for choice in (given[0] if several else given)]
    if not _are_different_pairs(pairs):
        numbers = [choice for choice in given if type(choice) is int]
        instead = f"; for numbers, use Literal{numbers}" if given and numbers == given else ""
        raise AuthoringError(
            f"a list of choices needs different texts, or pairs of a text and a title, at least one{instead}"
        )
    return _form_of_pairs(tuple(pairs), several=several)


def _are_different_pairs(given: list[Any]) -> bool:
    return bool(given) and all(map(_is_pair, given)) and len(dict(given)) == len(given)


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and all(isinstance(part, str) for part in given)


@lru_cache(maxsize=256)
def _form_of_pairs(pairs: tuple[tuple[str, str], ...], *, several: bool) -> Form:
    one: Any = Literal[tuple(text for text, _ in pairs)]
    kind: Any = list[one] if several else one
    if any(title for _, title in pairs):
        titled = [{"const": text, "title": title or text} for text, title in pairs]
        field = {"type": "array", "items": {"anyOf": titled}} if several else {"type": "string", "oneOf": titled}
        kind = Annotated[kind, WithJsonSchema(field)]
    return _made(kind)


def _is_hashable(kind: Any) -> bool:
    try:
        hash(kind)
    except TypeError:  # its annotations are not
        return False
    return True


def _made(kind: Any) -> Form:
    try:
        if _has_fields(kind):
            return _form_of_fields(kind)
        return _form_of_one_field(kind)
    except PydanticSchemaGenerationError:
        raise AuthoringError(
            f"{type_name(kind)}: no form can ask for this type; use a flat pydantic model, a dataclass, str, int, "
            "float, bool, a date, or a choice (Literal or Enum)"
        ) from None
    except (SchemaError, ImportError, TypeError) as error:  # a wrong constraint, or a type that needs another package
        raise AuthoringError(f"{type_name(kind)}: {_last_line(error)}") from None
    except PydanticUserError as error:
        if error.code in ("class-not-fully-defined", "undefined-annotation") and not _has_fields(kind):
            raise AuthoringError(
                f"{type_name(kind)}: a name in it is not defined; write the type itself, without quotes"
            ) from None
        raise AuthoringError(f"{type_name(kind)}: {error.message.splitlines()[0]}") from None


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in reversed(lines) if line and not line.startswith("For further")), "")


def _has_fields(kind: Any) -> bool:
    base = get_origin(bare(kind)) or bare(kind)
    if not isinstance(base, type):
        return False
    return issubclass(base, BaseModel) or dataclasses.is_dataclass(base) or is_typeddict(base)


def _form_of_fields(kind: Any) -> Form:
    adapter = adapter_of(kind)
    schema = adapter.json_schema(schema_generator=FormSchemas)
    base = bare(kind)
    annotations: dict[str, Any] = dict(getattr(base, "__annotations__", {}))
    if isinstance(base, type) and issubclass(base, BaseModel):
        names = property_names(base)
        annotations = {names[name]: field.annotation for name, field in base.model_fields.items()}
    form, identity, texts = flat_form(schema, type_name(kind), annotations)
    return Form(kind, form, identity, texts, _validator(adapter.core_schema), has_one_field=False)


def _form_of_one_field(kind: Any) -> Form:
    field: Any = (kind, None) if _may_be_none(kind) else kind
    model = create_model("Form", **{FIELD: field})
    schema = TypeAdapter[Any](model).json_schema(schema_generator=FormSchemas)
    form, identity, texts = flat_form(schema, "", {FIELD: kind})
    return Form(kind, form, identity, texts, _validator(model.__pydantic_core_schema__), has_one_field=True)


def _validator(schema: CoreSchema) -> SchemaValidator:
    if reads_json_texts(schema):
        raise TypeError("a form cannot ask for values as a text of JSON (pydantic.Json); ask for the values themselves")
    return bounded_validator(schema)


def _may_be_none(kind: Any) -> bool:
    kind = bare(kind)
    if isinstance(kind, TypeAliasType):
        return _may_be_none(kind.__value__)
    if isinstance(kind, NewType):
        return _may_be_none(kind.__supertype__)
    return get_origin(kind) in (Union, UnionType) and type(None) in get_args(bare(kind))


def _chosen(texts: Texts, given: Any) -> Any:
    """Return the values of the choices that stand in the form as texts."""
    if isinstance(given, list):
        return [texts.get(item, item) if isinstance(item, str) else item for item in given]
    return texts.get(given, given) if isinstance(given, str) else given


def _integral(value: float) -> int | float:
    """Return 5.0 as 5: they are the same number in JSON Schema, and a form's integer accepts both."""
    return int(value) if value.is_integer() and abs(value) < _EXACT_FLOATS else value
