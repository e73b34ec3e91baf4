"""Own resources: another spelling of a URI leads to the same entry, with the same scopes, and never to another one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway import complete, resource
from gateway.process.app import GatewayApp
from gateway.protocol.uris.canonical import MAX_URI_CHARACTERS
from tests.asgi import make_app
from tests.wires.test_scopes import SECRET, ask

INVALID_PARAMS = -32602


@resource("docs://handbook/salaries", scopes=["admin"])
async def salaries() -> str:
    """Only for some."""
    return "TOP SECRET"


@resource("docs://secret/{+path}", scopes=["admin"])
async def secret(path: str) -> str:
    """Only for some, too."""
    return f"TOP SECRET {path}"


@resource("docs://found/caf%c3%a9{?q,limit}", scopes=["admin"])
async def found(q: str = "all", limit: int = 10) -> str:
    """What a query finds, only for some."""
    return f"TOP SECRET {limit} {q}"


@resource("docs://{+path}")
async def page(path: str) -> str:
    """For everybody. It would be for everything, if the others were not before it."""
    return f"page {path}"


@resource("File:/etc/{name}")
async def oddly_written(name: str) -> str:
    """Its own text is not canonical."""
    return name


@complete(page, "path")
async def paths(typed: str) -> list[str]:
    return [typed]


@pytest.fixture(scope="module")
def app() -> GatewayApp:
    return make_app(__name__, auth="jwt", jwt_secret=SECRET)


async def read(app: GatewayApp, uri: str, scopes: str = "") -> Any:
    return await ask(app, "resources/read", scopes, uri=uri)


@pytest.mark.parametrize(
    "uri",
    [
        *(
            "docs://handbook/salaries",
            "DOCS://handbook/salaries",
            "docs://handbook/s%61laries",
            "docs://%68andbook/salaries",
        ),
        *(
            "docs://handbook/x/../salaries",
            "docs://handbook/%2e/salaries",
            "docs://handbook/salaries#",
            "docs://handbook/salaries?",
        ),
        *("docs://found/caf%C3%A9", "docs://found/café?q=a", "docs://found/caf%c3%A9?limit=3&q=b%2fc"),
        *("DOCS://found/x/../caf%C3%a9?%71=a", "docs://found/caf%c3%a9?", "docs://found/café?q="),
        *("docs://secret/a", "docs://secre%74/a", "docs://secret/./a", "docs://secret/x/%2E%2e/a"),
    ],
)
async def test_no_spelling_gets_around_the_scopes_of_an_entry(app: GatewayApp, uri: str) -> None:
    refused = await read(app, uri)
    assert refused.status == 403
    granted = await read(app, uri, "admin")
    (contents,) = granted.result["contents"]
    assert contents["text"].startswith("TOP SECRET")
    assert contents["uri"] == uri, "the client gets the URI that it sent"


@pytest.mark.parametrize(
    ("query", "text"),
    [("", "10 all"), ("?q=a%20b", "10 a b"), ("?limit=3&q=b%2Fc", "3 b/c"), ("?q=", "10 ")],
)
async def test_what_a_query_leaves_out_has_its_default(app: GatewayApp, query: str, text: str) -> None:
    granted = await read(app, f"docs://found/caf%C3%A9{query}", "admin")
    assert granted.result["contents"][0]["text"] == f"TOP SECRET {text}"


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("docs://handbook/é", "page handbook/é"),
        ("DOCS://handbook/%C3%A9", "page handbook/é"),
        ("docs://Handbook/a/b%20c", "page Handbook/a/b c"),
        ("file:///etc/hosts", "hosts"),
        ("File:/etc/hosts", "hosts"),
        ("file:etc/h%6fsts", "hosts"),
    ],
)
async def test_the_author_gets_the_decoded_values_of_the_canonical_form(app: GatewayApp, uri: str, text: str) -> None:
    assert (await read(app, uri)).result["contents"][0]["text"] == text


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("docs://hand\tbook/salaries", "contains '\\t'"),
        (" docs://handbook/salaries", "blanks"),
        ("docs://handbook salaries", "contains ' '"),
        ("docs://handbook\\salaries", "contains '\\\\'"),
        ("docs://handbook/%00", "control character"),
        ("docs://handbook/%ff", "UTF-8"),
        ("docs://handbook/%", "contains '%'"),
        (f"docs://{'a' * MAX_URI_CHARACTERS}", "has 8199 characters; the limit is 8192"),
    ],
)
async def test_what_has_no_canonical_form_is_refused_with_the_reason(app: GatewayApp, uri: str, problem: str) -> None:
    answer = await read(app, uri, "admin")
    error = answer.message["error"]
    assert error["code"] == INVALID_PARAMS
    assert error["message"].startswith("params.uri ")
    assert problem in error["message"]
    assert len(json.dumps(error)) < 300


async def test_a_uri_that_nothing_serves_is_not_found(app: GatewayApp) -> None:
    error = (await read(app, "other://a")).message["error"]
    assert (error["code"], error["data"]) == (INVALID_PARAMS, {"uri": "other://a"})


async def test_a_completion_is_for_a_template_as_it_is_listed(app: GatewayApp) -> None:
    argument = {"name": "path", "value": "a"}

    async def completed(uri: str) -> Any:
        return await ask(app, "completion/complete", "", ref={"type": "ref/resource", "uri": uri}, argument=argument)

    assert (await completed("docs://{+path}")).result["completion"]["values"] == ["a"]
    assert (await completed("docs://secret/{+path}")).status == 403
    for uri in ("DOCS://secret/{+path}", "docs://secre%74/{+path}"):
        assert (await completed(uri)).message["error"]["code"] == INVALID_PARAMS
    error = (await completed(f"docs://{'a' * MAX_URI_CHARACTERS}")).message["error"]
    assert error["message"] == "params.ref.uri has 8199 characters; the limit is 8192"
