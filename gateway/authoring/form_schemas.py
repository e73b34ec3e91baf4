"""Form schemas, made from the pydantic models that validate the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import AliasChoices, AliasPath, BaseModel, PydanticUserError

from gateway.authoring.model_schemas import model_schema
from gateway.errors import AuthoringError

FORM_TYPES = frozenset({"string", "number", "integer", "boolean"})
"""The types of a form's fields. Lists of choices are allowed too (MCP "Elicitation", Requested Schema)."""

FORM_FORMATS = frozenset({"email", "uri", "date", "date-time"})
"""The formats of a form's text fields. Others are left out of the form, and checked when the answer is read."""


def form_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the `requestedSchema` of a form that asks for this model.

    Raises:
        AuthoringError: the model has a field that a form cannot show. Forms are flat.
    """
    try:
        schema = model_schema(model)
    except PydanticUserError as error:
        raise AuthoringError(f"{model.__name__}: {error.message.splitlines()[0]}") from None
    if schema.get("type") != "object":
        raise AuthoringError(f"{model.__name__}: a form needs named fields; use a flat model that has fields")
    _check_aliases(model)
    definitions = schema.get("$defs", {})
    form: dict[str, Any] = {"type": "object", "properties": {}}
    for name, field in schema.get("properties", {}).items():
        form["properties"][name] = _form_field(field, definitions, f"{model.__name__}.{name}")
    for keyword in ("required", "title", "description"):
        if keyword in schema:
            form[keyword] = schema[keyword]
    return form


def _form_field(field: Mapping[str, Any], definitions: Mapping[str, Any], where: str) -> dict[str, Any]:
    flat = dict(field)
    if "$ref" in flat:
        referred = definitions[flat.pop("$ref").rpartition("/")[2]]
        flat = {**referred, **flat}
        if flat.get("title") == field.get("$ref", "").rpartition("/")[2]:
            flat.pop("title")
    if flat.get("default", ...) is None:
        flat.pop("default")
    options = [option for option in flat.get("anyOf", ()) if option.get("type") != "null"]
    if len(options) == 1:
        flat.pop("anyOf")
        return _form_field({**options[0], **flat}, definitions, where)
    if "const" in flat:
        flat["enum"] = [flat.pop("const")]
    if flat.get("format") == "password":
        raise AuthoringError(f"{where}: a form must not ask for secrets; send the user to a page with elicit_url")
    if flat.get("format", "date") not in FORM_FORMATS:
        flat.pop("format")
    if flat.get("type") == "array":
        flat["items"] = _form_field(flat.get("items", {}), definitions, where)
        if flat["items"]["type"] != "string" or not {"enum", "anyOf"} & flat["items"].keys():
            raise AuthoringError(f"{where}: a list in a form must offer text choices; annotate it as list[Literal[…]]")
    elif flat.get("type") not in FORM_TYPES:
        raise AuthoringError(f"{where}: forms are flat; a field must be text, a number, a boolean or a choice")
    return flat


def _check_aliases(model: type[BaseModel]) -> None:
    """Refuse a field that is read from inside another one, because no answer to the form would be valid."""
    for name, field in model.model_fields.items():
        alias = field.validation_alias
        first = alias.choices[0] if isinstance(alias, AliasChoices) else alias
        if isinstance(first, AliasPath):
            raise AuthoringError(f"{model.__name__}.{name}: forms are flat; give the field an alias without a path")


def form_values(model: BaseModel) -> dict[str, Any]:
    """Return the content of a form that is filled in with the values of `model`, by property name."""
    kind = type(model)
    by_alias = kind.model_config.get("validate_by_alias", True)
    names = {}
    for name, field in kind.model_fields.items():
        alias = field.validation_alias if by_alias else None
        first = alias.choices[0] if isinstance(alias, AliasChoices) else alias
        names[name] = first if isinstance(first, str) else name
    return {names.get(name, name): value for name, value in model.model_dump(mode="json").items()}
