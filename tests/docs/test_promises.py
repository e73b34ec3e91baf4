"""Each sentence that promises something never, once or at most so often names the tests that hold the promise.

On `security.md` the tests stand below each promise, on the other pages in the last section, which quotes the sentences.
"""

from __future__ import annotations

import re

import pytest

from tests.docs.markdown import text_of
from tests.docs.sources import names_in

LISTED = ["docs/run/failures.md", "docs/run/upgrading.md"]
PAGES = [*LISTED, "docs/understand/security.md"]
NAMED = [
    (page, *named)
    for page in ("docs/understand/security.md", "docs/understand/seeds.md")
    for named in sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text_of(page))))
]
LAST = "\n## Promises and their tests\n"

PROMISING = re.compile(r"\b(never|once|twice|at most)\b", re.IGNORECASE)
AT_ONCE = re.compile(r"\bat once\b")
TESTS = re.compile(r"\n +- `(tests/[\w/]+\.py)::(test_\w+)`")

NO_PROMISES = {
    # advice
    "Never combine two phases in one rollout.",
    "If a step must not run twice, pass an idempotency key (`ctx.step_id`) to the service that it calls.",
    # what a client does
    "reads slowly, but at least once every `GATEWAY_UNREAD_SECONDS` (30) ●",
    # the past
    "everything; 0.1 was a preview that was never published",
    # the opposite of a promise
    "A leg that is sent twice may run twice.",
    "Shares never interrupt work that has started.",
    # "as soon as"
    "A token has expired once its `exp` plus `GATEWAY_JWT_LEEWAY_SECONDS` has passed.",
    "Its tokens are rejected, and their streams and waits end, once the replica has read the new set.",
    # how a test measures
    "It fails if a value of twice the size takes more than three times the CPU time to read or check.",
}


def blocks_of(text: str) -> list[str]:
    """Return the paragraphs, list items and table rows of a page, each list item with the tests below it."""
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return re.split(r"\n\s*\n|\n(?=- )|\n(?=\d+\. )|\n(?=\|)", plain)


def promises_in(block: str) -> list[str]:
    """Return the sentences, or the cells of a table, that promise something."""
    prose = " ".join(TESTS.sub("", block).split())
    sentences = (part.strip() for part in re.split(r"(?<=[.:])(?:\*\*)?\s+|\s\|\s", prose))
    return [
        each for each in sentences if PROMISING.search(AT_ONCE.sub("", each)) and each.strip("| ") not in NO_PROMISES
    ]


def listed_in(page: str) -> dict[str, list[tuple[str, str]]]:
    """Return what the last section of a page quotes, and the tests that it names for each."""
    items = re.findall(r"^- .*(?:\n  .*)*", text_of(page).partition(LAST)[2], re.MULTILINE)
    return {" ".join(TESTS.sub("", item).removeprefix("- ").split()): TESTS.findall(item) for item in items}


@pytest.mark.parametrize(("page", "file", "test"), NAMED)
def test_a_test_that_is_named_exists(page: str, file: str, test: str) -> None:
    assert test in names_in(file)


@pytest.mark.parametrize("page", PAGES)
def test_each_promise_names_its_tests(page: str) -> None:
    listed = listed_in(page)
    unheld = [
        promise
        for block in blocks_of(text_of(page).partition(LAST)[0])
        if not TESTS.search(block)
        for promise in promises_in(block)
        if not any(quoted in promise for quoted in listed)
    ]
    assert unheld == [], "name the test that holds it, or say here why it promises nothing"


@pytest.mark.parametrize("page", LISTED)
def test_what_is_listed_is_on_the_page_and_its_tests_exist(page: str) -> None:
    before = " ".join(text_of(page).partition(LAST)[0].split())
    listed = listed_in(page)
    assert listed
    for quoted, tests in listed.items():
        assert quoted in before
        assert tests, quoted
        assert [test for file, test in tests if test not in names_in(file)] == []


def test_a_sentence_that_is_no_promise_is_still_on_a_page() -> None:
    pages = " ".join(" ".join(text_of(page).split()) for page in PAGES)
    assert [sentence for sentence in NO_PROMISES if sentence not in pages] == []
