"""Resources of an upstream: which text is sent for a URI, and by which rules it is judged."""

from __future__ import annotations

import asyncio
import posixpath
import re
import unicodedata
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.authoring.served import Served
from gateway.errors import CannotContinue, ResourceNotFound
from gateway.protocol.caller import Requester
from gateway.protocol.upstream.uris import own_uri, upstream_uri
from gateway.protocol.uris.canonical import NotCanonical, canonical, canonical_listed
from gateway.registry.relayed import RelayedResource
from gateway.upstreams import known
from gateway.upstreams.config.definition import Choice, Scopes
from tests.protocol.uris.hostile import by_pydantic, by_urllib, hostile_uris
from tests.upstreams.lists.fakes import FakeUpstream, definition_of
from tests.upstreams.lists.fakes import Served as ServedUpstream
from tests.upstreams.lists.test_served_entries import Making
from tests.upstreams.relay.calling import Call

ADMIN = frozenset({"admin"})
SECRETS = ("file:///secret/*", "notes://secret/*", "https://intra/secret*")
ANYTHING = {"uriTemplate": "{+uri}", "name": "anything"}
GUARDED: dict[str, Any] = {"scopes": Scopes(tuple((glob, ADMIN) for glob in SECRETS))}
DENIED: dict[str, Any] = {"resources": Choice(("*",), SECRETS)}
PUBLIC: dict[str, Any] = {"resources": Choice(("file:///public/*",), ())}

EVASIVE = [
    *(
        "file:///secret/payroll",
        "file:/secret/payroll",
        "file:secret/payroll",
        "FILE:/secret/payroll",
        "FILE:///secret/payroll",
    ),
    *(
        "file:///sec\tret/payroll",
        " file:///secret/payroll",
        "file:///secret/payroll ",
        "notes://sec\nret/x",
        "\x00file:/secret/x",
    ),
    *(
        "https://intra:443/secret",
        "https:/intra/secret",
        "https:intra/secret",
        "https://intra:0443/secret",
        "https://INTRA./secret",
    ),
    *("https://u:p@intra/secret", "https:\\\\intra\\secret", "https://int%72a/secret", "https:////intra/secret"),
    *("file:///public/.\t./secret/payroll", "file:///public/.\n%2e/secret/payroll", "file:///public/../secret/payroll"),
    *("file:///public/%2e%2E/secret/x", "file:///public/..%2fsecret/x", "file:///public/%252e%252e/secret/x"),
    *(
        "file:///public/..;a/secret/x",
        "file:///public\\..\\secret\\x",
        "file:///public/..%5csecret/x",
        "file:///%73ecret/x",
    ),
    *(
        "file:///%2573ecret/x",
        "file:////secret/x",
        "file:///./secret//x",
        "file://localhost/secret/x",
        "file://anything/secret/x",
    ),
    *(
        "file://secret/x",
        "file:///secret;v=1/x",
        "file:///secret/x?a",
        "file:///secret/x#a",
        "file:///secret%00/x",
        "notes:secret/x",
    ),
    *(
        "file:///%c0%aesecret/x",
        "file:///public/%c0%ae%c0%ae/secret/x",
        "file:///public/\uff0e\uff0e/secret/x",
        "notes:///secret/x",
    ),
    *(
        "notes://SECRET/x",
        "notes://secret:1/x",
        "notes://u@secret/x",
        "notes:/secret/x",
        "notes://secret./x",
        "notes:////secret/x",
    ),
]


def found(making: Making, uri: str) -> Served | None:
    return making.maker.find("resources", f"bugs+{uri}")


def reading(making: Making) -> Making:
    making.upstream.results["resources/read"] = {"contents": []}
    return making


async def text_of(making: Making, uri: str) -> str | None:
    """Return the text that the upstream gets for a URI of a client; None if it gets nothing."""
    served = found(making, uri)
    if served is None:
        return None
    assert isinstance(served, RelayedResource)
    await Call(served, target=f"bugs+{uri}").result()
    text: str = reading(making).upstream.params[-1]["uri"]
    return text


async def text_for_caller(making: Making, uri: str) -> str | None:
    """Return the same where each caller has other lists."""
    served = await making.maker.find_for("resources", f"bugs+{uri}", Requester())
    if served is None:
        return None
    assert isinstance(served, RelayedResource)
    await Call(served, target=f"bugs+{uri}").result()
    text: str = making.upstream.params[-1]["uri"]
    return text


@pytest.mark.parametrize("uri", EVASIVE)
@pytest.mark.parametrize("unlisted", [None, True])
async def test_no_spelling_of_a_uri_gets_around_scopes_deny_or_allow(uri: str, unlisted: bool | None) -> None:
    lists: dict[str, Any] = {"resources": ({"uri": "file:///secret/payroll", "name": "p"},), "templates": (ANYTHING,)}
    guarded = Making(definition_of(**GUARDED, unlisted=unlisted))
    await guarded.part(**lists)
    served = found(guarded, uri)
    assert served is None or served.scopes == ADMIN
    for options in (DENIED, PUBLIC):
        making = Making(definition_of(**options, unlisted=unlisted))
        await making.part(**lists)
        assert found(making, uri) is None


RULES = {
    "notes://Private/*": ("notes", "private"),
    "notes://my%20docs/secret/*": ("notes", "my docs/secret"),
    "notes://lo\u0308hne/*": ("notes", "l\u00f6hne"),
    "postgres://u@host:5432/secret/*": ("postgres", "host/secret"),
    "db://host:1/sec;ret/*": ("db", "host/sec;ret"),
}
"""Globs, and the scheme and place that a careless server understands by them."""
CARELESS_SEGMENTS = st.sampled_from(
    (
        *("private", "PRIVATE", "Private", "my%20docs", "MY%2520docs", "secret", "Secret", "s%65cret", "l%C3%B6hne"),
        *("lo%CC%88hne", "host", "HOST", "host:5432", "host:1", "u@host", "u@host:5432", "sec;ret", "sec%3Bret", "a"),
        *("..", "%2e%2e", "..%2Fsecret", "..%2Fprivate", "a%2F..%2Fprivate", "%2Fprivate", "..%5Cprivate", "x?y", "#f"),
        *("", "%252E%252E", "..%252Fsecret", "private%2Fx%252F..%252F..%252Fa", ".", "..;x", "%20", "private."),
    )
)


def opened_by_careless(uri: str) -> set[str]:
    """Return what servers open that unquote parts of a URI, join them, and ignore case, slashes, user and port."""
    rest = uri.partition(":")[2]
    found = set()
    for whole in (rest, re.split(r"[?#]", rest, maxsplit=1)[0]):
        for times in range(4):
            text = whole
            for _ in range(times):
                text = unquote(text)
            head, _, path = text.lstrip("/").partition("/")
            for host in (head, re.sub(r":[0-9]*$", "", head.rpartition("@")[2])):
                place = posixpath.normpath(f"{host}/{path}".replace("\\", "/"))
                name = unicodedata.normalize("NFKC", place).strip("/")
                on_windows = "/".join(segment.rstrip(" .") for segment in name.split("/"))
                found |= {each.lower() for each in (name, name.upper(), on_windows)}
    return found


@settings(suppress_health_check=list(HealthCheck), max_examples=200)
@given(st.sampled_from(list(RULES)), st.lists(CARELESS_SEGMENTS, min_size=1, max_size=5), st.sampled_from((":", "://")))
@example("notes://Private/*", ["a", "..%2Fprivate%2Fpayroll"], "://")
@example("postgres://u@host:5432/secret/*", ["u@host:5432", "", "secret", "schema"], "://")
@example("notes://my%20docs/secret/*", ["my%20docs", "", "secret", "x"], "://")
@example("postgres://u@host:5432/secret/*", ["host:5432", "secret"], ":")
@example("postgres://u@host:5432/secret/*", ["", "host:5432", "secret", "x"], "://")
@example("notes://Private/*", ["pr%C4%B1vate", "x"], "://")
@example("notes://Private/*", ["private%20.", "x"], ":")
@example("notes://lo\u0308hne/*", ["private", "..", "l%C3%B6hne"], "://")
async def test_what_a_careless_server_opens_needs_the_scope_of_what_it_is(
    glob: str, segments: list[str], start: str
) -> None:
    scheme, place = RULES[glob]
    uri = f"{scheme}{start}{'/'.join(segments)}"
    try:
        sent = canonical(uri)
    except NotCanonical:
        return  # it is refused before anything is looked up
    is_secret = any(f"{each}/".startswith(f"{place}/") for each in opened_by_careless(sent))
    for options in ({"scopes": Scopes(((glob, ADMIN),))}, {"resources": Choice(("*",), (glob,))}):
        making = Making(definition_of(**options, unlisted=True))
        await making.part(templates=(ANYTHING,))
        served = found(making, uri)
        assert not is_secret or served is None or served.scopes == ADMIN


@pytest.mark.parametrize(
    "uri",
    [
        "notes://public/..%2Fsecret%2Fpayroll",
        "notes://public/x?/../../secret/payroll",
        "notes://public//x",
        "notes://public/100%25",
        "notes://public/a;b",
    ],
)
@pytest.mark.parametrize("unlisted", [None, True])
async def test_where_rules_are_only_a_listed_uri_may_have_an_ambiguous_path(uri: str, unlisted: bool | None) -> None:
    for options in (GUARDED, DENIED, {"resources": Choice(("notes://public/*", "{*"))}):
        making = Making(definition_of(**options, unlisted=unlisted))
        await making.part(templates=(ANYTHING,))
        served = found(making, uri)
        assert served is None or served.scopes == ADMIN
    free = Making(definition_of())
    await free.part(templates=(ANYTHING,))
    assert found(free, uri) is not None
    listed = Making(definition_of(**GUARDED))
    await listed.part(resources=({"uri": "notes://public/100%25;v=1", "name": "a"},))
    assert found(listed, "notes://public/100%25;v=1") is not None


async def test_what_no_rule_is_about_is_served_under_any_spelling() -> None:
    making = reading(Making(definition_of(**GUARDED)))
    await making.part(templates=(ANYTHING,))
    for uri in ("file:///open/payroll", "file:open/payroll", "FILE:/open/./%70ayroll"):
        served = found(making, uri)
        assert served is not None
        assert served.scopes == frozenset()
        assert await text_of(making, uri) == "file:///open/payroll"


@settings(suppress_health_check=list(HealthCheck))
@given(hostile_uris())
@example("file:secret/x")
@example("https:intra/public")
@example("x:/")
@example("x:x:/<")
async def test_every_served_uri_is_sent_in_a_form_in_which_all_parsers_read_what_was_judged(uri: str) -> None:
    making = reading(Making(definition_of(**GUARDED, unlisted=True)))
    await making.part()
    served = found(making, uri)
    if served is None:
        return
    text, own = await text_of(making, uri), upstream_uri("bugs", f"bugs+{uri}")
    assert own is not None
    assert text == canonical(own)
    for parse in (by_pydantic, by_urllib):
        for spelling in (parse(own), parse(text)):
            again = None if spelling is None else making.maker.find("resources", own_uri("bugs", spelling))
            assert spelling is None or (again is not None and again.scopes == served.scopes)


async def test_where_rules_tell_resources_apart_only_listed_ones_are_served() -> None:
    lists: dict[str, Any] = {
        "resources": ({"uri": "memo://a", "name": "a"},),
        "templates": ({"uriTemplate": "file:///x/{id}", "name": "x"},),
    }
    for options in (GUARDED, DENIED):
        making = Making(definition_of(**options))
        await making.part(**lists)
        assert found(making, "memo://a") is not None
        assert found(making, "MEMO://%61") is not None
        assert found(making, "file:/x/7") is not None
        assert found(making, "memo://b") is None
        assert found(making, "file:///x/7/8") is None
        assert making.maker.find("resources", "bugs+x:memo") is None
    for options in ({}, {"scopes": Scopes((("*", ADMIN), ("update_*", ADMIN)))}, {**GUARDED, "unlisted": True}):
        making = Making(definition_of(**options))
        await making.part(**lists)
        assert found(making, "memo://b") is not None, "nothing is judged by its URI, or the operator says so"
    strict = Making(definition_of(unlisted=False))
    await strict.part(**lists)
    assert (found(strict, "memo://a") is None, found(strict, "memo://b") is None) == (False, True)


@pytest.mark.parametrize(
    ("listed", "asked"),
    [
        ("file:/x", "file:/x"),
        ("file:/x", "file:///x"),
        ("file:/x", "FILE:x"),
        ("https://example.com", "https://example.com"),
        ("https://example.com:443/a b|c", "https://example.com/a%20b%7Cc"),
        ("Notes://José", "notes://Jos%C3%A9"),
        ("my notes/é", "x:my%20notes%2F%C3%A9"),
        ("my notes/é", "my notes/é"),
    ],
)
@pytest.mark.parametrize("options", [{}, GUARDED])
async def test_a_listed_resource_is_asked_for_by_the_text_of_its_list(listed: str, asked: str, options: Any) -> None:
    making = reading(Making(definition_of(**options)))
    part = await making.part(resources=({"uri": listed, "name": "a"},))
    assert await text_of(making, asked) == listed
    (exposed,) = part.resources
    assert exposed == making.maker.exposed_uri(listed)


async def test_of_two_listed_spellings_each_is_asked_for_as_it_is_written() -> None:
    making = reading(Making(definition_of()))
    await making.part(resources=tuple({"uri": uri, "name": "a"} for uri in ("file:/x", "FILE:///x", "file:///x")))
    texts = [await text_of(making, uri) for uri in ("file:/x", "FILE:///x", "file:///x", "file:x")]
    assert texts == ["file:/x", "FILE:///x", "file:///x", "file:///x"]


@pytest.mark.parametrize("uri", ["file:///sec\tret/x", "file:///a\\b", "file:///%ff", "file:///a "])
async def test_a_listed_text_that_readers_understand_differently_is_served_only_without_rules(uri: str) -> None:
    assert canonical_listed(uri) is None
    entries = ({"uri": uri, "name": "a"},)
    free, guarded = reading(Making(definition_of())), Making(definition_of(**GUARDED))
    assert len((await free.part(resources=entries)).resources) == 1
    (exposed,) = (await free.part(resources=entries)).resources
    served = free.maker.find("resources", exposed)
    assert isinstance(served, RelayedResource)
    await Call(served, target=exposed).result()
    assert free.upstream.params[-1] == {"uri": uri}
    assert not (await guarded.part(resources=entries)).resources


async def test_a_uri_of_a_template_is_sent_with_the_text_of_the_template() -> None:
    for options in ({}, GUARDED):
        making = reading(Making(definition_of(**options)))
        await making.part(templates=({"uriTemplate": "FILE:/notes/{id}", "name": "a"},))
        assert await text_of(making, "FILE:/notes/7") == "FILE:/notes/7"
        assert await text_of(making, "file:///%6eotes/7") == "FILE:/notes/7"


async def test_only_so_many_templates_are_compared_with_a_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "MAX_TEMPLATES", 2)
    making = Making(definition_of(**GUARDED))
    part = await making.part(templates=tuple({"uriTemplate": f"memo://{name}/{{id}}", "name": name} for name in "abc"))
    assert len(part.templates) == 3
    assert [found(making, f"memo://{name}/1") is not None for name in "abc"] == [True, True, False]


async def test_a_uri_that_no_client_could_send_back_is_left_out() -> None:
    making = Making(definition_of())
    long = f"memo://{'a' * 8185}"
    part = await making.part(
        resources=({"uri": long, "name": "a"},), templates=({"uriTemplate": f"{long}{{b}}", "name": "a"},)
    )
    assert not part.resources
    assert not part.templates
    assert making.telemetry.drops == {"resource": 1, "template": 1}


# --- lists that this process has not read -------------------------------------------------------------------------


def elsewhere(**options: Any) -> Making:
    """Return a process that has not read the list of any caller."""
    making = reading(Making(definition_of(scope="caller", **options)))
    making.upstream.lists["resources"] = [{"uri": "FILE:/x", "name": "x"}]
    making.upstream.lists["resourceTemplates"] = [{"uriTemplate": "memo://{id}", "name": "m"}]
    return making


@pytest.mark.parametrize(
    ("asked", "text"), [("file:///x", "FILE:/x"), ("FILE:/x", "FILE:/x"), ("memo://1", "memo://1")]
)
async def test_a_process_that_has_not_read_a_callers_list_finds_out_how_a_resource_is_written(
    asked: str, text: str
) -> None:
    assert await text_for_caller(elsewhere(**GUARDED), asked) == text
    assert await text_for_caller(elsewhere(), asked) == text


async def test_what_a_caller_does_not_have_is_not_found_where_only_listed_resources_are_served() -> None:
    making = elsewhere(**GUARDED)
    assert await text_for_caller(making, "notes://other/1") is None
    assert making.upstream.count("resources/read") == 0
    hidden = found(making, "notes:secret/1")
    assert hidden is not None
    assert hidden.scopes == ADMIN
    assert await text_for_caller(elsewhere(), "notes://other/1") == "notes://other/1"


async def test_a_call_that_comes_before_the_first_listing_waits_for_it() -> None:
    upstream = FakeUpstream()
    upstream.lists["resources"] = [{"uri": "FILE:/x", "name": "x"}]
    upstream.results["resources/read"] = {"contents": []}
    served = ServedUpstream(definition_of(**GUARDED), upstream)
    finder = served.live.part.finder
    assert finder is not None
    early, other = (finder.find("resources", uri) for uri in ("bugs+file:///x", "bugs+file:///y"))
    assert isinstance(early, RelayedResource)
    assert isinstance(other, RelayedResource)
    upstream.gate.clear()
    async with served.running():
        call = asyncio.create_task(Call(early, target="bugs+file:///x").result())
        await asyncio.sleep(0)
        upstream.gate.set()
        await call
        assert isinstance(await Call(other, target="bugs+file:///y").error(), ResourceNotFound)
    assert [params["uri"] for params in upstream.params if "uri" in params] == ["FILE:/x"]


async def test_a_resource_of_an_upstream_that_was_never_listed_cannot_be_judged() -> None:
    making = Making(definition_of(**GUARDED))
    ready = asyncio.Event()
    ready.set()
    making.maker.unlisted(ready, None)
    served = found(making, "file:///x")
    assert isinstance(served, RelayedResource)
    error = await Call(served, target="bugs+file:///x").error()
    assert isinstance(error, CannotContinue)
    assert "could not be reached" in str(error)
    assert making.upstream.asked == []


# --- completions and changes ---------------------------------------------------------------------------------------


async def completed(making: Making, target: str) -> Any:
    """Return what the upstream is asked to complete, None if it is not asked."""
    making.upstream.results["completion/complete"] = {"completion": {"values": []}}
    served = making.maker.find("templates" if "{" in target else "resources", f"bugs+{target}")
    if served is None:
        return None
    assert isinstance(served, RelayedResource)
    await making.maker.complete("resource", served.uri, "x", "", {}, Requester())
    asked = [params["ref"]["uri"] for params in making.upstream.params if "ref" in params]
    return (*asked, served.scopes) if asked else None


SECRET = {"uriTemplate": "FILE:/secret/{x}", "name": "s"}


@pytest.mark.parametrize(
    "target", ["file:/secret/{x}", "file:///secret/{x}", "FILE:secret/{x}", "file:///a/../secret/{x}"]
)
async def test_no_spelling_of_a_template_gets_around_its_scopes(target: str) -> None:
    making = Making(definition_of(**GUARDED))
    await making.part(templates=(SECRET,))
    assert await completed(making, target) == ("FILE:/secret/{x}", ADMIN)
    denying = Making(definition_of(**DENIED))
    await denying.part(templates=(SECRET,))
    assert await completed(denying, target) is None


async def test_only_listed_templates_and_resources_are_completed_where_rules_are() -> None:
    lists: dict[str, Any] = {
        "templates": ({"uriTemplate": "memo://{x}", "name": "m"},),
        "resources": ({"uri": "MEMO:a", "name": "a"},),
    }
    making = Making(definition_of(**GUARDED))
    await making.part(**lists)
    assert await completed(making, "other://{x}") is None
    assert await completed(making, "memo://{x}\t") is None
    assert await completed(making, "memo://1") == ("memo://1", frozenset())
    open_to_all = Making(definition_of())
    await open_to_all.part(**lists)
    assert await completed(open_to_all, "Other://{x}") == ("other://{x}", frozenset())


NOTES = {"uriTemplate": "notes://{folder}/{name}", "name": "n"}


def scopes_of(making: Making, **values: str) -> frozenset[str] | None:
    return making.maker.scopes_of_values("bugs+notes://{folder}/{name}", values)


async def test_values_of_a_template_are_judged_before_the_upstream_completes_others() -> None:
    guarded, denying = Making(definition_of(**GUARDED)), Making(definition_of(**DENIED))
    choice = Choice(("notes://public/*", "notes://{folder}/{name}"))
    public, free = Making(definition_of(resources=choice)), Making(definition_of())
    for making in (guarded, denying, public, free):
        await making.part(templates=(NOTES,))
    for folder in ("secret", "SECRET"):
        assert scopes_of(guarded, folder=folder, name="p") == ADMIN
        assert scopes_of(denying, folder=folder, name="p") is None
        assert scopes_of(public, folder=folder, name="p") is None
        assert scopes_of(free, folder=folder, name="p") == frozenset()
    for making in (guarded, denying, public):
        assert scopes_of(making, folder="public", name="") == frozenset()
        assert scopes_of(making, name="secret") == frozenset(), "the folder is not known yet"
        for value in ("..", "a/../secret", "/secret", "%73ecret", "a%2Fb", "a\\b", "a;b"):
            assert scopes_of(making, folder=value, name="p") is None
    assert scopes_of(free, folder="a/../secret", name="p") == frozenset()


async def test_a_process_that_has_not_read_a_callers_templates_completes_them() -> None:
    assert await completed(elsewhere(**GUARDED), "MEMO://{id}") == ("memo://{id}", frozenset())
    assert await completed(elsewhere(**GUARDED), "memo://{other}") is None


async def test_changes_are_listened_for_under_the_text_that_is_sent() -> None:
    upstream = FakeUpstream()
    upstream.lists["resources"] = [{"uri": "FILE:/x", "name": "x"}]
    served = ServedUpstream(definition_of(), upstream)
    async with served.running():
        part = await served.next_part()
        assert part.finder is not None
        exposed = [part.finder.find("resources", uri) for uri in ("bugs+file:x", "bugs+file:y")]
        assert [each.uri for each in exposed if isinstance(each, RelayedResource)] == ["bugs+FILE:/x", "bugs+file:///y"]
        served.live.watch("bugs+FILE:/x", None)
        await upstream.listening(lambda wanted: wanted.get("resourceSubscriptions") == ["FILE:/x"])


@pytest.mark.slow
def test_hostile_uris_are_often_enough_served() -> None:
    """Otherwise the tests above would show nothing."""
    counts = {True: 0, False: 0}

    @settings(max_examples=200, database=None)
    @given(hostile_uris())
    def count(uri: str) -> None:
        try:
            canonical(uri)
        except NotCanonical:
            counts[False] += 1
        else:
            counts[True] += 1

    count()
    assert min(counts.values()) > 10
