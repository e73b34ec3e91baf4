"""Forms with every allowed keyword, each as a pydantic model and as the schema that clients see."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, create_model

from gateway.authoring.forms.reading import form_of
from tests.security.schema_cases import Make, Shape, distinct, items, text

_NESTED: Final = 80

Colour = Literal["red", "green", "blue"]


@dataclass(frozen=True)
class FormCase:
    """A form with one field `v`.

    Args:
        name: what the test is called.
        kind: the type of the field.
        make: makes what is filled in, except the deepest one.
        more: keywords that only a schema can have.
        may_refuse: whether a schema may refuse what fits, as too much to check.
    """

    name: str
    kind: Any
    make: Make
    more: Mapping[str, Any] = field(default_factory=dict)
    may_refuse: bool = False

    @property
    def model(self) -> type[BaseModel]:
        """The form as a model."""
        return create_model(f"Form_{self._identifier}", v=(self.kind, ...))

    @property
    def raw(self) -> dict[str, Any]:
        """The form as a schema."""
        form = form_of(self.model).schema
        return {**form, "properties": {"v": {**form["properties"]["v"], **self.more}}}

    @property
    def _identifier(self) -> str:
        return self.name.replace(" ", "_")

    def tool(self, kind: str) -> str:
        """Return the name of the tool that asks while the client waits."""
        return f"ask_{kind}_{self._identifier}"

    def task(self, kind: str) -> str:
        """Return the name of the tool that asks as a task."""
        return f"task_{kind}_{self._identifier}"

    def content(self, shape: Shape, size: int) -> str:
        """Return the JSON text of a filled-in form, of about this size."""
        if shape is Shape.DEEPEST:
            return f'{{"v":{"[" * _NESTED}{self.make(Shape.ALL, size)}{"]" * _NESTED}}}'
        return f'{{"v":{self.make(shape, size)}}}'


def _one(good: str, bads: Make) -> Make:
    """Fill in one valid value, padded to size by an unknown field, or values that are not valid."""

    def make(shape: Shape, size: int) -> str:
        if shape is Shape.VALID:
            return f'{good},"more":{items("1", "1")(shape, size)}'
        return bads(shape, size)

    return make


FORMS: Final = (
    FormCase("text", Annotated[str, Field(max_length=100)], _one('"a"', text("ä", "ä"))),
    FormCase("pattern", Annotated[str, Field(pattern="^(a+)+$")], text("a", "!")),
    FormCase("integer", Annotated[int, Field(ge=0, le=10)], _one("4", items("4", "11"))),
    FormCase(
        "number",
        Annotated[float, Field(ge=0, le=10)],
        _one("0.5", items("1e300", "0.3")),
        {"exclusiveMinimum": 0, "exclusiveMaximum": 10, "multipleOf": 0.25},
        may_refuse=True,
    ),
    FormCase("boolean", bool, _one("true", items("true", '"x"'))),
    FormCase("date", dt.date, _one('"2026-07-28"', items('"2026-07-28"', "1"))),
    FormCase("choice", Colour, _one('"red"', items('"red"', '"pink"'))),
    FormCase("choices", list[Colour], items('"red"', "1")),
    FormCase("choices of objects", list[Colour], items('"red"', '{"a":1}')),
    FormCase("three choices", Annotated[list[Colour], Field(max_length=3)], _one('["red"]', items('"red"', '"pink"'))),
    FormCase("different choices", set[Colour], _one('["red","blue"]', items('"red"', "1"))),
    FormCase("different objects", set[Colour], _one('["red"]', distinct('{"a":#}'))),
)
"""Forms that clients are asked for."""
