"""Compiled modules follow the rules of compiled code, as far as their syntax shows.

Each rule has an example that breaks it, and its reason. docs/run/compiled.md has the rules that syntax does not show.
"""

from __future__ import annotations

import ast
import functools
import runpy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.slow

TOP: Final = Path(__file__).resolve().parents[2]
LISTED: Final = tuple(runpy.run_path(str(TOP / "setup.py"))["COMPILED"])
Checker = Callable[[ast.Module], Iterator[ast.AST]]
"""Yields the nodes of a module that break a rule."""

FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
SUSPENDING: Final = (ast.Await, ast.AsyncWith, ast.AsyncFor)
RESERVED_BY_C: Final = frozenset(
    f"_{word}"
    for word in ("asm", "complex", "const", "imag", "inline", "real", "restrict", "signed", "thread", "volatile")
)
LOOKS_AT_FRAMES: Final = frozenset(
    {"_current_frames", "_getframe", "currentframe", "getouterframes", "__code__", "f_locals", "locals", "eval", "exec"}
)
STRUCTS: Final = {
    "Journal": "its stored form is made of all its fields at once",
    **dict.fromkeys(("Request", "Notification", "Response", "Continuation", "ToolCall"), "read once or twice"),
    **dict.fromkeys(
        ("ListenFilter", "PromptGet", "ResourceRead", "CompletionRequest"), "not made for a call of a tool"
    ),
}
"""The `msgspec.Struct` classes of compiled modules, each with the reason why it need not be a plain class."""

MADE_AT_RUN_TIME: Final = frozenset({"BaseModel", "BaseSettings", "RootModel"})


def inside(*nodes: ast.AST) -> Iterator[ast.AST]:
    """Yield nodes and everything in them, except the bodies of functions defined there."""
    for node in nodes:
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.Lambda)):
            yield from inside(*ast.iter_child_nodes(node))


def lost_causes(module: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(module):
        match node:
            case ast.Raise(_, None | ast.Constant(None)):
                pass
            case ast.Raise():
                yield node


def lost_errors(module: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(module):
        if isinstance(node, ast.ExceptHandler):
            within = list(inside(*node.body))
            if any(raises_on(each, node.name) for each in within):
                yield from (each for each in within if isinstance(each, SUSPENDING))
        elif isinstance(node, ast.Try):
            yield from (each for each in inside(*node.finalbody) if isinstance(each, SUSPENDING))


def raises_on(node: ast.AST, caught: str | None) -> bool:
    """Return whether a statement raises the error that is being handled."""
    if not isinstance(node, ast.Raise):
        return False
    return node.exc is None or (isinstance(node.exc, ast.Name) and node.exc.id == caught)


def recursion(module: ast.Module) -> Iterator[ast.AST]:
    calls = {name: set(called(function, owner)) for name, owner, function in functions(module)}
    for name, _, function in functions(module):
        reached, ahead = set[str](), [name]
        while ahead:
            further = calls.get(ahead.pop(), set()) - reached
            reached |= further
            ahead += further
        if name in reached:
            yield function


def loose_conditions(module: ast.Module) -> Iterator[ast.AST]:
    for coroutine in ast.walk(module):
        if isinstance(coroutine, ast.AsyncFunctionDef):
            for node in inside(*coroutine.body):
                match node:
                    case ast.IfExp(test=ast.BoolOp() as test):
                        yield from (each for each in ast.walk(test) if is_chain(each))


def is_chain(node: ast.AST) -> bool:
    """Return whether a node is an attribute of an attribute."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute)


def functions(module: ast.Module) -> Iterator[tuple[str, str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield the functions and methods of a module: name, the class with a dot or nothing, function."""
    for node in ast.walk(module):
        owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, FUNCTIONS):
                yield owner + child.name, owner, child


def called(function: ast.AST, owner: str) -> Iterator[str]:
    """Yield the functions that a function calls in its module, and on its own object."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(name):
                    yield name
                case ast.Attribute(ast.Name("self" | "cls"), name):
                    yield owner + name


def dropped_keywords(module: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef):
            yield from (keyword for keyword in node.keywords if keyword.arg != "frozen")


def structs(module: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef) and node.name not in STRUCTS:
            yield from (base for base in node.bases if ast.unparse(base) in {"Struct", "msgspec.Struct"})


def pydantic_models(module: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef):
            yield from (base for base in node.bases if isinstance(base, ast.Name) and base.id in MADE_AT_RUN_TIME)


def deleted_parameters(module: ast.Module) -> Iterator[ast.AST]:
    for function in ast.walk(module):
        if isinstance(function, FUNCTIONS):
            parameters = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del) and node.id in parameters:
                    yield node


def words_of_c(module: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(module):
        match node:
            case ast.Attribute(_, name) | ast.AnnAssign(ast.Name(name)) if name in RESERVED_BY_C:
                yield node


def frames(module: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(module):
        match node:
            case ast.Attribute(_, name) | ast.Name(name) if name in LOOKS_AT_FRAMES:
                yield node


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule for compiled modules.

    Attributes:
        find: finds the nodes of a module that break it.
        reason: the difference in compiled code.
        broken: a module that breaks it once.
        kept: the same code in a form that may be compiled.
    """

    find: Checker
    reason: str
    broken: str
    kept: str


RULES: Final = [
    Rule(
        lost_causes,
        "`raise … from error` raises without its cause",
        "try:\n    work()\nexcept ValueError as error:\n    raise Broken from error\n",
        "try:\n    work()\nexcept ValueError:\n    raise Broken from None\n",
    ),
    Rule(
        lost_errors,
        "an `await` in `except` loses the error that is raised on after it",
        "async def f():\n    try:\n        work()\n    except ValueError:\n        await tell()\n        raise\n",
        "async def f():\n    try:\n        work()\n    except ValueError:\n        await tell()\n",
    ),
    Rule(
        lost_errors,
        "an `await` in `finally` loses the error that passes it",
        "async def f():\n    try:\n        work()\n    finally:\n        async with lock:\n            tell()\n",
        "async def f():\n    try:\n        work()\n    finally:\n        tell()\n    await rest()\n",
    ),
    Rule(
        recursion,
        "there is no limit of recursion: a stack that overflows ends the process",
        "def depth(value):\n    return 1 + max(depth(each) for each in value)\n",
        "def depth(value):\n    return deepest(value)\n",
    ),
    Rule(
        recursion,
        "the same, by way of another method",
        "class A:\n    def a(self):\n        self.b()\n\n    def c(self):\n        self.b()\n\n"
        "    def b(self):\n        self.d()\n\n    def d(self):\n        for each in self.parts: self.d()\n",
        "class A:\n    def a(self):\n        super().a()\n\n    def b(self):\n        self.a()\n",
    ),
    Rule(
        dropped_keywords,
        "keywords of a class are dropped; only mypy, not the class, then holds a `Struct` frozen",
        "class Tagged(Struct, frozen=True, tag=True):\n    name: str\n",
        "class Plain(Struct, frozen=True):\n    name: str\n",
    ),
    Rule(
        structs,
        "attributes of a `Struct` are looked up by name, which takes many times as long as in a class without bases",
        "class Visit(msgspec.Struct):\n    since: float\n",
        "class Visit:\n    def __init__(self, since: float) -> None:\n        self.since = since\n",
    ),
    Rule(
        pydantic_models,
        "pydantic makes classes at run time, which compiled code cannot",
        "class Model(BaseModel):\n    name: str\n",
        "class Model:\n    name: str\n",
    ),
    Rule(
        loose_conditions,
        "`x if a or b.c.d else y` in a coroutine drops a reference that it never took: the process dies (mypyc 2.4.1)",
        "async def f(self):\n    return None if self.a is None or self.b.c is None else 1\n",
        "async def f(self):\n    if self.a is None or self.b.c is None:\n        return None\n    return 1\n",
    ),
    Rule(
        deleted_parameters,
        "a parameter cannot be deleted",
        "def f(body):\n    del body\n",
        "def f(body):\n    read = body\n    del read\n",
    ),
    Rule(
        words_of_c,
        "an attribute gets an underscore more in C, where `__thread` is a word",
        "def f(self):\n    self._thread = 1\n",
        "def f(self):\n    self._worker = 1\n",
    ),
    Rule(
        frames,
        "compiled functions have neither frames nor code objects",
        "def f(g):\n    return g.__code__\n",
        "def f(g):\n    return g.__name__\n",
    ),
]


@functools.cache
def parsed(name: str) -> ast.Module:
    return ast.parse((TOP / name).read_text())


by_reason = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.reason)


@by_reason
def test_listed_modules_keep_the_rule(rule: Rule) -> None:
    found = [
        f"{name}:{getattr(node, 'lineno', 0)}: {rule.reason}" for name in LISTED for node in rule.find(parsed(name))
    ]
    assert found == []


@by_reason
def test_a_module_that_breaks_the_rule_is_found(rule: Rule) -> None:
    assert len(list(rule.find(ast.parse(rule.broken)))) == 1
    assert list(rule.find(ast.parse(rule.kept))) == []


def heirs(module: ast.Module, compiled: frozenset[str]) -> Iterator[ast.ClassDef]:
    """Yield the classes of a module that inherit from a class of one of the compiled modules."""
    imported = {
        alias.asname or alias.name
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and node.module in compiled
        for alias in node.names
    }
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef) and imported & {base.id for base in node.bases if isinstance(base, ast.Name)}:
            yield node


def test_no_interpreted_class_inherits_from_a_compiled_one() -> None:
    """Importing its module would fail."""
    compiled = frozenset(name.removesuffix(".py").replace("/", ".") for name in LISTED)
    interpreted = [
        path
        for package in ("gateway", "workers")
        for path in (TOP / package).rglob("*.py")
        if str(path.relative_to(TOP)) not in LISTED
    ]
    assert [path for path in interpreted if list(heirs(ast.parse(path.read_text()), compiled))] == []
    heir = ast.parse("from gateway.engine.leg import Leg\n\nclass Mine(Leg):\n    pass\n")
    assert len(list(heirs(heir, compiled))) == 1
