"""JSON Schemas of the author's types, for arguments, results and forms."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import override

Mode = Literal["validation", "serialization"]


class WithoutTitles(GenerateJsonSchema):
    """Omits the titles that pydantic derives from names. A title that the author wrote stays."""

    @override
    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False: a title such as "Field Name" adds nothing to `fieldName`."""
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Drop a title that only repeats the class name."""
        return _untitled(super().model_schema(schema), schema["cls"], "model_config")

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """Drop a title that only repeats the class name."""
        return _untitled(super().dataclass_schema(schema), schema["cls"], "__pydantic_config__")

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        """Drop a title that only repeats the class name."""
        return _untitled(super().typed_dict_schema(schema), schema.get("cls"), "__pydantic_config__")

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        """Drop the format of results: RFC 3339 has no fractions of a second in it, and no sign."""
        return self._written_freely(super().timedelta_schema(schema))

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        """Drop the format of results that may have no time zone, which RFC 3339 demands."""
        result = super().datetime_schema(schema)
        return result if schema.get("tz_constraint") == "aware" else self._written_freely(result)

    def time_schema(self, schema: core_schema.TimeSchema) -> JsonSchemaValue:
        """Drop the format of results that may have no time zone, which RFC 3339 demands."""
        return self._written_freely(super().time_schema(schema))

    def _written_freely(self, result: JsonSchemaValue) -> JsonSchemaValue:
        if self.mode == "serialization":
            result.pop("format", None)
        return result


def _untitled(result: JsonSchemaValue, cls: type[Any] | None, config: str) -> JsonSchemaValue:
    if result.get("title") == getattr(cls, "__name__", None) and "title" not in getattr(cls, config, {}):
        result.pop("title", None)
    return result


def model_schema(model: type[BaseModel], mode: Mode = "validation") -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of a model, for reading or for writing it, with only the author's titles."""
    return model.model_json_schema(schema_generator=WithoutTitles, mode=mode)


def type_schema(adapter: TypeAdapter[Any], mode: Mode) -> dict[str, Any]:
    """Return the same for any type."""
    return adapter.json_schema(schema_generator=WithoutTitles, mode=mode)
