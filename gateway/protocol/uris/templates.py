"""Pure: URI templates (RFC 6570) of other servers: their canonical form, and which URIs can be made from them.

A template of another server may be anything, so matching takes time in proportion to the URI, whatever the template.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from gateway.protocol.uris.canonical import canonical_listed

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_WITHIN: Final = re.compile(r"[A-Za-z0-9_.,:*%+#/;?&=!@|-]+", re.ASCII)
"""The characters of an expression (RFC 6570 section 2.2)."""
_BEGINNINGS: Final = "#./;?&"
"""Operators whose expansion begins with the operator itself."""
_WHOLE: Final = "+#/?&"
"""Operators whose expansion may contain slashes, or begin with one."""
_END_OF_SEGMENT: Final = re.compile(r"[/?#]")
_VARIABLE: Final = re.compile(r"([+#./]?)([A-Za-z0-9_.]+)(?:\*|:[0-9]+)?", re.ASCII)
_RESERVED: Final = "!#$&'()*+,/:;=?@[]"
_NOT_OF_SEGMENTS: Final = re.compile(r"[/\\%;]")
_NOT_OF_PATHS: Final = re.compile(r"[\\%;]|//|^/|(?:^|/)\.\.?(?:/|$)")
_DOTS: Final = frozenset({".", ".."})


class ForeignTemplate:
    """A URI template of another server.

    `text` is as its server lists it. The canonical form is as that of its URIs, with the expressions as they are; None
    if it has none.
    """

    __slots__ = ("_expressions", "_literals", "_raw", "_whole", "canonical", "text")

    def __init__(self, text: str) -> None:
        parts = _EXPRESSION.split(text)
        self.text = text
        self._raw, expressions = parts[::2], parts[1::2]
        self._expressions = expressions
        self._whole = [expression[:1] in _WHOLE for expression in expressions]
        literals = _canonical_literals(self._raw, expressions)
        self._literals = self._raw if literals is None else literals
        self.canonical = None if literals is None else _joined(literals, [f"{{{each}}}" for each in expressions])

    def text_of(self, uri: str) -> str | None:
        """Return the URI that its server made a canonical URI from, None if the template does not match.

        The returned text has the same canonical form, and the literal text of the template.
        """
        values = self._values(uri)
        if values is None:
            return None
        text = _joined(self._raw, values)
        return text if canonical_listed(text) == uri else uri

    def beginning(self, values: Mapping[str, str]) -> str | None:
        """Return how the URIs with these values begin: the text before the first variable that has none.

        It is None if servers may find other segments in one of the values than it has.
        """
        text = self._raw[0]
        for expression, literal in zip(self._expressions, self._raw[1:], strict=True):
            variable = _VARIABLE.fullmatch(expression)
            value = None if variable is None else values.get(variable[2])
            if variable is None or value is None:
                break
            is_path = variable[1] in set(_WHOLE) - {"/"}
            if value in _DOTS or (_NOT_OF_PATHS if is_path else _NOT_OF_SEGMENTS).search(value):
                return None
            operator = variable[1].replace("+", "")
            text += operator + quote(value, safe=_RESERVED if is_path else "") + literal
        return text

    def _values(self, uri: str) -> list[str] | None:
        """Return what stands for each expression.

        From both ends to the expressions that may contain slashes, each literal is where it leaves the others the most.
        Between the first and the last one of those, every expression may.
        """
        literals = self._literals
        if not self._whole:
            return [] if uri == literals[0] else None
        if not (uri.startswith(literals[0]) and uri.endswith(literals[-1])):
            return None
        whole = [index for index, each in enumerate(self._whole) if each]
        first, last = (whole[0], whole[-1]) if whole else (len(self._whole), len(self._whole) - 1)
        left = _split(uri[len(literals[0]) : len(uri) - len(literals[-1])], literals[1 : last + 1])
        if left is None or len(uri) < len(literals[0]) + len(literals[-1]):
            return None
        right = _split(left[-1][::-1], [literal[::-1] for literal in reversed(literals[last + 1 : -1])])
        if right is None:
            return None
        values = [*left[:-1], *(value[::-1] for value in reversed(right))]
        outer = values[:first] + values[last + 1 :]
        return None if any(_END_OF_SEGMENT.search(value) for value in outer) else values


def _split(text: str, separators: Sequence[str]) -> list[str] | None:
    """Split a text at the first occurrence of each separator behind the one before; None if one of them is missing."""
    found, start = [], 0
    for separator in separators:
        position = text.find(separator, start)
        if position < 0:
            return None
        found.append(text[start:position])
        start = position + len(separator)
    return [*found, text[start:]]


def _canonical_literals(raw: Sequence[str], expressions: Sequence[str]) -> list[str] | None:
    """Return the canonical form of the text around expressions, None if it has none.

    Each expression becomes a word that every part of a URI may contain, behind the character with which it begins.
    """
    words = [f"{each[:1] if each[:1] in _BEGINNINGS else ''}zq{index}qz" for index, each in enumerate(expressions)]
    if not all(map(_WITHIN.fullmatch, expressions)) or "zq" in "\0".join(raw).lower():
        return None
    rest = canonical_listed(_joined(raw, words))
    literals = []
    for word in words:
        literal, found, rest = ("", "", None) if rest is None else rest.partition(word)
        if not found:
            return None
        literals.append(literal)
    return None if rest is None else [*literals, rest]


def _joined(literals: Sequence[str], between: Sequence[str]) -> str:
    """Return literals with a text between each two of them."""
    return literals[0] + "".join(text + literal for text, literal in zip(between, literals[1:], strict=True))
