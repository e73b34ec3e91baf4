"""Finds the meaning of a name in a source text."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from scripts.annotations.sources import Source

Scopes: TypeAlias = tuple[Mapping[str, ast.AST], ...]
"""The names that are bound around a place, innermost scope first."""

LIBRARIES: Final = frozenset({"fastmcp", "fastmcp_tasks", "mcp", "mcp_types", "pydantic", *sys.stdlib_module_names})
"""Names imported from these are kept; anything else is a module of the project."""

_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def bound_names(body: list[ast.stmt]) -> dict[str, ast.AST]:
    """Return what the statements of one scope bind to names: functions, classes, values, imports."""
    names: dict[str, ast.AST] = {}
    for node in _own_nodes(body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            names[node.target.id] = node.value
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and str(node.module).partition(".")[0] in LIBRARIES:
            names.update({alias.asname or alias.name: node for alias in node.names})
    return names


def _own_nodes(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the statements of a scope, also those in `if`, `with` and `try`, but not those of scopes inside it."""
    for node in body:
        yield node
        if not isinstance(node, _SCOPES):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.stmt):
                    yield from _own_nodes([child])
                elif isinstance(child, ast.ExceptHandler):
                    yield from _own_nodes(child.body)


class Cases(ast.List):
    """The values of a parameter of a test, which runs once with each of them."""


def cases(function: ast.FunctionDef | ast.AsyncFunctionDef, scopes: Scopes) -> dict[str, ast.AST]:
    """Return the values of the parameters that `pytest.mark.parametrize` gives to a test."""
    found: dict[str, ast.AST] = {}
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and last_name(decorator) == "parametrize" and len(decorator.args) > 1:
            names, values = decorator.args[:2]
            if isinstance(values, ast.Name):
                values = _expression(find(values.id, scopes))
            if isinstance(values, ast.List):
                found.update(_columns(_names(names), values.elts))
    return found


def _names(node: ast.expr) -> list[str]:
    items = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
    texts = [str(item.value) for item in items if isinstance(item, ast.Constant)]
    return [name.strip() for text in texts for name in text.split(",")]


def _columns(names: list[str], rows: list[ast.expr]) -> Iterator[tuple[str, Cases]]:
    for column, name in enumerate(names):
        values = []
        for row in rows:
            items = row.args if isinstance(row, ast.Call) and last_name(row) == "param" else [row]
            if len(names) > 1 and isinstance(items[0], ast.Tuple):
                items = items[0].elts
            values.extend(items[column : column + 1])
        yield name, Cases(values)


def _expression(node: ast.AST | None) -> ast.expr:
    return node if isinstance(node, ast.expr) else ast.Constant(None)


def shared_names(sources: Iterable[Source]) -> dict[str, dict[str, ast.AST]]:
    """Return what other texts bind around a text, by its path: the blocks of its page, or classes of its project."""
    pages: defaultdict[str, dict[str, ast.AST]] = defaultdict(dict)
    classes: dict[str, ast.AST] = {}
    for source in sources:
        names = bound_names(source.tree.body)
        if source.path.endswith(".py"):
            classes.update({name: node for name, node in names.items() if isinstance(node, ast.ClassDef)})
        else:
            pages[source.path].update(names)
    return {source.path: {**classes, **pages.get(source.path, {})} for source in sources}


def find(name: str, scopes: Scopes) -> ast.AST | None:
    """Return what a name is bound to, or None if the text does not bind it."""
    return next((scope[name] for scope in scopes if name in scope), None)


def dotted(node: ast.AST) -> str:
    """Return `a.b.c` for a name or an attribute, and the empty string for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        start = dotted(node.value)
        return start and f"{start}.{node.attr}"
    return ""


def last_name(node: ast.AST) -> str:
    """Return the last name of `a.b.c(…)` or `a.b.c[…]`: `c`; the empty string for anything else."""
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
