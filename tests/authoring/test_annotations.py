"""Annotations that fastmcp and the official SDK serve are served the same, or the guide says why not.

`annotations/collected.tsv` is the output of `scripts.annotations`. `annotations/theirs.json` is what both libraries do
with the same examples; `tests/integration/frameworks/test_other_servers.py` compares it with them.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import mcp.server.mcpserver
import mcp.types
import pytest

from gateway import AuthoringError, Content, Context, Elicit, InputRequired, ToolResult, content, prompt, resource, tool
from gateway.authoring.served import Served
from gateway.engine.questions import Question
from gateway.testing import run
from tests.authoring.annotations.kinds import (
    FOLDER,
    Entry,
    ExampleModel,
    Names,
    argument_for,
    asked_for,
    entries,
    evaluated,
    fitting,
    function_with,
    plain,
    shown,
)

DECORATORS: Mapping[str, Callable[..., Any]] = {"tool": tool, "prompt": prompt}
THEIRS: Mapping[str, Mapping[str, Any]] = json.loads((FOLDER / "theirs.json").read_text())


class Difference(NamedTuple):
    """Annotations that are not served as theirs are.

    Attributes:
        row: the first cell of the guide's row with the reason; `¦` stands for a bar.
        kind: a pattern of the kinds of these entries.
        annotation: a pattern of their annotations.
        error: a part of the error that the author gets, or None if they are served, but not the same.
    """

    row: str
    kind: str
    annotation: str
    error: str | None = None


NO_CONTENTS = "resource must (return|hold)"
DIFFERENCES = [
    Difference("`-> str`, `-> str ¦ None`", "tool result", r"str( \| None)?"),
    Difference("`-> Sequence` without types", "tool result", r"Sequence"),
    Difference("`-> datetime`", "tool result", r"datetime"),
    Difference("`-> Iterator[…]`, or `yield`", "tool result", r"(Async)?Iterator\[.*", "cannot decorate the generator"),
    Difference("a class that pydantic does not know", "tool result", r"Class( .*)?", "has no JSON form"),
    Difference("a class that pydantic does not know", "prompt result", r"list\[Class\]", "must return text"),
    Difference("a class that pydantic does not know", "resource result", r"(list\[)?Class\]?", NO_CONTENTS),
    Difference("a prompt that returns nothing", "prompt result", r"None|\(none\)", "must return text"),
    Difference(
        "a resource that returns nothing, a number or a list",
        "resource result",
        r"None|\(none\)|int|list|list\[str\]",
        f"{NO_CONTENTS}|returned by a {NO_CONTENTS}",
    ),
    Difference("a list or a dict as a prompt's argument", "prompt parameter", r".*(list|dict)\[.*", "must be text"),
    Difference(
        "a list as a resource's parameter", "resource parameter", r"(?!.*\| str).*(list|set)\[.*", "must be text"
    ),
    Difference("choices in a dict", "question", r".*'title'.*", "pairs of a text and a title|list of pairs"),
    Difference("`float ¦ int` in a form", "question field", r"float \| int", "forms are flat"),
    Difference("`*args`, `**kwargs`", ".* parameter", r"\*+arguments", r"not positional-only, \*args or \*\*kwargs"),
]
"""All differences that need no class of another library."""

OURS: Mapping[str, Any] = {
    **dict.fromkeys(("Audio", "AudioContent", "ContentBlock", "EmbeddedResource", "File", "Image"), Content),
    **dict.fromkeys(("ImageContent", "ResourceLink", "TextContent"), Content),
    **dict.fromkeys(("AssistantMessage", "Message", "PromptMessage", "UserMessage"), content.Message),
    **dict.fromkeys(("ReadResourceContents", "ResourceContent"), content.ResourceContents),
    **dict.fromkeys(("CallToolResult", "ToolResult"), ToolResult),
    "Context": Context,
    "InputRequiredResult": InputRequired,
}
"""Our classes by the names of theirs: the same annotation is served with ours."""

EXAMPLES: Mapping[Any, Any] = {
    Content: content.image(b"\x89PNG", "image/png"),
    content.Message: content.assistant("text"),
    content.ResourceContents: content.resource_text("peer://f", "text"),
    ToolResult: ToolResult(content=[content.text("text")], structured={"name": "text", "age": 1}),
}

ROWS: Mapping[str, str] = {
    "a dependency: `Depends`, `Shared`, `Resolve`": r"(Depends|Shared|Resolve)\(",
    "a default that injects: `CurrentContext()`, `Progress()`, `TokenClaim(…)`": r" = \w+\(",
    "`Context ¦ None`, `Annotated[Context, …]`": r"Context \| None|Context = None|Annotated\[Context",
    "their `Context`": r"^(FastMCP)?Context$",
    "`UserSession`, `SessionId`": r"UserSession|SessionId",
    "the HTTP request: `Request`, `Headers` of Starlette and FastAPI": r"^(Request|Headers)$",
    "their results: `CallToolResult`, `InputRequiredResult`, …": r"ToolResult|InputRequiredResult",
    "their blocks: `Image`, `Audio`, `File`, `TextContent`, …": r"Audio|Content(Block)?\b|Embedded|File|Image|Link",
    "their messages: `Message`, `UserMessage`, `PromptResult`, …": r"Message|PromptResult",
    "their contents: `ResourceContent`, `ResourceResult`, …": r"ResourceContent|ResourceResult",
    "MCP Apps: `PrefabApp`, `Column`, …": r"BarChart|Column|Component|DataTable|PieChart|PrefabApp",
}
"""The guide's rows about classes of the other libraries, with a pattern of the annotations that they are about."""


def is_plain(entry: Entry) -> bool:
    """Return whether an annotation needs no class of another library."""
    try:
        evaluated(entry.annotation)
    except (NameError, SyntaxError):
        return False
    return "Schema)" not in entry.annotation


ALL = entries()
PLAIN = [entry for entry in ALL if is_plain(entry)]
FOREIGN = [
    entry for entry in ALL if not is_plain(entry) and "*" not in entry.annotation and "Schema" not in entry.annotation
]


def named(entry: Entry) -> str:
    return f"{entry.kind}: {entry.annotation}"


def difference(entry: Entry) -> Difference | None:
    found = [each for each in DIFFERENCES if re.fullmatch(each.kind, entry.kind)]
    return next((each for each in found if re.fullmatch(each.annotation, entry.annotation)), None)


# What needs only Python and pydantic


@pytest.mark.parametrize("entry", PLAIN, ids=named)
def test_an_annotation_is_served_as_theirs_or_the_guide_says_why_not(entry: Entry) -> None:
    theirs = [outcome for outcome in THEIRS[entry.kind][entry.annotation].values() if outcome is not None]
    known = difference(entry)
    if known is not None and known.error is not None:
        with pytest.raises(AuthoringError, match=known.error):
            outcome_of(entry)
    elif theirs and known is None:
        assert_same(outcome_of(entry), theirs)
    elif theirs:
        with pytest.raises(AssertionError):
            assert_same(outcome_of(entry), theirs)
    else:  # they refuse it too
        with contextlib.suppress(AuthoringError):
            outcome_of(entry)


def outcome_of(entry: Entry) -> dict[str, Any]:
    """Return what clients get, in the form of `theirs.json`."""
    if entry.kind.startswith("question"):
        return answered(entry)
    function = function_with(entry)
    arguments = {"x": argument_for(entry)} if entry.kind.endswith("parameter") else {}
    if entry.kind.startswith("resource"):
        done = run(resource("peer://f/{x}" if arguments else "peer://f")(function), arguments)
        return {"contents": [part.get("text") or part.get("blob") for part in done.result["contents"]]}
    served = DECORATORS[entry.kind.partition(" ")[0]](function)
    result = run(served, arguments).result
    if entry.kind.startswith("prompt"):
        return {"messages": [[each["role"], each["content"].get("text")] for each in result["messages"]]}
    assert not result["isError"], result
    texts = [block.get("text") for block in result["content"]]
    if entry.kind == "tool parameter":
        return {"input": plain(served.input_schema), "texts": texts}
    return {"output": plain(served.output_schema), "structured": result.get("structuredContent"), "texts": texts}


def answered(entry: Entry) -> dict[str, Any]:
    """Return the form that clients get, and the value that the function gets of an answer."""
    forms: list[Any] = []

    def answer(_key: str, question: Question) -> Any:
        forms.append(question.params["requestedSchema"])
        return {"result": {"action": "accept", "content": fitting(forms[-1])}}

    @tool
    async def asks(ctx: Context) -> str:
        return shown(await ctx.elicit("x", "?", asked_for(entry)))

    return {"texts": [run(asks, {}, answers=answer).text], "form": plain(forms[0])}


def assert_same(ours: Mapping[str, Any], theirs: list[Mapping[str, Any]]) -> None:
    """Assert that everything that clients get is as in one of the libraries, which also differ from one another."""
    for part in ("input", "form", "structured", "contents", "messages", "texts"):
        if part in ours:
            assert readable(ours[part]) in [readable(outcome[part]) for outcome in theirs]
    if "output" in ours:
        outputs = [outcome["output"] for outcome in theirs]
        assert ours["output"] in outputs or (ours["output"] is None and {"type": "object"} in outputs)


def readable(part: Any) -> Any:
    """Return texts with the JSON in them parsed, and lists in one level: one block for each item, or one for all."""
    if isinstance(part, list):
        return [
            leaf for item in part for leaf in (readable(item) if isinstance(readable(item), list) else [readable(item)])
        ]
    if not isinstance(part, str):
        return part
    try:
        return readable(json.loads(part)) if part[:1] in '[{"' or part[:1].isdigit() else part
    except ValueError:
        return part


def test_arguments_of_any_name_are_refused() -> None:
    assert {entry.annotation for entry in ALL if "*" in entry.annotation} == {"*arguments", "**arguments"}

    def takes_any(*arguments: str) -> None: ...

    def takes_all(**arguments: str) -> None: ...

    for function in (takes_any, takes_all):
        with pytest.raises(AuthoringError, match=r"must be named, not positional-only, \*args or \*\*kwargs"):
            tool(function)


def test_a_json_schema_asks_for_a_dict() -> None:
    assert [entry.kind for entry in ALL if "JSON Schema" in entry.annotation] == ["question"]
    form = {"type": "object", "properties": {"region": {"type": "string"}}, "required": ["region"]}

    @tool
    async def asks(ctx: Context) -> str:
        return shown(await ctx.elicit("x", "?", form))

    assert run(asks, {}, answers={"x": {"region": "south"}}).text == "dict {'region': 'south'}"


# What needs classes of the other libraries


class TheirNames(Names):
    """Their classes. Those of fastmcp have stand-ins, because it is not installed here."""

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        for module in (mcp.server.mcpserver, mcp.types):
            if hasattr(module, name):
                return getattr(module, name)
        members = {"__module__": "fastmcp.stand_in", "__init__": lambda *_, **__: None}
        return type(name, (), {**members, "__class_getitem__": classmethod(lambda cls, _: cls)})


@pytest.mark.parametrize("entry", FOREIGN, ids=named)
def test_an_annotation_with_a_class_of_theirs_is_refused_and_has_a_row_in_the_guide(entry: Entry) -> None:
    with pytest.raises(AuthoringError) as refusal:
        register(entry, TheirNames())
    assert re.search(r"the \w+ of (mcp|mcp_types|fastmcp); \w+", str(refusal.value))
    assert [row for row, about in ROWS.items() if re.search(about, entry.annotation)]


def register(entry: Entry, names: Names, value: Any = None) -> Served:
    kind, default = evaluated(entry.annotation, names)

    async def takes(x: Any) -> str:
        return "text"

    def gives() -> Any:
        return value

    if entry.kind.endswith("parameter"):
        takes.__annotations__ = {"return": str} if kind is ... else {"x": kind, "return": str}
        takes.__defaults__ = None if default is ... else (default,)
    gives.__annotations__ = {"return": kind}
    function = takes if entry.kind.endswith("parameter") else gives
    if entry.kind.startswith("resource"):
        return resource("peer://f")(function)
    served: Served = DECORATORS[entry.kind.partition(" ")[0]](function)
    return served


RENAMED = [
    entry
    for entry in FOREIGN
    if not re.search(r"\(|Context \| None|Context = |Annotated\[Context", entry.annotation)
    and set(re.findall(r"[A-Z]\w+", entry.annotation)) & OURS.keys()
    and "FastMCP" not in entry.annotation
]


@pytest.mark.parametrize("entry", RENAMED, ids=named)
def test_the_same_annotation_is_served_with_our_class(entry: Entry) -> None:
    value = example_of(entry.annotation)
    served = register(entry, Names(OURS), value)
    done = run(served, {})
    if entry.kind.endswith("parameter"):
        assert done.text == "text"
    elif isinstance(value, InputRequired):
        assert list(done.unanswered) == ["x"]
    elif isinstance(value, ToolResult):
        assert (done.result["content"], done.result["structuredContent"]) == (value.content, value.structured)
    elif isinstance(value, content.Message):
        assert done.result["messages"] == [value]
    elif entry.kind == "tool result" and isinstance(value, (Content, list)):
        assert done.result["content"] == (value if isinstance(value, list) else [value])
    else:
        assert done.text or done.result["messages"][0]["content"] == value


def example_of(annotation: str) -> Any:
    """Return a value of the first class of an annotation that has one."""
    ours = [OURS.get(name) for name in re.findall(r"[A-Z]\w+", annotation)]
    values = [EXAMPLES[kind] for kind in ours if kind in EXAMPLES]
    values += [ExampleModel()] if "Model" in annotation else ["text"] if "str" in annotation else []
    [value, *_] = [*values, InputRequired(x=Elicit("?", bool))]
    return [value] if annotation.startswith("list[") else value
