"""Prompts, resources and completions: their results, and those that cannot be served."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import mcp_types
import pytest
from pydantic import Field

from gateway import Context, complete, lifespan, prompt, resource, tool
from gateway.authoring.asyncio_host import AsyncioHost
from gateway.authoring.completions import MAX_VALUES
from gateway.authoring.served import Served
from gateway.errors import AuthoringError, ConfigurationError
from gateway.registry.registry import Registry


@prompt(title="Review")
async def review(ctx: Context, language: Annotated[str, Field(description="of the code")], tone: str = "kind") -> str:
    """Review some code."""
    return f"{language} {tone} {ctx.call_id}"


@resource("docs://{page}", mime_type="text/plain", ttl_ms=5, cache="public", annotations={"priority": 1.0})
async def page(page: str) -> str:
    """A page."""
    return page


@resource("docs://readme", name="readme", size=3)
async def readme() -> str:
    return "abc"


@pytest.fixture
def host() -> Iterator[AsyncioHost]:
    made = AsyncioHost(10, "r")
    yield made
    made.close()


def test_a_prompt_lists_its_arguments() -> None:
    told = mcp_types.Prompt.model_validate(review.catalogue_entry())
    assert (told.name, told.title, told.description) == ("review", "Review", "Review some code.")
    assert told.arguments is not None
    assert [(argument.name, argument.description, argument.required) for argument in told.arguments] == [
        ("language", "of the code", True),
        ("tone", None, False),
    ]
    assert review.result("hi", "review")["description"] == "Review some code."
    assert "description" not in prompt("bare", description="")(readme._function).result("hi", "bare")
    assert prompt(review._function).name == "review"


def test_a_resource_lists_its_uri_or_its_template() -> None:
    template = mcp_types.ResourceTemplate.model_validate(page.catalogue_entry())
    assert (template.uri_template, template.mime_type) == ("docs://{page}", "text/plain")
    told = mcp_types.Resource.model_validate(readme.catalogue_entry())
    assert (str(told.uri), told.name, told.size) == ("docs://readme", "readme", 3)
    assert page.result("x", "docs://a")["contents"] == [{"uri": "docs://a", "mimeType": "text/plain", "text": "x"}]


def test_a_resource_that_cannot_be_served_is_an_authors_error() -> None:
    async def function(name: str) -> str:
        return name

    with pytest.raises(AuthoringError, match="is not a URI"):
        resource("readme")(readme._function)
    with pytest.raises(AuthoringError, match="its URI has the variables"):
        resource("docs://x")(function)
    with pytest.raises(AuthoringError, match="its URI has the variables"):
        resource("docs://{other}")(function)
    for ttl_ms in (-1, 0.5, True, "1"):
        with pytest.raises(AuthoringError, match="use a whole number of milliseconds"):
            resource("docs://readme", ttl_ms=ttl_ms)(readme._function)  # type: ignore[arg-type]


def test_the_base_class_has_no_result() -> None:
    class Bare(Served):
        KIND = "thing"

    with pytest.raises(NotImplementedError):
        Bare(review._function).result(1, "x")


# Completions


async def test_suggestions_come_from_plain_and_async_functions(host: AsyncioHost) -> None:
    @complete(review, "language")
    def language(typed: str) -> list[str]:
        return [name for name in ("python", "perl") if name.startswith(typed)]

    @complete(page, "page")
    async def pages(typed: str, given: dict[str, str]) -> list[str]:
        return [f"{typed} {sorted(given)} {number}" for number in range(MAX_VALUES + 1)]

    assert await language.suggest("py", {}, host) == {"values": ["python"], "total": 1, "hasMore": False}
    many = await pages.suggest("x", {"language": "de"}, host)
    assert many["values"][0] == "x ['language'] 0"
    assert (len(many["values"]), many["total"], many["hasMore"]) == (MAX_VALUES, MAX_VALUES + 1, True)
    assert language("pe") == ["perl"]


@pytest.mark.parametrize(("target", "argument"), [(review, "nothing"), (page, "nothing"), (readme, "page")], ids=str)
def test_there_is_nothing_to_complete_without_such_an_argument(target: Any, argument: str) -> None:
    with pytest.raises(AuthoringError, match=f"has no argument '{argument}'"):
        complete(target, argument)(lambda typed: [typed])


# The registry of all of them


def test_everything_has_its_place_by_name_or_uri() -> None:
    @tool
    async def act() -> None: ...

    @lifespan
    async def shared():  # type: ignore[no-untyped-def]
        yield 1

    suggest = complete(review, "tone")(lambda typed: [typed])
    entries: list[object] = [act, review, page, readme, shared, shared, suggest, suggest, 5, "text"]
    registry = Registry(entries)
    assert list(registry.tools) == ["act"]
    assert list(registry.prompts) == ["review"]
    assert list(registry.resources) == ["docs://readme"]
    assert list(registry.templates) == ["docs://{page}"]
    assert registry.lifespans == [shared]
    assert registry.names == {"act", "review", "docs://readme", "docs://{page}"}
    assert registry.offers("completions")
    assert not Registry([act]).offers("completions")
    assert registry.completer(review, "tone") is suggest
    assert registry.completer(review, "language") is None


def test_an_exact_uri_wins_over_templates_and_templates_are_tried_in_order() -> None:
    @resource("docs://{other}")
    async def later(other: str) -> str:
        return other

    with pytest.raises(ConfigurationError, match="two resources"):
        Registry([readme, resource("docs://readme")(readme._function)])
    registry = Registry([page, later, readme])
    assert registry.find_resource("docs://readme") == (readme, {})
    assert registry.find_resource("docs://a%20b") == (page, {"page": "a b"})
    assert registry.find_resource("other://x") is None


def test_two_completions_of_one_argument_are_refused() -> None:
    first, second = (complete(review, "tone")(lambda typed: [typed]) for _ in range(2))
    with pytest.raises(ConfigurationError, match="two completions for 'tone'"):
        Registry([first, second])
