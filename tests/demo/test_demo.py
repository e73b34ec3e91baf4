"""The demo tools, with the questions, messages and types of the drafts they are named after."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import mcp_types
import pytest

from gateway.authoring.arguments import InvalidArguments
from gateway.authoring.asyncio_host import AsyncioHost
from gateway.authoring.tools import Tool
from gateway.demo import machines, reports
from gateway.demo.compute import crunch
from gateway.demo.echoes import echo
from gateway.demo.machines import provision_vm
from gateway.demo.reports import report
from gateway.demo.weather import get_weather
from gateway.demo.work_items import update_work_item
from gateway.engine.driver import run_leg
from gateway.engine.journal import Journal
from gateway.engine.leg import Leg
from gateway.engine.outcomes import Completed, NeedsInput, Outcome
from gateway.engine.questions import Question
from gateway.errors import Declined
from gateway.registry.registry import load_registry
from gateway.testing import DECLINE, run
from tests.calls.policies import STRICT

RESOLVE = {"workItemId": 4522, "fields": {"System.State": "Resolved"}}

Release = Callable[[int], Tool]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Release:
    """Return a function that loads the module of `link_accounts` as a process of that release does."""

    def load(number: int) -> Tool:
        monkeypatch.setenv("GATEWAY_DEMO_RELEASE", str(number))
        spec = importlib.util.find_spec("gateway.demo.logins")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        made = module.link_accounts
        assert isinstance(made, Tool)
        return made

    return load


def form_of(question: Question) -> tuple[str, Any]:
    params = mcp_types.ElicitRequestFormParams.model_validate(question.params)
    return params.message, question.params["requestedSchema"]


def test_the_demo_serves_its_tools_by_the_names_of_the_drafts() -> None:
    tools = load_registry(["gateway.demo"]).tools
    assert {"crunch", "link_accounts", "get_weather", "update_work_item"} <= tools.keys()
    assert all(tool.description for tool in tools.values())


def test_no_schema_of_the_demo_has_a_title() -> None:
    def titles(schema: Any) -> bool:
        if isinstance(schema, dict):
            return "title" in schema or any(map(titles, schema.values()))
        return isinstance(schema, list) and any(map(titles, schema))

    for tool in load_registry(["gateway.demo"]).tools.values():
        assert not titles(tool.input_schema), tool
    for unanswered in (run(get_weather, {"location": "x"}), run(update_work_item, RESOLVE)):
        for question in unanswered.unanswered.values():
            assert not titles(question.params)


def test_the_weather_asks_for_a_login_first() -> None:
    asked = run(get_weather, {"location": "New York"}).unanswered
    assert {key: form_of(question) for key, question in asked.items()} == {
        "github_login": (
            "Please provide your GitHub username",
            {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        )
    }
    done = run(get_weather, {"location": "New York"}, answers={"github_login": {"name": "octocat"}})
    assert done.text.startswith("Current weather in New York:\nTemperature: 72°F\nConditions: Partly cloudy")
    assert done.legs == 2


def test_resolving_a_bug_as_duplicate_takes_two_rounds() -> None:
    done = run(
        update_work_item,
        RESOLVE,
        answers={"resolution": {"resolution": "Duplicate"}, "duplicate_of": {"duplicateOfId": 4301}},
    )
    assert done.asked == ["resolution", "duplicate_of"]
    assert done.legs == 3
    assert "4522" in done.text
    assert "4301" in done.text
    assert "4301.0" not in done.text


def test_the_questions_of_update_work_item_are_the_drafts() -> None:
    first = run(update_work_item, RESOLVE).unanswered
    assert {key: form_of(question) for key, question in first.items()} == {
        "resolution": (
            "Resolving Bug #4522 requires a resolution. How was this bug resolved?",
            {
                "type": "object",
                "properties": {
                    "resolution": {
                        "type": "string",
                        "enum": ["Fixed", "Won't Fix", "Duplicate", "By Design"],
                        "description": "Resolution type for this bug",
                    }
                },
                "required": ["resolution"],
            },
        )
    }
    second = run(update_work_item, RESOLVE, answers={"resolution": {"resolution": "Duplicate"}}).unanswered
    assert {key: form_of(question) for key, question in second.items()} == {
        "duplicate_of": (
            "Since this is a duplicate, which work item is the original?",
            {
                "type": "object",
                "properties": {"duplicateOfId": {"type": "number", "description": "Work item ID of the original bug"}},
                "required": ["duplicateOfId"],
            },
        )
    }


@pytest.mark.parametrize("resolution", ["Fixed", "Won't Fix", "By Design"])
def test_another_resolution_takes_one_round(resolution: str) -> None:
    done = run(update_work_item, RESOLVE, answers={"resolution": {"resolution": resolution}})
    assert (done.legs, done.text) == (2, f"Bug #4522 resolved as {resolution}. State set to Resolved.")


def test_another_change_asks_nothing() -> None:
    done = run(update_work_item, {"workItemId": 1, "fields": {"b": "x", "a": "y"}})
    assert (done.legs, done.text) == (1, "Work item #1 updated: a, b.")
    assert run(update_work_item, {"workItemId": 1, "fields": {}}).text == "Work item #1 updated: nothing."


def test_a_user_may_decline() -> None:
    with pytest.raises(Declined):
        run(update_work_item, RESOLVE, answers={"resolution": DECLINE})


def test_crunch_reports_how_many_units_ran_where() -> None:
    assert run(crunch, {"units": 3, "unitMs": 1}).text == "Computed 3 units: 3 on test."
    assert run(crunch, {"units": 1, "unitMs": 0}).legs == 1


@pytest.mark.parametrize("args", [{}, {"units": 0}, {"units": 10_001}, {"units": 1, "unitMs": 1_001}, {"units": "x"}])
def test_crunch_has_limits(args: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments):
        run(crunch, args)


async def test_crunch_continues_on_another_replica() -> None:
    journal = Journal.begin(now_ms=1, flow_max_ms=1, random_bytes=bytes)
    for units, replica in ((1, "replica-1"), (3, "replica-2")):
        function = crunch.bind({"units": units, "unitMs": 0}, None)
        host = AsyncioHost(None, replica)
        outcome = await run_leg(function, Leg(journal, {}, host, STRICT, supports=lambda _path: True))
        host.close()
    assert isinstance(outcome, Completed)
    assert outcome.value == "Computed 3 units: 1 on replica-1, 2 on replica-2."


# Tasks


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the pauses that let people watch the demo tools."""
    monkeypatch.setattr(reports, "SECONDS_PER_SECTION", 0)
    monkeypatch.setattr(machines, "SECONDS_PER_STAGE", 0)


def test_what_becomes_a_task_and_when() -> None:
    told = {tool.name: (tool.task, tool.start) for tool in (get_weather, echo, report, provision_vm, crunch)}
    assert told == {
        "get_weather": ("optional", "call"),
        "echo": ("required", "task"),
        "report": ("optional", "task"),
        "provision_vm": ("optional", "call"),
        "crunch": ("forbidden", "task"),
    }


def test_echo_is_there_only_where_tasks_are() -> None:
    def names(**environ: str) -> list[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_REDIS_URL")}
        listing = "from gateway.registry.registry import load_registry as load; print(*load(['gateway.demo']).tools)"
        command = [sys.executable, "-c", listing]
        run = subprocess.run(command, env={**kept, **environ}, capture_output=True, text=True, check=True)
        return run.stdout.split()

    without = names()
    assert without[0] == "get_weather"
    assert "echo" not in without
    assert "echo" in names(GATEWAY_REDIS_URL="redis://host")


def test_echo_asks_what_the_draft_asks_and_answers_as_it_does() -> None:
    assert {key: form_of(question) for key, question in run(echo, {}).unanswered.items()} == {
        "echo_input": (
            "Please provide the input string to echo back",
            {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
        )
    }
    assert run(echo, {}, answers={"echo_input": {"input": "Hello World!"}}).text == "Echo: Hello World!"


@pytest.mark.usefixtures("at_once")
def test_a_report_is_one_segment_for_each_section_with_progress() -> None:
    done = run(report, {"city": "Oslo", "sections": 3})
    assert [block["type"] for block in done.segments] == ["text"] * 3
    assert [block["text"].partition(":")[0] for block in done.segments] == [
        "1. Weather in Oslo",
        "2. Traffic in Oslo",
        "3. Events in Oslo",
    ]
    assert done.result is not None
    assert done.result["content"] == done.segments
    assert [(made, total) for made, total, _ in done.progress] == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.usefixtures("at_once")
def test_a_machine_is_provisioned_in_the_background_once_its_size_is_known() -> None:
    asked = run(provision_vm, {})
    assert (list(asked.unanswered), asked.became_task) == (["size"], False)
    asked = run(provision_vm, {}, answers={"size": {"size": "small"}})
    assert (list(asked.unanswered), asked.became_task) == (["confirm"], True)
    done = run(provision_vm, {"size": "large"}, answers={"confirm": {"confirm": True}})
    assert done.text.endswith("of size large is running (provisioned in the background).")
    refused = run(provision_vm, {"size": "large"}, answers={"confirm": {"confirm": False}})
    assert refused.text.endswith("was not started.")


# A rolling upgrade


@pytest.mark.parametrize(
    ("number", "second_key", "second_site"), [(1, "google_login", "Google"), (2, "microsoft_login", "Microsoft")]
)
def test_each_release_asks_its_two_logins_at_once(
    release: Release, number: int, second_key: str, second_site: str
) -> None:
    link_accounts = release(number)
    form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    assert {key: form_of(question) for key, question in run(link_accounts).unanswered.items()} == {
        "github_login": ("Please provide your GitHub username", form),
        second_key: (f"Please provide your {second_site} username", form),
    }
    done = run(link_accounts, answers={"github_login": {"name": "octocat"}, second_key: {"name": "other"}})
    assert done.legs == 2
    assert done.text == f"Linked GitHub account octocat and {second_site} account other."


async def test_upgrade_and_rollback_ask_nothing_twice(release: Release) -> None:
    releases = {1: release(1), 2: release(2)}
    assert releases[1].version == 1
    assert releases[2].version == 2
    rest = Journal.begin(now_ms=1, flow_max_ms=1, random_bytes=bytes).to_map()
    host = AsyncioHost(None, "replica")

    async def leg(number: int, **names: str) -> Outcome:
        nonlocal rest
        tool = releases[number]
        fresh = {key: {"result": {"action": "accept", "content": {"name": name}}} for key, name in names.items()}
        running = Leg(
            Journal.from_map(rest), fresh, host, STRICT, supports=lambda _path: True, version=number, declared=tool.asks
        )
        outcome = await run_leg(tool.bind({}, None), running)
        rest = running.journal.to_map()
        return outcome

    first = await leg(1)
    assert isinstance(first, NeedsInput)
    assert list(first.questions) == ["github_login", "google_login"]
    upgraded = await leg(2, github_login="octocat", google_login="gina")
    assert isinstance(upgraded, NeedsInput)
    assert list(upgraded.questions) == ["microsoft_login"]
    rolled_back = await leg(1)
    assert rolled_back == Completed("Linked GitHub account octocat and Google account gina.")
    finished = await leg(2, microsoft_login="mia")
    assert finished == Completed("Linked GitHub account octocat and Microsoft account mia.")
    host.close()
