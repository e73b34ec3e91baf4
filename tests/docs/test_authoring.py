"""The authors' guide names everything that authors can use."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_args

import pytest

import gateway
from gateway import content, prompt, resource, testing, tool
from gateway.authoring.context import AWAITED
from gateway.authoring.served import TaskStart, TaskSupport
from tests.docs.markdown import GUIDE, links_of, text_of

TEXT = "\n".join(text_of(page) for page in GUIDE)
FENCED = re.compile(r"^```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROSE = FENCED.sub("", TEXT)
CODE = "\n".join([*FENCED.findall(TEXT), *re.findall(r"`([^`]+)`", PROSE)])
START = "docs/build/authoring.md"


def public(names: typing.Iterable[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def section(heading: str) -> str:
    """Return everything under a heading of level three, up to the next heading."""
    found = re.search(rf"^### {heading}\n(.*?)(?=^#|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"the guide has no section {heading!r}"
    return found[1]


def options_of(decorator: Callable[..., Any]) -> set[str]:
    """Return the keywords of a decorator, from its type hints."""
    signatures = [inspect.signature(variant) for variant in [decorator, *typing.get_overloads(decorator)]]
    return {
        parameter.name
        for signature in signatures
        for parameter in signature.parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


@pytest.mark.parametrize("page", sorted(set(GUIDE) - {START}))
def test_the_start_of_the_guide_links_every_page_and_each_links_back(page: str) -> None:
    assert page.removeprefix("docs/build/") in {file for file, _ in links_of(START)}
    assert ("authoring.md", "") in links_of(page)


@pytest.mark.parametrize(
    "name", sorted({*gateway.__all__, *testing.__all__} | {field.name for field in fields(testing.Run)})
)
def test_the_guide_shows_every_public_name(name: str) -> None:
    assert re.search(rf"\b{name}\b", CODE)


def test_the_table_of_the_context_has_every_member_and_no_other() -> None:
    listed = re.findall(r"^\| `(await )?ctx\.(\w+)", section("Context"), re.MULTILINE)
    assert sorted(name for _, name in listed) == sorted(public(dir(gateway.Context)))
    assert {name for awaited, name in listed if awaited} == AWAITED


@pytest.mark.parametrize("decorator", [tool, prompt, resource], ids=lambda decorator: decorator.__name__)
def test_the_table_of_options_has_every_option_of_a_decorator_and_no_other(decorator: Callable[..., Any]) -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([a-z, ]+) \|", section("Decorators"), re.MULTILINE)
    assert {option for option, of in rows if decorator.__name__ in of.split(", ")} == options_of(decorator)


def test_the_table_of_content_has_every_function_and_no_other() -> None:
    made = {
        "tool_result",
        "content_block",
        "prompt_messages",
        "resource_contents",
    }  # made by the gateway itself from a returned value
    functions = inspect.getmembers(content, inspect.isfunction)
    expected = public(name for name, function in functions if function.__module__ == content.__name__) - made
    assert sorted(re.findall(r"^\| `content\.(\w+)", section("Content"), re.MULTILINE)) == sorted(expected)


TASK_ROWS = re.findall(
    r"^\| `\"(\w+)\"` \| (?:`\"(\w+)\"`)? ?\| (.+) \| (.+) \|$", section("When a task starts"), re.MULTILINE
)


def test_the_table_of_tasks_has_every_combination() -> None:
    combinations = {(support, start) for support in get_args(TaskSupport) for start in get_args(TaskStart)}
    told = {(support, start) for support, given, *_ in TASK_ROWS for start in ([given] if given else ["task", "call"])}
    assert told == combinations


@pytest.mark.parametrize(("support", "start", "able", "unable"), TASK_ROWS)
def test_a_task_starts_when_the_table_says(support: Any, start: Any, able: str, unable: str) -> None:
    seen: list[str] = []

    @tool(task=support, start=start or "task")
    async def example(ctx: gateway.Context) -> None:
        seen.append("leg")
        if support != "forbidden":
            seen.append(f"detach() is {await ctx.detach()}")

    ended = {"a call": ["leg"], "a task from the start": ["leg", "detach() is True"]}
    ended["a call until `detach()`, then a task"] = ["leg", "leg", "detach() is True"]
    ended["a call, where `detach()` is False"] = ["leg", "detach() is False"]
    testing.run(example)
    assert seen == ended[able]
    seen.clear()
    if unable == "an error that says so":
        with pytest.raises(gateway.AuthoringError, match="clients that do not support tasks"):
            testing.run(example, as_task=False)
    else:
        testing.run(example, as_task=False)
        assert seen == ended[unable]
