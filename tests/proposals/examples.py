"""The JSON examples of the proposals that the draft wire implements, and the comparison of answers with them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

Json: TypeAlias = Any
Message: TypeAlias = dict[str, Any]

FOLDER: Final = Path(__file__).resolve().parent / "examples"

SAME: Final = frozenset({"jsonrpc", "method", "code", "type", "mode", "enum", "isError", "isComplete", "seqNr"})
"""Members whose value carries the meaning."""

KEYED: Final = frozenset({"inputRequests", "properties"})
"""Members that map names to their subjects: one more name would be another question."""

OPEN: Final = frozenset({"tasks", "modes"})
"""Arrays that may hold more than the example, in any order."""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where an example is from: the title of a proposal, and its headings."""

    text: str
    section: str


class Exchange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step of an example; a step that the text only describes has nothing but notes.

    Attributes:
        name: what happens.
        request: what the client sends.
        answer: what the server answers, where the text shows it.
        message: what somebody sends, where the text shows that alone.
        object: a part of a message, where the text shows no whole one.
        notes: what to know about it.
    """

    name: str
    request: Message | None = None
    answer: Message | None = None
    message: Message | None = None
    object: Message | None = None
    notes: str = ""

    @property
    def shown(self) -> Iterator[Message]:
        """All messages of this step."""
        return (message for message in (self.request, self.answer, self.message) if message is not None)


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The examples of one section, in the order of the text, with corrected syntax and unchanged values."""

    source: Source
    exchanges: tuple[Exchange, ...]

    def __getitem__(self, name: str) -> Exchange:
        """Return the step of this name."""
        return next(exchange for exchange in self.exchanges if exchange.name == name)


NAMES: Final = sorted(path.stem for path in FOLDER.glob("*.json"))


@functools.cache
def example(name: str) -> Example:
    """Return the examples of the file of this name."""
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=Example)


def fill(value: Json, live: Mapping[str, str]) -> Json:
    """Return the value with real values in place of the invented ones.

    Args:
        value: a message of an example, or a part of one. Stays as it is.
        live: texts of the example (task ids, cursors, request states) → what stands for them here.
    """
    if isinstance(value, dict):
        return {name: fill(member, live) for name, member in value.items()}
    if isinstance(value, list):
        return [fill(element, live) for element in value]
    return live.get(value, value) if isinstance(value, str) else value


def assert_contains(actual: Json, example: Json, *, live: Mapping[str, str]) -> None:
    """Check that a message has at least the members of the example's, with the same types.

    Ids, times, texts and lengths of time may differ, `requestState` may be missing, and questions may have more schema
    keywords. The members with meaning are the same: `SAME`, statuses in any case, the keys of questions, which
    properties are required. Real values stand in place of the invented ones.

    Args:
        actual: what the server sent.
        example: the example's message.
        live: see `fill`.

    Raises:
        AssertionError: with a line for each difference.
    """
    found = list(_differences(actual, example, live, "message"))
    if found:
        raise AssertionError("\n".join([*found, f"the message is {actual!r}"]))


def _differences(actual: Json, example: Json, live: Mapping[str, str], path: str) -> Iterator[str]:
    """Yield the differences of the actual value from the example."""
    name = path.rpartition(".")[2]
    if _kind(actual) != _kind(example):
        yield f"{path} is of type {_kind(actual)}, not {_kind(example)}"
    elif isinstance(example, dict):
        yield from _differences_of_objects(actual, example, live, path)
    elif _same(name, actual) != _same(name, example):
        yield f"{path} is {actual!r}, not {example!r}"
    elif isinstance(example, list):
        yield from _differences_of_arrays(actual, example, live, path)
    elif isinstance(example, str) and example in live and actual != live[example]:
        yield f"{path} is {actual!r}, not {live[example]!r}"


def _differences_of_objects(actual: Message, example: Message, live: Mapping[str, str], path: str) -> Iterator[str]:
    for name, member in example.items():
        if name in actual:
            yield from _differences(actual[name], member, live, f"{path}.{name}")
        elif name != "requestState":
            yield f"{path}.{name} is missing"
    if path.rpartition(".")[2] in KEYED:
        yield from (f"{path}.{name} is one too many" for name in actual if name not in example)


def _differences_of_arrays(
    actual: Sequence[Json], example: Sequence[Json], live: Mapping[str, str], path: str
) -> Iterator[str]:
    if path.rpartition(".")[2] in OPEN:
        left = list(actual)
        for element in example:
            match = next((one for one in left if _alike(one, element, live)), None)
            if match is None:
                yield f"{path} has nothing like {element!r}"
            else:
                left.remove(match)
    elif len(actual) != len(example):
        yield f"{path} has {len(actual)} elements, not {len(example)}"
    else:
        for index, (one, element) in enumerate(zip(actual, example, strict=True)):
            yield from _differences(one, element, live, f"{path}[{index}]")


def _alike(actual: Json, example: Json, live: Mapping[str, str]) -> bool:
    """Return whether an element of an open array matches the example's; plain ones must be equal."""
    if not isinstance(example, dict):
        return bool(actual == example)
    return not any(_differences(actual, example, live, "element"))


def _kind(value: Json) -> str:
    """Name the JSON type of a value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return {dict: "object", list: "array", str: "string", type(None): "null"}[type(value)]


def _same(name: str, value: Json) -> Json:
    """Return the part of a member's value that must be the same, or None."""
    if name == "status" and isinstance(value, str):
        return value.lower()
    if name == "required" and isinstance(value, list):
        return sorted(value)
    return value if name in SAME else None
