"""The server stands by itself: on uvicorn's public names, and on nothing of the gateway."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

import gateway.http
from gateway.http.draining_server import DrainingServer

SOURCES = sorted(Path(gateway.http.__file__).parent.glob("*.py"))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def own_attributes(cls: type) -> set[str]:
    """Return the names that a class defines, and those that its methods set on `self`."""
    tree = ast.parse(inspect.getsource(cls))
    set_on_self = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }
    return set_on_self | set(vars(cls))


def test_no_private_name_of_uvicorn_is_overridden() -> None:
    private = set(filter(is_private, own_attributes(uvicorn.Server)))
    assert "_captured_signals" in private, "they are found"
    assert own_attributes(DrainingServer) & private == set()


def private_uses(source: str) -> Iterator[str]:
    """Find private names of others: those that are imported, and those that are looked up on anything but `self`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            yield from filter(is_private, [*(node.module or "").split("."), *(name.name for name in node.names)])
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and ast.unparse(node.value) != "self":
            yield node.attr


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_private_name_of_anybody_is_used(path: Path) -> None:
    assert list(private_uses("from uvicorn._types import Scope\nserver._serve()")) == ["_types", "_serve"]
    assert list(private_uses(path.read_text())) == []


def test_it_calls_nothing_of_its_parent_that_is_private() -> None:
    own, parents = own_attributes(DrainingServer), own_attributes(uvicorn.Server)
    used = {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(DrainingServer)))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"self", "super()"}
    }
    assert {"server_state", "startup"} <= used & parents
    assert set(filter(is_private, used - own)) == set()


def test_it_loads_nothing_else_of_the_gateway_and_no_framework() -> None:
    program = (
        "import sys, gateway; before = set(sys.modules); import gateway.http.draining_server;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "gateway.http.connection" in loaded
    assert [name for name in loaded if name.startswith("gateway.") and not name.startswith("gateway.http")] == []
    assert {"fastapi", "starlette", "mcp"}.isdisjoint(loaded)
