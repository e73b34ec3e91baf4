"""The inventory of a release, in a form that two releases can be compared by."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, Field

from gateway import Elicit, Sample, prompt, resource, tool
from gateway.registry.inventory import inventory
from gateway.registry.registry import Registry


class Name(BaseModel):
    name: str


class AnnotatedName(BaseModel):
    name: str = Field(title="Your name", description="As your friends call you")


class LongName(BaseModel):
    name: str = Field(min_length=20)


def asked(question: Any) -> dict[str, Any]:
    """Return the inventory's entry of a question."""

    @tool(asks={"who": question})
    async def example() -> None: ...

    (entry,) = inventory(Registry([example]))
    told: dict[str, Any] = entry["asks"]["who"]
    return told


def test_a_question_is_listed_with_the_digest_that_journals_keep() -> None:
    @tool(asks={"who": Name})
    async def example() -> None: ...

    (entry,) = inventory(Registry([example]))
    assert example.asks is not None
    assert {key: told["digest"] for key, told in entry["asks"].items()} == {"who": example.asks["who"].hex()}


def test_texts_change_neither_the_digest_nor_what_it_covers() -> None:
    assert asked(Elicit("Who?", Name)) == asked(Elicit("And you are?", AnnotatedName))


def test_what_changes_the_digest_shows_in_what_it_covers() -> None:
    one, other = asked(Name), asked(LongName)
    assert one["digest"] != other["digest"]
    assert other["covers"]["schema"]["properties"]["name"] == {"type": "string", "minLength": 20}


def test_a_digest_of_sampling_covers_its_tools() -> None:
    assert asked(Sample("?", 1))["covers"] == {"method": "sampling/createMessage", "tools": None}


def test_undeclared_questions_differ_from_declaring_none() -> None:
    @tool
    async def undeclared() -> None: ...

    @tool(asks={})
    async def silent() -> None: ...

    assert [entry["asks"] for entry in inventory(Registry([undeclared, silent]))] == [None, {}]


def test_tools_come_first_then_prompts_resources_and_templates_and_all_is_json() -> None:
    @resource("docs://{page}")
    async def page(page: str) -> None: ...

    @resource("docs://index")
    async def index() -> None: ...

    @prompt(version=3)
    async def greet(name: str) -> None: ...

    @tool(scopes=["b", "a"], max_attempts=1, task="optional")
    async def work(n: int) -> None: ...

    entries = json.loads(json.dumps(inventory(Registry([page, index, greet, work]))))
    assert [(entry["kind"], entry["name"]) for entry in entries] == [
        ("tool", "work"),
        ("prompt", "greet"),
        ("resource", "index"),
        ("resource", "page"),
    ]
    assert (entries[0]["scopes"], entries[0]["maxAttempts"]) == (["a", "b"], 1)
    assert (entries[1]["version"], entries[1]["arguments"][0]["name"]) == (3, "name")
    assert (entries[2]["uri"], entries[3]["uriTemplate"]) == ("docs://index", "docs://{page}")


def test_migrations_are_listed_with_both_versions() -> None:
    @tool(version=4)
    async def moved() -> None: ...

    moved.migrate(from_=3, to=4)(lambda value: value)
    moved.migrate(from_=1, to=3)(lambda value: value)
    assert inventory(Registry([moved]))[0]["migrations"] == {"1": 3, "3": 4}
