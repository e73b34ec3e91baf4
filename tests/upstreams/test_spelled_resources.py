"""Real replicas before a real server that looks resources up by URL, as the TypeScript SDK does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import AnyUrl

from tests.upstreams.servers.recording import INVALID_PARAMS, Leg, Recording, Refusal, Result
from tests.upstreams.site import Reply, Site, entry

pytestmark = pytest.mark.slow

SECRET = "TOP SECRET PAYROLL"
RESOURCES = {
    "file:///secret/payroll": SECRET,
    "https://intra/secret": SECRET,
    "notes://secret/x": SECRET,
    "file:///public/a": "public",
    "FILE:/public/odd name": "odd",
}
RULES = {
    "scopes": {"file:///secret/*": ["admin"]},
    "resources": {"deny": ["notes://secret/*", "https://intra/secret*"]},
}
SPELLINGS = [
    *(
        "file:///secret/payroll",
        "file:/secret/payroll",
        "file:secret/payroll",
        "FILE:/secret/payroll",
        "file:///sec\tret/payroll",
    ),
    *(
        " file:///secret/payroll",
        "file:///secret/payroll\n",
        "file:///public/.\t./secret/payroll",
        "file:///public/../secret/payroll",
    ),
    *(
        "file:///public/.\n%2e/secret/payroll",
        "file:\\secret\\payroll",
        "file://localhost/secret/payroll",
        "file:///%73ecret/payroll",
    ),
    *(
        "notes://sec\nret/x",
        "NOTES://secret/x",
        "https://intra:443/secret",
        "https:/intra/secret",
        "https:intra/secret",
    ),
    *(
        "https://INTRA:0443/./secret#",
        "https:\\\\intra/secret",
        "x:file%3A%2Fsecret%2Fpayroll",
        "x:file%3A%2F%2F%2Fsec%09ret%2Fpayroll",
    ),
]


class ByUrl(Recording):
    """Reads a URI as WHATWG's parser does, and then finds its resource by that text; or by the text of the list."""

    async def _read(self, leg: Leg) -> Result:
        asked = leg.call.name
        by_url = {str(AnyUrl(uri)): text for uri, text in RESOURCES.items()}
        try:
            text = RESOURCES.get(asked) or by_url[str(AnyUrl(asked))]
        except (KeyError, ValueError):
            raise Refusal(INVALID_PARAMS, f"Unknown resource: {asked}", {"uri": asked}) from None
        contents = [{"uri": asked, "text": text}]
        return {"resultType": "complete", "contents": contents, "ttlMs": 0, "cacheScope": "private"}


@pytest.fixture(scope="module")
def by_url() -> Iterator[Recording]:
    listed: dict[str, Any] = {uri: {"name": "a"} for uri in RESOURCES}
    with ByUrl(resources=listed, templates={"file:///{+path}": {"name": "files"}}) as server:
        yield server


@pytest.fixture(scope="module")
def two(by_url: Recording, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    upstreams = {
        "docs": entry(by_url.url, **RULES),
        "loose": entry(by_url.url, **{**RULES, "resources": {**RULES["resources"], "unlisted": True}}),
        "pub": entry(by_url.url, resources={"allow": ["file:///public/*"]}),
        "free": entry(by_url.url),
    }
    with Site(tmp_path_factory.mktemp("spelled"), upstreams) as site:
        site.wait_listed()
        yield site


def said(reply: Reply) -> str:
    contents = reply.response.get("result", {}).get("contents", [{"text": ""}])
    return str(contents[0]["text"])


async def test_no_spelling_gets_a_resource_past_scopes_deny_or_allow(two: Site, by_url: Recording) -> None:
    async with two.user() as user:
        for prefix in ("docs", "loose", "pub"):
            for spelling in SPELLINGS:
                reply = await user.send("resources/read", {"uri": f"{prefix}+{spelling}"})
                assert (SECRET in str(reply.response), reply.status in {200, 400, 403, 404}) == (False, True), spelling
                assert "error" in reply.response
        assert not by_url.calls or all(call.method != "resources/read" for call in by_url.calls)
    async with two.user(scopes=["admin"]) as admin:
        for spelling in ("file:///secret/payroll", "FILE:/secret/payroll", "file:///public/%2e%2E/secret/payroll"):
            assert said(await admin.send("resources/read", {"uri": f"docs+{spelling}"})) == SECRET
        assert (await admin.send("resources/read", {"uri": "docs+notes://secret/x"})).error["code"] == INVALID_PARAMS


async def test_what_is_allowed_is_served_and_a_listed_text_is_sent_as_it_is(two: Site, by_url: Recording) -> None:
    async with two.user() as user:
        listed = [each["uri"] for each in await user.list("resources") if each["uri"].startswith("free+")]
        assert "free+x:FILE%3A%2Fpublic%2Fodd%20name" in listed
        for uri in ("free+x:FILE%3A%2Fpublic%2Fodd%20name", "docs+file:///public/odd%20name"):
            assert said(await user.send("resources/read", {"uri": uri})) == "odd"
            assert by_url.calls[-1].name == "FILE:/public/odd name"
        assert said(await user.send("resources/read", {"uri": "PUB+File:public/./a"})) == "public"
        assert by_url.calls[-1].name == "file:///public/a"
        error = (await user.send("resources/read", {"uri": "free+notes://sec\tret/x"})).error
        assert "contains '\\t'" in error["message"]


async def test_unlisted_resources_are_served_where_no_rule_is_about_resources_or_the_operator_says_so(
    two: Site,
) -> None:
    async with two.user() as user:
        for prefix, is_asked in (("docs", False), ("pub", False), ("loose", True), ("free", True)):
            before = two.metric("gateway_upstream_requests_total", upstream=prefix)
            await user.send("resources/read", {"uri": f"{prefix}+memo://unlisted"})
            after = two.metric("gateway_upstream_requests_total", upstream=prefix)
            assert (after > before) is is_asked, prefix
