"""`scripts.annotations` finds the annotations of tools, prompts, resources and questions without importing anything."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from scripts.annotations.__main__ import main
from scripts.annotations.collecting import uses
from scripts.annotations.scopes import shared_names
from scripts.annotations.sources import sources


def collected(folder: Path, **files: str) -> list[tuple[str, str]]:
    """Return kind and annotation of every use in a project with these files; `__` in a name stands for a slash."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_md", ".md").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    found = list(sources(folder))
    around = shared_names(found)
    return [(use.kind, use.annotation) for source in found for use in uses(source, around[source.path])]


@pytest.mark.parametrize(
    ("annotation", "normal"),
    [
        ("Optional[Dict[str, 'List[int]']]", "dict[str, list[int]] | None"),
        ("None | Union[str, int]", "int | str | None"),
        ("t.Literal['x', 'y', 3]", "Literal['a', 'b', 1, 2]"),
        ("Annotated[int, Field(ge=5, description='x'), 'y']", "Annotated[int, Field(description=..., ge=...), 'text']"),
        ("list[Person] | Level", "Enum | list[Model]"),
        ("Context[Any, Any]", "Context"),
        ("Numbers", "list[int]"),
    ],
)
def test_an_annotation_gets_a_normal_form(tmp_path: Path, annotation: str, normal: str) -> None:
    text = f"""
        import typing as t
        class Base(BaseModel): ...
        class Person(Base): ...
        class Level(Enum): ...
        Numbers = List[int]

        @mcp.tool()
        def f(x: {annotation}): ...
    """
    assert collected(tmp_path, tests__x_py=text) == [("tool parameter", normal), ("tool result", "(none)")]


def test_functions_are_found_by_decorator_and_by_registration(tmp_path: Path) -> None:
    text = """
        class Desk:
            @tool
            async def book(self, day: date, /, *, ctx: Context = CurrentContext()) -> bool: ...

        def test():
            def summary(topic: str = None) -> list[Message]: ...
            Prompt.from_function(summary)
            mcp.add_tool(lambda x: x)

        @mcp.resource("x://{path}")
        def page(path: str) -> bytes: ...

        def plain(x: float) -> float: ...
    """
    assert collected(tmp_path, tests__x_py=text) == [
        ("tool parameter", "date"),
        ("tool parameter", "Context = CurrentContext()"),
        ("tool result", "bool"),
        ("prompt parameter", "str = None"),
        ("prompt result", "list[Message]"),
        ("resource parameter", "str"),
        ("resource result", "bytes"),
    ]


def test_questions_are_found_with_the_fields_of_their_models(tmp_path: Path) -> None:
    text = """
        class Trip(BaseModel):
            days: int
            note: str | None = None

        async def f(ctx):
            await ctx.elicit("?", Trip)
            await ctx.elicit(message="?", response_type=["low", "high"])
            await ctx.elicit("?", schema={"type": "object"})
    """
    assert collected(tmp_path, tests__x_py=text) == [
        ("question", "Model"),
        ("question field", "int"),
        ("question field", "str | None"),
        ("question", "['a', 'b']"),
        ("question", "(JSON Schema)"),
    ]


def test_the_cases_of_a_parametrised_test_are_collected_one_by_one(tmp_path: Path) -> None:
    text = """
        @pytest.mark.parametrize(("kind", "value"), [(int, 1), pytest.param(Person, 2)])
        def test(kind, value):
            @mcp.tool
            def f() -> kind: ...
    """
    assert collected(tmp_path, tests__x_py=text) == [("tool result", "int"), ("tool result", "Person")]


def test_pages_are_read_block_by_block_and_earlier_releases_left_out(tmp_path: Path) -> None:
    page = """
        ```python title="one"
        class Trip(BaseModel): ...
        ```
        - then:

            ```py
            @mcp.tool
            def f() -> Trip: ...
            ```

        ```python
        not Python
        ```
    """
    assert collected(tmp_path, docs__page_md=page, docs__v2__page_md=page) == [("tool result", "Model")]


def test_the_command_prints_a_sorted_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    collected(tmp_path, README_md="```python\n@tool\ndef f(x: int, y: int): ...\n```\n")
    capsys.readouterr()
    assert main([str(tmp_path)]) == 0
    place = f"{tmp_path.name}/README.md:3"
    assert capsys.readouterr().out.splitlines() == [
        "kind\tannotation\tuses\texample",
        f"tool parameter\tint\t2\t{place}",
        f"tool result\t(none)\t1\t{place}",
    ]
