"""The places where the code reads settings, and the settings that tests are marked with."""

from __future__ import annotations

import ast
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.settings.model import Settings

SETTINGS_MODEL: Final = "gateway/settings/model.py"
OWNERS: Final = ("settings", "_settings")
POLICY: Final = "LegPolicy"
POLICY_OWNERS: Final = ("policy", "_policy")
COMMON_WORDS: Final = frozenset(
    {
        *("tools", "upstreams", "audience", "auth", "host", "log_level", "peers", "playground", "port"),
        *("replica_url", "seal_keys"),
    }
)
"""Settings whose names mean other things, too: only `settings.<name>` is a reading."""
OTHER_MEANINGS: Final = {
    "state_ttl_seconds": ("gateway/authoring/", "gateway/registry/", "gateway/calls/"),
    "max_connections": ("gateway/upstreams/", "gateway/http_client/", "gateway/process/upstreams.py"),
    "max_result_bytes": ("gateway/upstreams/", "gateway/cli/upstream_call.py"),
    "head_seconds": ("gateway/observability/",),
    "holders": ("gateway/upstreams/held/",),
}
"""Where a name of a setting means something else, such as an option of a tool or an upstream's own limit."""
SEPARATE: Final = ("gateway/settings/", "gateway/sizing/", "gateway/demo/", "gateway/testing/")
"""Packages that read no settings of a process."""
WITHOUT_EFFECT: Final[Mapping[tuple[str, str], str]] = {
    ("gateway/process/app.py", "if self._services.settings.replica_url is None:"): "only decides on a hint in the log",
    (
        "gateway/process/app.py",
        "if self._services.settings.redis_url is None and not self._services.settings.peers:",
    ): "the same",
    (
        "gateway/process/services.py",
        "return OpenAuditLog(AuditLog(len, settings.replica_id, time.time, as_json=as_json), flush=lambda: True)",
    ): "this audit log writes nothing",
    (
        "gateway/cli/upstreams.py",
        "connecting = Connecting(telemetry, str(settings.upstreams), children, secret_values(settings), holder=holder)",
    ): "only names the file in messages",
}
"""Readings whose loss nobody could notice, by file and line of code, each with the reason."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A place where the code reads a setting.

    Attributes:
        field: the name of the setting.
        path: the file, relative to the top of the tree.
        start: where the expression begins, in bytes of the file; `end` is behind it.
        line: its line number.
        text: the whole line.
    """

    field: str
    path: str
    start: int
    end: int
    line: int
    text: str

    @property
    def place(self) -> tuple[str, str]:
        """The file and the line of code, which stay the same when other lines change."""
        return self.path, self.text


class Finder(ast.NodeVisitor):
    """Find the readings in one file, in `found`.

    A reading is `settings.max_json_depth`, a member of `LegPolicy`, or a variable or attribute of the setting's name
    that is passed to a function or kept in an attribute. Text for people does not count: formatted strings and log
    lines. Nor do assertions, which repeat for the type checker what the checks at the start have established.

    Args:
        path: the file.
        source: its content.
        fields: the names of all settings.
        members: the members of the leg policy, each with its setting.
    """

    def __init__(self, path: str, source: bytes, fields: Iterable[str], members: Mapping[str, str]) -> None:
        self.found: list[Reading] = []
        self._path = path
        self._source = source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0, *itertools.accumulate(map(len, self._lines))]
        self._fields = frozenset(fields)
        self._members = members

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip text for people."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Skip what only the type checker needs."""

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Take `settings.<field>` and `policy.<member>`."""
        if isinstance(node.ctx, ast.Load):
            field = self._direct(node)
            if field is not None:
                self._take(field, node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Take arguments that pass a setting on."""
        if isinstance(node.func, ast.Attribute) and _name_of(node.func.value) == "log":
            return
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "load"):
            self._take_hops([*node.args, *(keyword.value for keyword in node.keywords)])
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Take what an attribute keeps."""
        if isinstance(node.targets[0], ast.Attribute):
            self._take_hops([node.value])
        self.generic_visit(node)

    def _direct(self, node: ast.AST) -> str | None:
        if not isinstance(node, ast.Attribute):
            return None
        owner = _name_of(node.value)
        if owner in OWNERS and node.attr in self._fields:
            return node.attr
        return self._members.get(node.attr) if owner in POLICY_OWNERS else None

    def _take_hops(self, values: Iterable[ast.expr]) -> None:
        for value in values:
            name = (_name_of(value) or "").lstrip("_")
            field = self._members.get(name, name)
            if field in self._fields and self._direct(value) is None and self._is_meant(field):
                self._take(field, value)

    def _is_meant(self, field: str) -> bool:
        return field not in COMMON_WORDS and not self._path.startswith(OTHER_MEANINGS.get(field, ()) or "\0")

    def _take(self, field: str, node: ast.expr) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        text = self._lines[node.lineno - 1].decode().strip()
        self.found.append(Reading(field, self._path, start, end, node.lineno, text))


def _name_of(node: ast.AST) -> str | None:
    """Return the last name of `a.b.c` or `c`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def readings_in(path: str, source: bytes, fields: Iterable[str], members: Mapping[str, str]) -> list[Reading]:
    """Return the readings of settings in one file, in order."""
    finder = Finder(path, source, fields, members)
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda reading: (reading.start, reading.end))


def readings_in_properties(path: str, source: bytes, fields: Iterable[str]) -> list[Reading]:
    """Return the readings in properties of the settings themselves, which other code reads instead of the fields."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and any(_name_of(each) == "property" for each in node.decorator_list):
            finder = Finder(path, source, (), {})
            for inner in ast.walk(node):
                if isinstance(inner, ast.Attribute) and _name_of(inner.value) == "self" and inner.attr in set(fields):
                    finder._take(inner.attr, inner)  # noqa: SLF001 - the same module
            found += finder.found
    return found


def members_of_policy(sources: Iterable[bytes]) -> dict[str, str]:
    """Return the members of the leg policy, each with the setting that it is made from."""
    members = {}
    for node in itertools.chain.from_iterable(ast.walk(ast.parse(source)) for source in sources):
        if isinstance(node, ast.Call) and _name_of(node.func) == POLICY:
            for keyword in node.keywords:
                if keyword.arg and isinstance(keyword.value, ast.Attribute):
                    members[keyword.arg] = keyword.value.attr
    return members


def disconnect(source: bytes, reading: Reading, default: object) -> bytes:
    """Return the source with the default in place of a reading."""
    expression = f"[{default!r}][0]"  # Python warns of `1 is None`
    return source[: reading.start] + expression.encode() + source[reading.end :]


def default_of(field: str) -> object:
    """Return the default of a setting; a made-up one where the default is made up, too."""
    made = Settings.model_fields[field].default_factory is not None
    return "made-up" if made else Settings.model_fields[field].default


def all_readings(top: Path) -> list[Reading]:
    """Return the readings of all settings in the gateway and its workers, by setting, then by place."""
    paths = sorted(path for folder in ("gateway", "workers") for path in (top / folder).rglob("*.py"))
    sources = {str(path.relative_to(top)): path.read_bytes() for path in paths}
    sources = {path: source for path, source in sources.items() if not path.startswith(SEPARATE)}
    members = members_of_policy(sources.values())
    fields = list(Settings.model_fields)
    model = (top / SETTINGS_MODEL).read_bytes()
    found = readings_in_properties(SETTINGS_MODEL, model, fields)
    for path, source in sources.items():
        found += readings_in(path, source, fields, members)
    return sorted(found, key=lambda reading: fields.index(reading.field))


def marks(tests: Path) -> dict[str, set[Path]]:
    """Return the settings that tests are marked with, each with the files of these tests."""
    found: dict[str, set[Path]] = defaultdict(set)
    for path in tests.rglob("*.py"):
        source = path.read_bytes()
        if b"mark.setting(" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.setting"):
                for argument in node.args:
                    found[ast.literal_eval(argument)].add(path)
    return dict(found)
