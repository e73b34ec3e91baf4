"""Read `rules.toml` and find the sentences that break its rules."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.prose.texts import CODE, Kind, Text

FILE: Final = Path(__file__).with_name("rules.toml")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?:;])[\"'”’)\]]*\s+(?=[\"'“‘(\[]*[A-Z`\d-]|[a-z_]+: )")  # noqa: RUF001 - all quotation marks
_CONTEXT: Final = 30
_ABBREVIATION: Final = re.compile(r"\b(e\.g|i\.e|cf|vs|etc)\.$")


@dataclass(frozen=True)
class Rule:
    """A pattern that plain English avoids.

    Attributes:
        name: what a finding is called by.
        instead: what to write, for the reader of a finding.
        pattern: searched in one sentence, without regard to case.
        kinds: of text that it holds for.
        wrong: sentences that it finds.
        right: sentences close to these that it does not find.
    """

    name: str
    instead: str
    pattern: re.Pattern[str]
    kinds: frozenset[Kind]
    wrong: Sequence[str]
    right: Sequence[str]


@dataclass(frozen=True)
class Finding:
    """A place where a text breaks a rule."""

    path: Path
    line: int
    rule: str
    words: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: “{self.words}”: {self.instead}"


@dataclass(frozen=True)
class Rules:
    """What `rules.toml` says.

    Attributes:
        rules: the patterns.
        longest: the most words of a sentence, and of a table's cell, by kind of text.
        quoted: words of others, by file, that no rule is applied to.
    """

    rules: Sequence[Rule]
    longest: Mapping[str, int]
    quoted: Mapping[str, Sequence[str]]

    def findings(self, text: Text) -> Iterator[Finding]:
        """Yield what is wrong with a text, sentence by sentence."""
        words = text.text
        for quotation in self.quoted.get(text.path.as_posix(), ()):
            words = words.replace(quotation, CODE)
        for sentence in sentences(words):
            for rule in self.rules:
                if text.kind in rule.kinds and (found := rule.pattern.search(sentence)):
                    yield Finding(text.path, text.line, rule.name, _around(sentence, found), rule.instead)
            if text.kind != "cell":
                yield from self._too_long(text, sentence)
        if text.kind == "cell":
            yield from self._too_long(text, words)

    def _too_long(self, text: Text, words: str) -> Iterator[Finding]:
        count, most = len(re.findall(r"[\w`…][^\s]*", words)), self.longest.get(text.kind)
        if most and count > most:
            start = " ".join(words.split()[:8])
            yield Finding(
                text.path, text.line, "long", f"{start} …", f"{count} words, at most {most}: make two sentences"
            )


def _around(sentence: str, found: re.Match[str]) -> str:
    """Return what a rule found with a few words on both sides."""
    start = sentence.rfind(" ", 0, max(found.start() - _CONTEXT, 0)) + 1
    end = sentence.find(" ", min(found.end() + _CONTEXT, len(sentence)))
    return f"{'… ' * (start > 0)}{sentence[start : None if end < 0 else end]}{' …' * (end >= 0)}"


def load(path: Path = FILE) -> Rules:
    """Read the file of rules.

    Raises:
        KeyError, re.error: the file is not what it should be.
    """
    with path.open("rb") as file:
        content = tomllib.load(file)
    rules = [
        Rule(
            rule["name"],
            rule["instead"],
            re.compile(rule["pattern"], re.IGNORECASE),
            frozenset(rule.get("kinds", content["kinds"])),
            rule["wrong"],
            rule.get("right", ()),
        )
        for rule in content["rule"]
    ]
    return Rules(rules, content["longest"], content.get("quoted", {}))


def sentences(text: str) -> list[str]:
    """Split a paragraph into sentences, and at colons and semicolons that a capital letter follows."""
    found: list[str] = []
    for part in _SENTENCE_END.split(text):
        if found and _ABBREVIATION.search(found[-1]):
            found[-1] += f" {part}"
        else:
            found.append(part)
    return found
