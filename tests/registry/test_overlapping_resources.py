"""A URI that may mean several resources requires the scopes of all of them."""

from __future__ import annotations

from typing import Any

import pytest

from gateway import resource
from gateway.registry.registry import Registry


def exact(uri: str, *scopes: str) -> Any:
    def read() -> str:
        return "exact"

    return resource(uri, scopes=scopes)(read)


@resource("a://{x}{?q,other}", scopes=["user"])
def search(x: str, q: str = "", other: str = "") -> str:
    return x + q + other


@resource("tree://{+path}")
def tree(path: str) -> str:
    return path


@resource("tree://secret/{name}", scopes=["admin"])
def secret(name: str) -> str:
    return name


@resource("tree://{first}/{second}", scopes=["pairs"])
def pair(first: str, second: str) -> str:
    return first + second


REGISTRY = Registry(
    [search, tree, secret, pair, exact("a://b", "admin"), exact("tree://top", "root"), exact("a://open")]
)


@resource("vault://{host}/{name}")
def opened(host: str, name: str) -> str:
    return host + name


@resource("vault://Keys/{name}", scopes=["keys"])
def keys(name: str) -> str:
    return name


HOSTS = Registry([opened, keys, exact("vault://admin/x", "admin"), exact("vault://Capitals/x", "capitals")])


@pytest.mark.parametrize(
    ("uri", "needed"),
    [
        ("vault://ADMIN/x", {"admin"}),
        ("vault://admin:80/x", {"admin"}),
        ("vault://admin:/x", {"admin"}),
        ("vault://u@admin/x", {"admin"}),
        ("vault://u:p@Admin:1/x?q", {"admin"}),
        ("VAULT://%41DMIN/x", {"admin"}),
        ("vault://admin./x", {"admin"}),
        ("vault://capitals/x", {"capitals"}),
        ("vault://keys/1", {"keys"}),
        ("vault://me@KEYS:1/1", {"keys"}),
        ("vault://admin/y", set()),
        ("vault://admin2/x", set()),
        ("vault://x@other/x", set()),
    ],
)
def test_another_spelling_of_a_host_requires_the_scopes_of_the_usual_one(uri: str, needed: set[str]) -> None:
    found = HOSTS.find_resource(uri)
    assert found is None or set(found[0].scopes) == needed


def scopes(uri: str) -> set[str] | None:
    found = REGISTRY.find_resource(uri)
    return None if found is None else set(found[0].scopes)


@pytest.mark.parametrize(
    ("uri", "needed"),
    [
        ("a://b", {"admin"}),
        ("a://b?", {"admin"}),
        ("a://b?q=", {"admin", "user"}),
        ("a://b?other=1", {"admin", "user"}),
        ("A://%62?q=x", {"admin", "user"}),
        ("a://c?q=x", {"user"}),
        ("a://open?q=x", {"user"}),
        ("tree://top", {"root"}),
        ("tree://top?q=1", {"root"}),
        ("tree://top#part", {"root"}),
        ("tree://%74op?q#part", {"root"}),
        ("tree://other", set()),
        ("tree://secret/1", {"admin", "pairs"}),
        ("tree://secret/1?q", {"admin", "pairs"}),
        ("tree://secret/1#part", {"admin", "pairs"}),
        ("tree://one/two", {"pairs"}),
        ("tree://one/two/three", set()),
    ],
)
def test_a_uri_requires_the_scopes_of_all_that_it_may_mean(uri: str, needed: set[str]) -> None:
    assert scopes(uri) == needed


@pytest.mark.parametrize("uri", ["a://b#part", "a://b?q=1#part", "a://b?unknown=1", "a://b%3Fq=1"])
def test_other_texts_around_an_exact_uri_lead_nowhere(uri: str) -> None:
    assert scopes(uri) in (None, {"user"} if "%3F" in uri else None)


def test_a_template_that_is_guarded_for_one_uri_is_the_same_for_others() -> None:
    assert REGISTRY.find_resource("a://b?q=1") is not None
    assert REGISTRY.find_resource("a://c") == (search, {"x": "c"})
    assert search.scopes == {"user"}
    assert REGISTRY.scopes_of(search, "a://b?q=1") == {"admin", "user"}
