"""Finds tools, prompts, resources and questions in a source text, and their annotations."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from scripts.annotations.normal import VARIABLE, normal, unique
from scripts.annotations.scopes import Cases, Scopes, bound_names, cases, find, last_name
from scripts.annotations.sources import Source

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

DECORATORS: Final = {
    "tool": "tool",
    "mcp_tool": "tool",
    "prompt": "prompt",
    "mcp_prompt": "prompt",
    "resource": "resource",
    "mcp_resource": "resource",
}
"""A function with one of these decorators becomes a tool, a prompt or a resource."""
REGISTRARS: Final = {
    **DECORATORS,
    "add_tool": "tool",
    "from_function": "tool",
    "func_metadata": "tool",
    "add_prompt": "prompt",
    "add_resource": "resource",
}
"""So does the first argument of one of these calls."""
OWNERS: Final = {
    "Prompt": "prompt",
    "FunctionPrompt": "prompt",
    "Resource": "resource",
    "ResourceTemplate": "resource",
    "FunctionResource": "resource",
}
"""The classes whose `from_function` makes something else than a tool."""
FORMS: Final = {
    "elicit": ("response_type", "schema"),
    "elicit_form": ("requested_schema", "requestedSchema"),
    "Elicit": ("schema",),
    "ElicitRequestFormParams": ("requested_schema",),
    "parse_elicit_response_type": ("response_type",),
    "get_elicitation_schema": ("response_type",),
}
"""The calls that ask the user, and the names of the argument that says what for."""
_FIRST: Final = frozenset({"parse_elicit_response_type", "get_elicitation_schema"})


@dataclass(frozen=True, order=True)
class Use:
    """One use of an annotation.

    Attributes:
        kind: `tool parameter`, `tool result`, `prompt parameter`, …, `question` or `question field`.
        annotation: in its normal form; a parameter with its default, if that is a call or is not of its type.
        place: where, as `path:line`.
    """

    kind: str
    annotation: str
    place: str


def uses(source: Source, around: Mapping[str, ast.AST]) -> Iterator[Use]:
    """Yield every annotation of a parameter, a result or a question in a text.

    Args:
        source: the text.
        around: what other texts of the same project bind to names.
    """
    found = _Collector(source).in_scope(source.tree.body, (around,), inside_class=False)
    yield from (use for use in found if VARIABLE not in use.annotation)


class _Collector:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._seen: set[int] = set()

    def in_scope(self, body: list[ast.stmt], outer: Scopes, *, inside_class: bool) -> Iterator[Use]:
        scopes = (bound_names(body), *outer)
        for statement in body:
            yield from self._in_node(statement, scopes, inside_class=inside_class)

    def _in_node(self, node: ast.AST, scopes: Scopes, *, inside_class: bool) -> Iterator[Use]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for decorator in node.decorator_list:
                yield from self._in_node(decorator, scopes, inside_class=False)
                kind = DECORATORS.get(last_name(decorator))
                if kind is not None:
                    yield from self._function(kind, node, scopes, is_method=inside_class)
            yield from self.in_scope(node.body, (cases(node, scopes), *scopes), inside_class=False)
        elif isinstance(node, ast.ClassDef):
            yield from self.in_scope(node.body, scopes, inside_class=True)
        else:
            if isinstance(node, ast.Call):
                yield from self._call(node, scopes)
            for child in ast.iter_child_nodes(node):
                yield from self._in_node(child, scopes, inside_class=inside_class)

    def _call(self, call: ast.Call, scopes: Scopes) -> Iterator[Use]:
        name = last_name(call)
        if name in FORMS:
            yield from self._question(call, name, scopes)
        if name in REGISTRARS:
            kind = REGISTRARS[name]
            if isinstance(call.func, ast.Attribute):
                kind = OWNERS.get(last_name(call.func.value), kind)
            named = [word.value for word in call.keywords if word.arg in ("fn", "func")]
            for given in [*call.args[:1], *named]:
                function = find(given.id, scopes) if isinstance(given, ast.Name) else given
                if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield from self._function(kind, function, scopes, is_method=False)

    def _function(self, kind: str, function: Function, scopes: Scopes, *, is_method: bool) -> Iterator[Use]:
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        place = self._source.place(function)
        for annotation in _parameters(function.args, scopes, is_method=is_method):
            yield Use(f"{kind} parameter", annotation, place)
        for returned in _alternatives(function.returns, scopes):
            yield Use(f"{kind} result", normal(returned, scopes), place)

    def _question(self, call: ast.Call, name: str, scopes: Scopes) -> Iterator[Use]:
        given = [word.value for word in call.keywords if word.arg in FORMS[name]]
        given += call.args[:1] if name in _FIRST else call.args[1:2]
        if not given:
            return
        place = self._source.place(call)
        for asked in _alternatives(given[0], scopes):
            yield Use("question", _asked(asked, scopes), place)
            form = find(asked.id, scopes) if isinstance(asked, ast.Name) else None
            if isinstance(form, ast.ClassDef):
                for field in form.body:
                    if isinstance(field, ast.AnnAssign):
                        yield Use("question field", normal(field.annotation, scopes), place)


def _alternatives(node: ast.expr | None, scopes: Scopes) -> list[Any]:
    """Return what a name stands for in each case of a test; usually the node itself."""
    found = find(node.id, scopes) if isinstance(node, ast.Name) else None
    return list(found.elts) if isinstance(found, Cases) else [node]


def _parameters(arguments: ast.arguments, scopes: Scopes, *, is_method: bool) -> Iterator[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = list(zip(positional, defaults, strict=True))[int(is_method) :]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    for parameter, default in pairs:
        yield _parameter(parameter, default, scopes)
    if arguments.vararg is not None:
        yield "*arguments"
    if arguments.kwarg is not None:
        yield "**arguments"


def _parameter(parameter: ast.arg, default: ast.expr | None, scopes: Scopes) -> str:
    annotation = normal(parameter.annotation, scopes)
    if parameter.annotation is None and parameter.arg in ("ctx", "context"):
        annotation = "(none, named ctx)"
    if isinstance(default, ast.Call):
        return f"{annotation} = {normal(default, scopes)}"
    is_none = isinstance(default, ast.Constant) and default.value is None
    return f"{annotation} = None" if is_none and not annotation.endswith("None") else annotation


def _asked(asked: ast.expr, scopes: Scopes) -> str:
    """Return what a question asks for. A variable is followed to its value."""
    found = find(asked.id, scopes) if isinstance(asked, ast.Name) else None
    if isinstance(found, (ast.List, ast.Dict, ast.Call)):
        asked = found
    if isinstance(asked, ast.Call):
        return "(JSON Schema)"
    if isinstance(asked, ast.List):
        return _choices(asked)
    if isinstance(asked, ast.Constant) and isinstance(asked.value, str):
        return "'a'"
    return normal(asked, scopes)


def _choices(asked: ast.List) -> str:
    texts = []
    for item in asked.elts:
        if isinstance(item, ast.List):
            texts.append(_choices(item))
        elif isinstance(item, ast.Dict):
            texts.append("{'a': {'title': 'A'}}")
        else:
            texts.append("'a', 'b'" if isinstance(getattr(item, "value", ""), str) else ast.unparse(item))
    return f"[{', '.join(unique(texts))}]"
