"""URI templates of resources: the part of RFC 6570 that can be matched in only one way.

`{name}` stands for one path segment or a part of one: it never contains `/`, `?` or `#`. `{+name}` stands for
everything between the text before and the text after it, including slashes. Both stand for at least one character.
`{?a,b}` at the end stands for a query (RFC 6570 section 3.2.8): each of its variables is there once, or not at all.

The author's code receives decoded values, so a URI that could mislead it does not match:

- broken percent encodings, and bytes that are not UTF-8;
- an encoded slash or backslash in a value, because it would have other segments than the URI;
- a `{+name}` that begins with a slash, because it would be an absolute path, or that has an empty segment;
- `.` or `..` as a segment, because other readers resolve such a URI to a different one (RFC 3986 section 5.2.4).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from gateway.errors import AuthoringError

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_VARIABLE: Final = re.compile(r"(\+?)([A-Za-z_][A-Za-z0-9_]*)")
_QUERY: Final = re.compile(r"\{\?([A-Za-z_][A-Za-z0-9_]*(?:,[A-Za-z_][A-Za-z0-9_]*)*)\}\Z")
_LITERAL: Final = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*")
"""The characters of a URI (RFC 3986 section 2)."""
_BROKEN_ENCODING: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ENCODED_SLASH: Final = re.compile(r"%2f|%5c", re.IGNORECASE)
_ENCODED_BACKSLASH: Final = re.compile(r"%5c", re.IGNORECASE)
_END_OF_SEGMENT: Final = re.compile(r"[/?#]")
_DOT_SEGMENTS: Final = frozenset({".", ".."})


def is_template(text: str) -> bool:
    """Return whether a URI has variables."""
    return "{" in text or "}" in text


class UriTemplate:
    """A URI with variables.

    A `{name}` ends at the first occurrence of the text after it. After a `{+name}`, it begins after the last occurrence
    of the text before it. Matching looks at each character a fixed number of times, without backtracking, and finds a
    match whenever there is one. The variables of a query may come in any order, and the values in it may contain
    slashes.

    Attributes:
        text: the template as written.
        variables: the names of the variables, in order. They are Python identifiers. A match need not have those of
            the query.

    Raises:
        AuthoringError: the template has another expression of RFC 6570, the same name twice, two variables without
            text between them, more than one `{+name}`, or characters that a URI cannot have. Or `{?name}` is not the
            whole query.
    """

    __slots__ = ("_literals", "_path", "_query", "_rest", "text", "variables")

    def __init__(self, text: str) -> None:
        path, query = _without_query(text)
        # Literals and expressions alternate: there is one literal more than there are variables.
        literals, expressions = _EXPRESSION.split(path)[::2], _EXPRESSION.findall(path)
        variables = [_variable(text, expression) for expression in expressions]
        names = (*(name for _, name in variables), *query)
        rests = [index for index, (plus, _) in enumerate(variables) if plus]
        if not names:
            raise _wrong(text, "it has no {variable}")
        if len(set(names)) != len(names):
            raise _wrong(text, "each variable can occur only once")
        if len(rests) > 1:
            raise _wrong(text, "only one variable can be written {+name}; otherwise nothing shows where one ends")
        _check_literals(text, literals)
        self.text = text
        self.variables = names
        self._path = names[: len(variables)]
        self._query = query
        self._literals = tuple(literals)
        self._rest = rests[0] if rests else None

    def __repr__(self) -> str:
        return f"UriTemplate({self.text!r})"

    def expand(self, values: Mapping[str, object]) -> str:
        """Return the URI for the values of its variables. A variable of the query may be missing or None."""
        text = self.text
        for name in [name for name in self._path if name in values]:
            value = str(values[name])
            text = text.replace(f"{{{name}}}", quote(value, safe="")).replace(f"{{+{name}}}", quote(value))
        given = [(name, values[name]) for name in self._query if values.get(name) is not None]
        query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in given)
        return text if not self._query else f"{text.rpartition('{')[0]}{'?' if query else ''}{query}"

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the decoded value of each variable, or None if the URI does not match."""
        path, query = self._split(uri)
        spans = None if path is None else self._spans_of(path)
        if spans is None:
            return None
        found = [(name, _segment(raw)) for name, raw in zip(self._path, spans, strict=True)]
        if self._rest is not None:
            found[self._rest] = self._path[self._rest], _rest(spans[self._rest])
        found += [self._given(part) for part in query.split("&")] if query else []
        values = {name: value for name, value in found if value is not None}
        return values if len(values) == len(found) else None

    def _split(self, uri: str) -> tuple[str | None, str]:
        """Return path and query; no path if the URI cannot match."""
        if not self._query:
            return uri, ""
        path, _, query = uri.partition("?")
        return (None if "#" in uri else path), query  # what follows a # belongs to no query

    def _spans_of(self, path: str) -> list[str] | None:
        if self._path:
            return self._spans(path)
        return [] if path == self._literals[0] else None

    def _given(self, part: str) -> tuple[str, str | None]:
        """Return name and decoded value of a part of the query. The value is None if the part does not match."""
        name, equals, raw = part.partition("=")
        fits = equals and name in self._query and not _ENCODED_BACKSLASH.search(raw)
        return name, _plain(raw) if fits else None

    def _spans(self, uri: str) -> list[str] | None:
        """Split the URI at the literals, without checking the values between them.

        It works from the left to the `{+name}`, and then from the right back to it.
        """
        literals = self._literals
        if not (uri.startswith(literals[0]) and uri.endswith(literals[-1])):
            return None
        start, end = len(literals[0]), len(uri) - len(literals[-1])
        middle = len(literals) - 2 if self._rest is None else self._rest
        before: list[str] = []
        for literal in literals[1 : middle + 1]:
            found = uri.find(literal, start + 1, end)
            if found < 0:
                return None
            before.append(uri[start:found])
            start = found + len(literal)
        after: list[str] = []
        for literal in reversed(literals[middle + 1 : -1]):
            found = uri.rfind(literal, start, max(end - 1, 0))  # a negative end would count from the end
            if found < 0:
                return None
            after.append(uri[found + len(literal) : end])
            end = found
        return [*before, uri[start:end], *reversed(after)] if start < end else None


def _check_literals(text: str, literals: Sequence[str]) -> None:
    if not all(_LITERAL.fullmatch(literal) for literal in literals):
        raise _wrong(text, "text outside {…} must be valid in a URI; percent-encode everything else")
    if not all(literals[1:-1]):
        raise _wrong(text, "put text between two variables; otherwise nothing shows where one ends")


def _without_query(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a template without the `{?a,b}` at its end, and the names in that."""
    query = _QUERY.search(text)
    if query is None:
        return text, ()
    path = text[: query.start()]
    if "?" in path or "#" in path:
        raise _wrong(text, f"{query[0]} must be the whole query, so there can be no ? or # before it")
    return path, tuple(query[1].split(","))


def _variable(text: str, expression: str) -> tuple[str, str]:
    variable = _VARIABLE.fullmatch(expression)
    if variable is None:
        raise _wrong(
            text, f"{{{expression}}} is neither {{name}} nor {{+name}} with a Python name, nor {{?name,…}} at the end"
        )
    return variable[1], variable[2]


def _segment(raw: str) -> str | None:
    return None if _END_OF_SEGMENT.search(raw) or _ENCODED_SLASH.search(raw) else _plain(raw)


def _rest(raw: str) -> str | None:
    if raw.startswith("/") or "//" in raw or _ENCODED_SLASH.search(raw):
        return None
    return _plain(raw)


def _plain(raw: str) -> str | None:
    """Return a decoded value; None if a server cannot use it as a part of a path."""
    value = _decode(raw)
    return None if value is None or not _DOT_SEGMENTS.isdisjoint(value.split("/")) else value


def _decode(raw: str) -> str | None:
    if "%" not in raw:
        return raw
    if _BROKEN_ENCODING.search(raw):
        return None
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeError:
        return None


def _wrong(text: str, problem: str) -> AuthoringError:
    return AuthoringError(f"the URI template {text!r} cannot be served: {problem}")
