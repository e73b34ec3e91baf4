"""Callers whose lists differ: a call follows the list of its own caller, in whatever order lists were read."""

from __future__ import annotations

from itertools import permutations
from typing import Any, Final

import msgspec
import pytest

from gateway.errors import CannotContinue, InsufficientScope
from gateway.protocol.caller import Requester
from gateway.protocol.headers import Headers
from gateway.protocol.upstream.names import exposed_name
from gateway.registry.relayed import Relayed, RelayedResource, RelayedTool
from gateway.sealing.principal import Principal
from gateway.upstreams import served_entries as part
from gateway.upstreams.config.definition import Choice, Scopes
from gateway.upstreams.config.pins import Pinned, entry_digest
from gateway.upstreams.failures import UpstreamError
from gateway.upstreams.ports import UpstreamCaller
from tests.upstreams.lists.fakes import definition_of, tool, unreachable
from tests.upstreams.lists.test_served_entries import Making
from tests.upstreams.relay.calling import Call

PAY: Final = tool("pay", annotations={"idempotentHint": False})
IN_HEADER: Final = {"type": "object", "properties": {"amount": {"type": "string", "x-mcp-header": "Amount"}}}
OTHER: Final = tool("pay", inputSchema=IN_HEADER, annotations={"idempotentHint": True})
LISTS: Final = {"ada": [PAY], "bob": [OTHER], "cleo": [PAY], "dan": []}
ORDERS: Final = [order for number in range(4) for order in permutations(("ada", "bob", "cleo"), number)]
PINS: Final[dict[str, Any]] = {"pin": "refuse", "pinned": Pinned(frozenset({entry_digest("tools", PAY)}))}


def making(**options: Any) -> Making:
    made = Making(definition_of(scope="caller", **options))
    made.upstream.by_caller = _list_of
    made.upstream.results |= {"tools/call": {"content": []}, "resources/read": {"contents": []}}
    return made


def _list_of(caller: UpstreamCaller) -> list[dict[str, Any]]:
    assert caller.principal is not None
    return LISTS[caller.principal.subject]


def by(subject: str) -> dict[str, Any]:
    return {"principal": Principal("issuer", subject, "app")}


async def found_for(made: Making, subject: str, name: str = "bugs__pay") -> Relayed | None:
    found = await made.maker.find_for("tools", name, Requester(**by(subject)))
    assert found is None or isinstance(found, Relayed)
    return found


async def called(made: Making, subject: str) -> Any:
    """Return how the call of a caller was sent to the upstream."""
    found = await found_for(made, subject)
    assert found is not None
    await Call(found, {"amount": "5"}, **by(subject)).result()
    assert made.upstream.asked[-1][0] == "tools/call"
    return made.upstream.options[-1]


@pytest.mark.parametrize("readers", ORDERS, ids="-".join)
async def test_a_pinned_tool_is_refused_only_to_the_caller_whose_entry_has_changed(readers: tuple[str, ...]) -> None:
    made = making(**PINS)
    for subject in readers:
        await found_for(made, subject)
    assert [await found_for(made, subject) is not None for subject in ("ada", "bob", "cleo", "dan")] == [
        *(True, False, True, False)
    ]


@pytest.mark.parametrize("readers", ORDERS, ids="-".join)
async def test_a_call_is_repeated_and_gets_headers_only_as_the_callers_own_entry_says(readers: tuple[str, ...]) -> None:
    made = making()
    for subject in readers:
        await found_for(made, subject)
    for subject, repeatable, headers in (
        ("ada", False, []),
        ("bob", True, [("Mcp-Param-Amount", "5")]),
        ("cleo", False, []),
        ("dan", False, []),
    ):
        options = await called(made, subject)
        assert (options["repeatable"], list(options["param_headers"])) == (repeatable, headers)


async def test_the_headers_of_a_client_are_checked_by_its_own_list() -> None:
    made = making()
    found = {subject: await found_for(made, subject) for subject in LISTS}
    checked = [subject for subject, one in found.items() if isinstance(one, RelayedTool) and one.param_headers]
    assert checked == ["bob"]


async def test_equal_entries_of_two_callers_share_one_relay() -> None:
    made = making()
    assert await found_for(made, "ada") is await found_for(made, "cleo")


@pytest.mark.parametrize("readers", [("bob",), ("ada", "bob")], ids="-".join)
async def test_an_entry_with_other_json_is_another_one_even_if_it_is_equal_in_python(readers: tuple[str, ...]) -> None:
    made = making()
    hints: dict[str, Any] = {"ada": True, "bob": 1}
    made.upstream.by_caller = lambda caller: [
        tool("pay", annotations={"idempotentHint": hints[caller.principal.subject if caller.principal else ""]})
    ]
    for subject in readers:
        await found_for(made, subject)
    assert (await called(made, "bob"))["repeatable"] is False
    assert (await called(made, "ada"))["repeatable"] is True


async def test_many_entries_of_one_caller_change_nothing_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "MAX_KNOWN", 2)
    made = making(**PINS)
    assert await found_for(made, "ada") is not None
    made.upstream.by_caller = lambda _caller: [tool(f"t{number}") for number in range(10)]
    await found_for(made, "bob")
    assert await found_for(made, "ada") is not None
    assert made.upstream.count("tools/list") == 2


@pytest.mark.parametrize("problem", [unreachable(), UpstreamError("bugs", -32603, "no")])
async def test_a_call_whose_callers_list_cannot_be_read_is_not_sent_by_the_list_of_another(problem: Exception) -> None:
    made = making()
    await found_for(made, "bob")
    made.upstream.problem = problem
    found = await found_for(made, "ada")
    made.upstream.problem = None
    assert isinstance(found, RelayedTool)
    error = await Call(found, {"amount": "5"}, **by("ada")).error()
    assert isinstance(error, CannotContinue)
    assert "Nothing was sent" in str(error)
    created = Call(found, {"amount": "5"}, **by("ada"))
    with pytest.raises(CannotContinue, match="Nothing was sent"):
        await created.prepare_task(created.journal)
    assert made.upstream.count("tools/call") == 0


NO_LIST: Final = {"resources": Choice(("file:///*",)), "tools": Choice(("*",), ("secret*",))}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *[
            ("tools", "bugs__secret"),
            ("tools", "bugs__not a name"),
            ("tools", "other__pay"),
            ("prompts", "bugs__hidden"),
        ],
        *[("resources", "bugs+memo://x"), ("resources", "other+file:///x"), ("templates", "bugs+memo://{x}")],
    ],
)
async def test_what_no_list_can_allow_is_refused_without_asking_the_upstream(kind: Any, name: str) -> None:
    made = making(**NO_LIST, prompts=Choice(("*",), ("hidden",)))
    assert await made.maker.find_for(kind, name, Requester(**by("ada"))) is None
    assert not made.upstream.asked


@pytest.mark.parametrize(
    ("kind", "name", "scope"),
    [("tools", "bugs__pay", "pay"), ("prompts", "bugs__pay", "pay"), ("resources", "bugs+FILE:/secret", "secret")],
)
async def test_a_caller_without_the_scopes_of_a_name_is_refused_without_asking_the_upstream(
    kind: Any, name: str, scope: str
) -> None:
    rules = (("pay", frozenset({"pay"})), ("file:///secret*", frozenset({"secret"})))
    made = making(scopes=Scopes(rules))
    with pytest.raises(InsufficientScope) as raised:
        await made.maker.find_for(kind, name, Requester(**by("ada"), grants=lambda _scopes: False))
    assert raised.value.required == {scope}
    assert not made.upstream.asked
    await made.maker.find_for(kind, name, Requester(**by("ada"), grants={scope}.issuperset))
    assert made.upstream.asked


async def test_a_name_that_had_to_be_changed_is_judged_by_the_one_that_the_callers_list_has() -> None:
    """Its own name allows it, although the exposed one matches a glob that denies it and one that needs a scope."""
    rules = {"tools": Choice(("pay now",), ("pay_*",)), "scopes": Scopes((("pay_*", frozenset({"x"})),))}
    made = making(**rules)
    made.upstream.by_caller = lambda _caller: [tool("pay now")]
    requester = Requester(**by("ada"), grants=lambda _scopes: False)
    found = await made.maker.find_for("tools", exposed_name("bugs", "pay now"), requester)
    assert found is not None
    assert not found.scopes
    assert await made.maker.find_for("tools", exposed_name("bugs", "pay: now"), requester) is None


async def test_a_worker_calls_by_what_the_task_has_and_not_by_any_list() -> None:
    for subject, headers in (("ada", []), ("bob", [("Mcp-Param-Amount", "5")])):
        made = making(**({} if subject == "bob" else PINS))
        found = await found_for(made, subject)
        assert found is not None
        created = Call(found, {"amount": "5"}, **by(subject))
        journal = created.journal
        await created.prepare_task(journal)
        await found_for(made, "bob" if subject == "ada" else "ada")
        there = made.maker.find("tools", "bugs__pay")
        assert isinstance(there, RelayedTool)
        call = Call(there, {"amount": "5"}, in_task=True)
        call.rest = journal.to_map()
        await call.result()
        options = made.upstream.options[-1]
        assert (options["repeatable"], list(options["param_headers"])) == (False, headers)


async def test_a_resource_is_asked_for_as_its_own_callers_list_writes_it() -> None:
    made = Making(definition_of(forward_headers=("x-tenant",), unlisted=False))
    made.upstream.results["resources/read"] = {"contents": []}
    for tenant, listed in (("a", ["FILE:/x"]), ("b", ["file:/x", "file:///y"]), ("c", [])):
        made.upstream.lists["resources"] = [{"uri": uri, "name": "x"} for uri in listed]
        await made.maker.find_for("resources", "bugs+file:///x", _of(tenant))
    texts = {}
    for tenant in "abc":
        for uri in ("file:///x", "file:///y"):
            served = await made.maker.find_for("resources", f"bugs+{uri}", _of(tenant))
            if isinstance(served, RelayedResource):
                await Call(served, target=f"bugs+{uri}").result()
                texts[tenant, uri] = msgspec.to_builtins(made.upstream.params[-1])["uri"]
    assert texts == {("a", "file:///x"): "FILE:/x", ("b", "file:///x"): "file:/x", ("b", "file:///y"): "file:///y"}


def _of(tenant: str) -> Requester:
    return Requester(headers=Headers([(b"x-tenant", tenant.encode())]))
