"""What a client declared, and what it did not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.capabilities import ELICITATION_FORM, CapabilityPath, supports
from gateway.errors import InvalidParams, MissingCapability
from gateway.protocol.capabilities import (
    ROOTS,
    TASKS,
    capability_path,
    check_capabilities,
    flags_of,
    from_flags,
)
from gateway.sealing.client_flags import FLAGS

ELICITATION_URL = ("elicitation", "url")
SAMPLING = ("sampling",)
SAMPLING_TOOLS = ("sampling", "tools")
ALL = [ELICITATION_FORM, ELICITATION_URL, SAMPLING, SAMPLING_TOOLS, ROOTS, TASKS]


@pytest.mark.parametrize(
    ("declared", "supported"),
    [
        ({}, []),
        ({"elicitation": {}}, [ELICITATION_FORM]),
        ({"elicitation": {"applyDefaults": True}}, [ELICITATION_FORM]),
        ({"elicitation": {"form": {}}}, [ELICITATION_FORM]),
        ({"elicitation": {"url": {}}}, [ELICITATION_URL]),
        ({"elicitation": {"form": {}, "url": {}}}, [ELICITATION_FORM, ELICITATION_URL]),
        ({"sampling": {}}, [SAMPLING]),
        ({"sampling": {"context": {}}}, [SAMPLING]),
        ({"sampling": {"tools": {}}}, [SAMPLING, SAMPLING_TOOLS]),
        ({"roots": {"listChanged": True}}, [ROOTS]),
        ({"extensions": {}}, []),
        ({"extensions": {"com.example/x": {}}}, []),
        ({"extensions": {"io.modelcontextprotocol/tasks": {}}}, [TASKS]),
        ({"tasks": {}}, []),
    ],
)
def test_only_what_is_declared_is_supported(declared: dict[str, Any], supported: list[CapabilityPath]) -> None:
    assert [path for path in ALL if supports(check_capabilities(declared, "capabilities"), path)] == supported


anything = st.recursive(
    st.sampled_from([None, False, True, 0, "", "task", "streaming"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["modes", "responses", "task", "streaming", "more"]), inner, max_size=3)
    ),
    max_leaves=12,
)
objects = st.fixed_dictionaries({}, optional={"more": anything, "listChanged": st.sampled_from([None, False, True, 1])})
modes = st.lists(st.sampled_from(["task", "immediate", "streaming", "tomorrow"]) | anything, max_size=4)
declarations = st.fixed_dictionaries(
    {},
    optional={
        "elicitation": st.fixed_dictionaries({}, optional={"form": objects, "url": objects, "more": anything}),
        "sampling": st.fixed_dictionaries({}, optional={"tools": objects, "context": objects, "more": anything}),
        "roots": objects,
        "tasks": anything | st.fixed_dictionaries({"responses": st.fixed_dictionaries({"modes": modes | anything})}),
        "extensions": st.fixed_dictionaries({}, optional={TASKS[1]: objects}),
        "experimental": st.fixed_dictionaries({}, optional={"sampling": objects}),
        "tomorrow": anything,
    },
)


@given(declarations)
def test_what_a_session_remembers_supports_the_same_as_what_was_declared(declared: dict[str, Any]) -> None:
    flags = flags_of(check_capabilities(declared, "capabilities"))
    remembered = check_capabilities(from_flags(flags), "capabilities")
    for flag in FLAGS:
        path = capability_path(flag)
        assert supports(remembered, path) == supports(declared, path), flag
    assert flags_of(remembered) == flags


@given(declarations)
def test_a_session_remembers_neither_extensions_nor_what_is_unknown(declared: dict[str, Any]) -> None:
    remembered = from_flags(flags_of(declared) | {"extensions.io.modelcontextprotocol/tasks", "tomorrow"})
    assert remembered.keys() <= {"elicitation", "sampling", "roots", "tasks"}
    assert not supports(remembered, TASKS)


def test_an_elicitation_without_modes_is_remembered_as_forms_only() -> None:
    flags = flags_of({"elicitation": {}})
    assert flags == {"elicitation.form"}
    assert supports(from_flags(flags), ELICITATION_FORM)
    assert not supports(from_flags(flags), ELICITATION_URL)
    assert flags_of({"elicitation": {"url": {}}}) == {"elicitation.url"}


def test_every_flag_alone_is_one_that_a_client_can_declare() -> None:
    everything = {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {"tools": {}, "context": {}},
        "roots": {"listChanged": True},
        "tasks": {"responses": {"modes": ["task", "immediate", "streaming"]}},
    }
    assert flags_of(check_capabilities(everything, "capabilities")) == set(FLAGS)
    assert flags_of({}) == frozenset()
    assert from_flags(()) == {}


def required_by(*paths: CapabilityPath) -> Any:
    data = MissingCapability(*paths).data
    assert data is not None
    return data["requiredCapabilities"]


@given(st.sets(st.sampled_from(ALL)))
def test_a_client_that_declares_what_was_required_supports_it(paths: set[CapabilityPath]) -> None:
    declared = check_capabilities(required_by(*paths), "capabilities")
    assert all(supports(declared, path) for path in paths)


def test_requirements_are_objects_of_objects() -> None:
    assert required_by(SAMPLING) == {"sampling": {}}
    assert required_by(ELICITATION_FORM, ELICITATION_URL, TASKS) == {
        "elicitation": {"form": {}, "url": {}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }


NOT_OBJECTS: list[Any] = [None, True, 1, "x", []]


@pytest.mark.parametrize("name", ["elicitation", "sampling", "roots", "extensions", "experimental"])
@pytest.mark.parametrize("value", NOT_OBJECTS[1:])
def test_a_known_capability_is_an_object(name: str, value: Any) -> None:
    with pytest.raises(InvalidParams) as caught:
        check_capabilities({name: value}, "caps")
    assert caught.value.message == f"caps.{name} must be an object"


@pytest.mark.parametrize(
    ("capabilities", "field"),
    [
        ({"elicitation": {"form": True}}, "caps.elicitation.form"),
        ({"elicitation": {"form": {}, "url": "x"}}, "caps.elicitation.url"),
        ({"sampling": {"tools": []}}, "caps.sampling.tools"),
        ({"sampling": {"context": "all"}}, "caps.sampling.context"),
        ({"extensions": {"com.example/x": False}}, "caps.extensions.com.example/x"),
        ({"experimental": {"x": 1}}, "caps.experimental.x"),
    ],
)
def test_a_known_member_of_another_type_is_named(capabilities: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        check_capabilities(capabilities, "caps")
    assert caught.value.message == f"{field} must be an object"


@pytest.mark.parametrize("value", NOT_OBJECTS)
def test_capabilities_are_an_object(value: Any) -> None:
    with pytest.raises(InvalidParams, match="caps must be an object"):
        check_capabilities(value, "caps")


def test_unknown_members_may_be_anything() -> None:
    declared = {"tomorrow": False, "roots": {"listChanged": "?"}, "elicitation": {"more": 1}}
    assert check_capabilities(declared, "caps") == declared


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("sampling", SAMPLING),
        ("elicitation.form", ELICITATION_FORM),
        ("extensions.io.modelcontextprotocol/tasks", TASKS),
        ("experimental.my.thing", ("experimental", "my.thing")),
    ],
)
def test_an_author_names_a_capability_with_dots(name: str, path: CapabilityPath) -> None:
    assert capability_path(name) == path


@pytest.mark.parametrize("name", ["", ".", "elicitation.", ".form", "a..b", "extensions."])
def test_a_name_with_an_empty_part_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="does not name"):
        capability_path(name)


@pytest.mark.parametrize(
    ("declared", "meant"),
    [
        ({"elicitation": None, "roots": None, "tomorrow": None}, {}),
        ({"elicitation": {"form": None, "url": None}}, {"elicitation": {}}),
        (
            {"elicitation": {"form": None, "url": {}}, "sampling": {"tools": None}},
            {"elicitation": {"url": {}}, "sampling": {}},
        ),
        ({"extensions": {"com.example/x": None, "com.example/y": {}}}, {"extensions": {"com.example/y": {}}}),
    ],
)
def test_a_capability_that_is_null_is_not_declared(declared: dict[str, Any], meant: dict[str, Any]) -> None:
    checked = check_capabilities(declared, "caps")
    assert flags_of(checked) == flags_of(meant)
    assert {path for path in ALL if supports(checked, path)} == {path for path in ALL if supports(meant, path)}
