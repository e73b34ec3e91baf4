"""Annotations in a normal form: what an annotation means, without the names and numbers of one program."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from scripts.annotations.scopes import Scopes, find, last_name

VARIABLE: Final = "(variable)"
"""Stands for what only a running program knows."""

_BASES: Final = ("Enum", "StrEnum", "IntEnum", "TypedDict", "NamedTuple", "Protocol", "RootModel")
"""A class of the program that inherits from one of these is written as its name."""
_OLD_NAMES: Final = {"Dict": "dict", "FrozenSet": "frozenset", "List": "list", "Set": "set", "Tuple": "tuple"}
_CONTEXTS: Final = frozenset({"Context", "ServerRequestContext"})
_GENERIC: Final = frozenset({"Model", "Dataclass", "Class"})
_LOWER: Final = frozenset({*vars(builtins), "date", "datetime", "time", "timedelta"})
"""Types with a name in lower case. Any other such name, if nothing binds it, is a variable."""
_MAKERS: Final = frozenset({"Enum", "NewType", "TypeAliasType", "TypeVar", "create_model", "namedtuple"})
_MOST_NAMES: Final = 8
"""More names than this that stand for one another are a circle."""


def normal(node: ast.AST | None, scopes: Scopes, depth: int = 0) -> str:
    """Return an annotation in its normal form, which Python can still read.

    A class of the program becomes its kind, such as `Model` or `Enum`; a union is sorted; constants, and arguments
    of calls, become one example or `...`.
    """
    if node is None:
        return "(none)"
    if depth > _MOST_NAMES:
        return "(recursive)"
    write = _WRITERS.get(type(node))
    return ast.unparse(node) if write is None else write(node, scopes, depth)


def kind_of(node: ast.ClassDef, scopes: Scopes, depth: int = 0) -> str:
    """Return the kind of a class: `Model`, `Dataclass`, `Enum`, …, or `Class` for any other."""
    if any(last_name(decorator) == "dataclass" for decorator in node.decorator_list):
        return "Dataclass"
    bases = [last_name(base) for base in node.bases]
    if "Enum" in bases and "str" in bases:
        return "StrEnum"
    for base in bases:
        found = find(base, scopes)
        if isinstance(found, ast.ClassDef) and found is not node and depth < _MOST_NAMES:
            kind = kind_of(found, scopes, depth + 1)
        else:
            kind = base if base in _BASES else "Model" if base in ("BaseModel", "BaseSettings") else "Class"
        if kind != "Class":
            return kind
    return "Class"


def unique(texts: Iterable[str]) -> list[str]:
    """Return each text once, in their order."""
    return list(dict.fromkeys(texts))


def _constant(node: ast.Constant, scopes: Scopes, depth: int) -> str:
    if not isinstance(node.value, str):
        return repr(node.value)
    try:
        return normal(ast.parse(node.value.strip(), mode="eval").body, scopes, depth + 1)
    except SyntaxError:
        return repr("text")


def _name(node: ast.Name, scopes: Scopes, depth: int) -> str:
    found = find(node.id, scopes)
    if isinstance(found, ast.ClassDef):
        return kind_of(found, scopes)
    if isinstance(found, ast.Call) and last_name(found) in _MAKERS:
        return _made(found, scopes, depth)
    if isinstance(found, (ast.Subscript, ast.BinOp)) or (isinstance(found, ast.Name) and found.id != node.id):
        return normal(found, scopes, depth + 1)
    if found is None and node.id.islower() and node.id not in _LOWER:
        return VARIABLE
    return _OLD_NAMES.get(node.id, node.id)


def _made(call: ast.Call, scopes: Scopes, depth: int) -> str:
    maker = last_name(call)
    if maker in ("NewType", "TypeAliasType") and len(call.args) > 1:
        return normal(call.args[1], scopes, depth + 1)
    return {"create_model": "Model", "namedtuple": "NamedTuple"}.get(maker, maker)


def _attribute(node: ast.Attribute, _scopes: Scopes, _depth: int) -> str:
    return _OLD_NAMES.get(node.attr, node.attr)


def _operator(node: ast.BinOp, scopes: Scopes, depth: int) -> str:
    return _union([node.left, node.right], scopes, depth)


def _union(members: Sequence[ast.expr], scopes: Scopes, depth: int) -> str:
    texts: set[str] = set()
    for member in members:
        text = normal(member, scopes, depth)
        is_union = isinstance(member, ast.BinOp) or last_name(member) in ("Union", "Optional")
        texts.update(text.split(" | ") if is_union else [text])
    return " | ".join(sorted(texts, key=lambda text: (text == "None", text)))


def _subscript(node: ast.Subscript, scopes: Scopes, depth: int) -> str:
    head = normal(node.value, scopes, depth)
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if head in ("Optional", "Union"):
        return _union([*items, ast.Constant(None)] if head == "Optional" else items, scopes, depth)
    if head in _CONTEXTS or head in _GENERIC:  # what they are generic in does not matter here
        return head
    if head == "Literal":
        return f"Literal[{', '.join(unique(map(_choice, items)))}]"
    texts = items[1:] if head == "Annotated" else []
    parts = ["'text'" if item in texts and _is_text(item) else normal(item, scopes, depth) for item in items]
    parts = ["..." if part == "Ellipsis" else part for part in parts]
    return f"{head}[{', '.join(parts)}]"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _choice(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return "Enum.A"
    value = node.value if isinstance(node, ast.Constant) else -1
    return {bool: "True", int: "1, 2", str: "'a', 'b'"}.get(type(value), repr(value))


def _call(node: ast.Call, scopes: Scopes, depth: int) -> str:
    given = ["..."] if node.args and last_name(node) != "Field" else []
    given += sorted(f"{word.arg}=..." for word in node.keywords if word.arg is not None)
    return f"{normal(node.func, scopes, depth)}({', '.join(given)})"


def _list(node: ast.List | ast.Tuple, scopes: Scopes, depth: int) -> str:
    return f"[{', '.join(unique(normal(item, scopes, depth) for item in node.elts))}]"


def _dict(node: ast.Dict, scopes: Scopes, depth: int) -> str:
    keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
    if not keys.isdisjoint({"properties", "type"}):
        return "(JSON Schema)"
    if keys == {"title"}:
        return "{'title': 'A'}"
    values = unique(normal(value, scopes, depth) for value in node.values)
    return f"{{'a': {values[0]}}}" if values else "{}"


_WRITERS: Final[dict[type[ast.AST], Callable[[Any, Scopes, int], str]]] = {
    ast.Attribute: _attribute,
    ast.BinOp: _operator,
    ast.Call: _call,
    ast.Constant: _constant,
    ast.Dict: _dict,
    ast.List: _list,
    ast.Name: _name,
    ast.Subscript: _subscript,
    ast.Tuple: _list,
}
