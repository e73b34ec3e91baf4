"""Find the texts that people read: paragraphs of pages, docstrings, comments, messages, help lines and alert texts."""

from __future__ import annotations

import ast
import html
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final, Literal

import yaml

Kind = Literal["prose", "heading", "cell", "docstring", "comment", "message"]

CODE: Final = "`…`"
"""Stands for a piece of code in a text, so a rule neither reads it nor joins the words around it."""
_CODE_SPAN: Final = re.compile(r"``[^`]+``|`[^`]+`")
_LINK: Final = re.compile(r"!?\[([^\[\]]*)\](?:\([^()\n]*\)|\[[^\[\]]*\])")
_FENCE: Final = re.compile(r"\s*(`{3,}(?=[^`]*$)|~{3,})(.*)")
_BEGIN: Final = re.compile(r"\s*(#|\||>|[-*+] |\d+[.)] )")
_DRAWING: Final = re.compile("[├└│]")
_NAME: Final = re.compile(r"\b[A-Za-z]+_\w+|^\s*(?:Args|Attributes|Raises|Returns|Yields)?:?\s*[a-z_]\w*(?=:( |$))")
"""A name with an underscore, or one that an entry of a docstring is about."""
_ENTRY: Final = re.compile(r"\s*([-*] |\d+[.)] |\*{0,2}[A-Za-z_]\w*(, \*{0,2}[A-Za-z_]\w*)*:( |$))")
_COMMENT_IN_HTML: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z][a-z]+")
_FEWEST_WORDS: Final = 3
"""A string with fewer words is a name or a value, not a message."""
_TEXT_KEYS: Final = ("summary", "description", "title", "text", "content", "help", "label")


@dataclass(frozen=True)
class Text:
    """One paragraph, cell, comment or message.

    Attributes:
        line: its first line in the file, from 1.
        text: on one line; pieces of code in it are `CODE`.
    """

    path: Path
    line: int
    kind: Kind
    text: str


def texts_of(path: Path) -> Iterator[Text]:
    """Yield the texts of a file; nothing for a kind of file that holds none."""
    reader = _READERS.get(path.suffix) or _READERS.get(path.name)
    if reader:
        yield from reader(path, path.read_text(encoding="utf-8"))


def plain(text: str) -> str:
    """Return a text on one line without markup: links by their words, code as `CODE`."""
    text = _LINK.sub(r"\1", _CODE_SPAN.sub(CODE, text))
    return re.sub(r"\s+", " ", text.replace("**", "").replace("*", "")).strip()


def _markdown(path: Path, source: str) -> Iterator[Text]:
    """Yield paragraphs, items, headings and cells; fenced blocks and quotations are other people's words."""
    for line, kind, text in _markdown_blocks(source):
        yield Text(path, line, kind, plain(text))


def _markdown_blocks(source: str) -> Iterator[tuple[int, Kind, str]]:
    source = _COMMENT_IN_HTML.sub(lambda found: "\n" * found[0].count("\n"), source)
    fenced = ""
    paragraph: list[str] = []
    start = 0
    for number, line in enumerate([*source.splitlines(), ""], 1):
        marks, behind = found.groups() if (found := _FENCE.match(line)) else ("", "")
        fence = bool(marks) and (not fenced or (marks.startswith(fenced) and not behind.strip()))
        begins = fence or fenced or not line.strip() or _BEGIN.match(line)
        if begins and paragraph:
            yield start, "prose", " ".join(paragraph)
            paragraph = []
        if fence:
            fenced = "" if fenced else marks
        elif fenced or not line.strip() or line.lstrip().startswith(">"):
            continue
        elif line.startswith("#"):
            yield number, "heading", line.lstrip("# ")
        elif line.lstrip().startswith("|"):
            yield from (
                (number, "cell", cell) for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")) if _WORD.search(cell)
            )
        else:
            start = start if paragraph else number
            paragraph.append(re.sub(r"^\s*([-*+] |\d+[.)] )", "", line))


def _python(path: Path, source: str) -> Iterator[Text]:
    """Yield docstrings, those of attributes too, comments, and strings with words of which a message can be made."""
    tree = ast.parse(source)
    documented = {id(node) for node in _docstrings(tree)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in documented:
            assert isinstance(node, ast.Constant)
            yield from _paragraphs(path, node)
        elif id(node) not in parts and (message := _message(node)):
            assert isinstance(node, ast.Constant | ast.JoinedStr)
            yield Text(path, node.lineno, "message", plain(_NAME.sub(CODE, message)))
    yield from _comments(path, source)


def _docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield every string that stands alone as a statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def _paragraphs(path: Path, node: ast.Constant) -> Iterator[Text]:
    lines = [
        (number, "" if _DRAWING.search(line) else line)
        for number, line in enumerate(str(node.value).splitlines(), node.lineno)
    ]
    for blank, group in groupby(lines, lambda numbered: not numbered[1].strip()):
        if blank:
            continue
        paragraph = list(group)
        if paragraph[0][1].lstrip().startswith((">>>", "$ ")):
            continue
        entry: list[tuple[int, str]] = []
        for numbered in [*paragraph, (0, "- ")]:
            if entry and _ENTRY.match(numbered[1]):
                yield Text(path, entry[0][0], "docstring", plain(_NAME.sub(CODE, " ".join(line for _, line in entry))))
                entry = []
            entry.append(numbered)


def _message(node: ast.AST) -> str | None:
    """Return the words of a string or an f-string, its values as `CODE`, if a person reads it."""
    match node:
        case ast.Constant(value=str(text)):
            pass
        case ast.JoinedStr(values=values):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else CODE for part in values)
        case _:
            return None
    text = re.sub(r"</?[a-z][^>]*>", " ", text)
    looks_like_code = re.search(
        r"(?m)\bredis\.p?call\b|^\s*(local|return|end|import|from) [\w.]+ *(=|$)|[{}]\s*$|^\s*(\{\w|\^)|\(\?[:P]|\)\n",
        text,
    )
    return text if len(_WORD.findall(text)) >= _FEWEST_WORDS and " " in text.strip() and not looks_like_code else None


def _comments(path: Path, source: str) -> Iterator[Text]:
    """Yield comments; those on lines that follow each other are one."""
    found: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or re.match(r"#(!|:|\s*(noqa|type:|pragma|ruff:|mypy:|fmt:))", token.string):
            continue
        words = token.string.lstrip("# ")
        if found and token.start[0] == found[-1][0] + 1 and token.line.lstrip().startswith("#"):
            found[-1] = (token.start[0], f"{found[-1][1]} {words}")
        else:
            found.append((token.start[0], words))
    for line, words in found:
        yield Text(path, line, "comment", plain(words))


def _configuration(path: Path, source: str) -> Iterator[Text]:
    """Yield the values of the keys that Prometheus, Grafana and MkDocs show to people, and comments."""
    lines = source.splitlines()
    for document in yaml.compose_all(source, Loader=yaml.SafeLoader):
        yield from _values(path, document)
    for number, line in enumerate(lines, 1):
        if found := re.match(r"\s*#\s?(.*\w.*)", line):
            yield Text(path, number, "comment", plain(found[1]))


def _values(path: Path, node: yaml.Node | None) -> Iterator[Text]:
    match node:
        case yaml.MappingNode():
            for key, value in node.value:
                if isinstance(value, yaml.ScalarNode):
                    if key.value in _TEXT_KEYS and _WORD.search(value.value):
                        yield Text(path, value.start_mark.line + 1, "message", plain(value.value))
                else:
                    yield from _values(path, value)
        case yaml.SequenceNode():
            for value in node.value:
                yield from _values(path, value)
        case _:
            return


def _hash_comments(path: Path, source: str) -> Iterator[Text]:
    """Yield the comments of a file whose comments begin with `#`; the text behind `##` is a line of `make help`."""
    for number, line in enumerate(source.splitlines(), 1):
        if found := re.search(r"(?:^|\s)(##?) (.*\w.*)", line):
            yield Text(path, number, "message" if found[1] == "##" else "comment", plain(found[2]))


def _svg(path: Path, source: str) -> Iterator[Text]:
    """Yield the words of a picture, and what it is called for those who do not see it."""
    for found in re.finditer(r"<(text|title|desc)\b[^>]*>(.*?)</\1>|aria-label=\"([^\"]*)\"", source, re.DOTALL):
        words = plain(html.unescape(re.sub(r"<[^>]*>", " ", found[2] or found[3] or "")))
        if _WORD.search(words):
            yield Text(path, source.count("\n", 0, found.start()) + 1, "message", words)


def _shell(path: Path, source: str) -> Iterator[Text]:
    """Yield comments, and what `echo` and `printf` print."""
    yield from _hash_comments(path, source)
    for number, line in enumerate(source.splitlines(), 1):
        for found in re.finditer(r"\b(?:echo|printf) +(?:-\w+ +)*([\"'])((?:\\.|(?!\1).)*)\1", line):
            words = plain(re.sub(r"\$\w+|\$\{[^}]*\}|\$\([^)]*\)", CODE, found[2]))
            if len(_WORD.findall(words)) >= _FEWEST_WORDS:
                yield Text(path, number, "message", words)


_READERS: Final[dict[str, Callable[[Path, str], Iterator[Text]]]] = {
    ".md": _markdown,
    ".py": _python,
    ".yml": _configuration,
    ".yaml": _configuration,
    ".json": _configuration,
    "Makefile": _hash_comments,
    "Caddyfile": _hash_comments,
    "Dockerfile": _hash_comments,
    ".conf": _hash_comments,
    ".cfg": _hash_comments,
    ".sh": _shell,
    ".svg": _svg,
    ".toml": _hash_comments,
}
