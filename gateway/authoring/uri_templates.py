"""URI templates of resources: the part of RFC 6570 that can be matched in only one way.

`{name}` stands for one path segment or a part of one: it never contains `/`, `?` or `#`. `{+name}` stands for
everything between the text before and the text after it, including slashes. Both stand for at least one character.

The author's code receives decoded values, so a URI that could mislead it does not match:

- broken percent encodings, and bytes that are not UTF-8;
- an encoded slash or backslash in a value, because it would have other segments than the URI;
- a `{+name}` that begins with a slash, because it would be an absolute path, or that has an empty segment;
- `.` or `..` as a segment, because other readers resolve such a URI to a different one (RFC 3986 section 5.2.4).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote_to_bytes

from gateway.errors import AuthoringError

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_VARIABLE: Final = re.compile(r"(\+?)([A-Za-z_][A-Za-z0-9_]*)")
_LITERAL: Final = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*")
"""The characters of a URI (RFC 3986 section 2)."""
_BROKEN_ENCODING: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ENCODED_SLASH: Final = re.compile(r"%2f|%5c", re.IGNORECASE)
_END_OF_SEGMENT: Final = re.compile(r"[/?#]")
_DOT_SEGMENTS: Final = frozenset({".", ".."})


def is_template(text: str) -> bool:
    """Return whether a URI has variables."""
    return "{" in text or "}" in text


class UriTemplate:
    """A URI with variables.

    A `{name}` ends at the first occurrence of the text after it. After a `{+name}`, it begins after the last occurrence
    of the text before it. Matching looks at each character a fixed number of times, without backtracking, and finds a
    match whenever there is one.

    Attributes:
        text: the template as written.
        variables: the names of the variables, in order. They are Python identifiers.

    Raises:
        AuthoringError: the template has another expression of RFC 6570, the same name twice, two variables without
            text between them, more than one `{+name}`, or characters that a URI cannot have.
    """

    __slots__ = ("_literals", "_rest", "text", "variables")

    def __init__(self, text: str) -> None:
        # Literals and expressions alternate: there is one literal more than there are variables.
        literals, expressions = _EXPRESSION.split(text)[::2], _EXPRESSION.findall(text)
        variables = [_variable(text, expression) for expression in expressions]
        names = tuple(name for _, name in variables)
        rests = [index for index, (plus, _) in enumerate(variables) if plus]
        if not variables:
            raise _wrong(text, "it has no {variable}")
        if len(set(names)) != len(names):
            raise _wrong(text, "each variable can occur only once")
        if len(rests) > 1:
            raise _wrong(text, "only one variable can be written {+name}; otherwise nothing shows where one ends")
        _check_literals(text, literals)
        self.text = text
        self.variables = names
        self._literals = tuple(literals)
        self._rest = rests[0] if rests else None

    def __repr__(self) -> str:
        return f"UriTemplate({self.text!r})"

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the decoded value of each variable, or None if the URI does not match."""
        spans = self._spans(uri)
        if spans is None:
            return None
        values: dict[str, str] = {}
        for index, (name, raw) in enumerate(zip(self.variables, spans, strict=True)):
            value = _rest(raw) if index == self._rest else _segment(raw)
            if value is None:
                return None
            values[name] = value
        return values

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


def _variable(text: str, expression: str) -> tuple[str, str]:
    variable = _VARIABLE.fullmatch(expression)
    if variable is None:
        raise _wrong(text, f"{{{expression}}} is neither {{name}} nor {{+name}} with a Python name")
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
