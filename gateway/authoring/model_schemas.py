"""JSON Schemas of the author's models, for arguments, results and forms."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema


class WithoutTitles(GenerateJsonSchema):
    """Omits the titles that pydantic derives from names. A title that the author wrote stays."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        """Return False: a title such as "Field Name" adds nothing to `fieldName`."""
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Drop a title that only repeats the class name."""
        result = super().model_schema(schema)
        if result.get("title") == schema["cls"].__name__ and "title" not in schema["cls"].model_config:
            result.pop("title")
        return result


def model_schema(model: type[BaseModel], mode: Literal["validation", "serialization"] = "validation") -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of a model, for reading or for writing it, with only the author's titles."""
    return model.model_json_schema(schema_generator=WithoutTitles, mode=mode)
