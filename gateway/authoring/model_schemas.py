"""JSON Schema of the author's models: of arguments, results, and what forms are made of."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema


class _WithoutTitles(GenerateJsonSchema):
    """Leaves out the titles that pydantic makes up from names; a title the author wrote stays."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        """Never: `fieldName` says as much as "Field Name"."""
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Drop the title that is only the class name."""
        result = super().model_schema(schema)
        if result.get("title") == schema["cls"].__name__ and "title" not in schema["cls"].model_config:
            result.pop("title")
        return result


def model_schema(model: type[BaseModel], mode: Literal["validation", "serialization"] = "validation") -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of a model as it is read or as it is told, with the author's titles only."""
    return model.model_json_schema(schema_generator=_WithoutTitles, mode=mode)
