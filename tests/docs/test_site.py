"""`make docs` builds a website from the documents: complete, without broken links, and nothing from other servers."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest

from tests.docs.markdown import PAGES, TOP, prose_of

pytestmark = pytest.mark.timeout(300)  # a first build makes its environment

TOP_PAGES: Final = {
    "README.md": "",
    "CONTRIBUTING.md": "contributing/",
    "SECURITY.md": "security-policy/",
    "CHANGELOG.md": "changelog/",
}
ELSEWHERE: Final = re.compile(r"(?:https?:)?//", re.IGNORECASE)
IN_STYLES: Final = re.compile(r"@import\s+[\"']([^\"']+)|url\(\s*[\"']?([^\"')]+)")
ITEM: Final = re.compile(r"(?:-|\d+\.) ")
SECONDS: Final = 240


class Loads(HTMLParser):
    """Collects what a browser loads for a page, and the page's security policy."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.policies: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "link" and values.get("rel") not in {"canonical", "next", "prev"}:
            self.urls.append(values["href"])
        if tag not in {"a", "link"}:
            self.urls += [values[name] for name in ("src", "srcset", "poster", "data") if name in values]
        if tag == "meta" and values.get("http-equiv") == "Content-Security-Policy":
            self.policies.append(values["content"])


def copied(directory: Path) -> Path:
    """Make a checkout whose documents can be changed; all else in it is that of this one."""
    for path in TOP.iterdir():
        if path.name in {"docs", "scripts"}:
            shutil.copytree(path, directory / path.name)
        elif path.name == "mkdocs.yml":
            shutil.copy(path, directory)
        elif path.name not in {".git", "build"}:
            (directory / path.name).symlink_to(path)
    return directory


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return copied(tmp_path)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkout = copied(tmp_path_factory.mktemp("site"))
    done = build(checkout)
    assert done.returncode == 0, done.stderr
    return checkout / "build/site"


def build(checkout: Path, environ: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "docs"],
        cwd=checkout,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def addresses(site: Path) -> Iterator[str]:
    for line in (site / "llms.txt").read_text().splitlines():
        if found := re.fullmatch(r"- \[[^\]]+\]\(([^)]+)\): \S.*", line):
            yield found[1].removeprefix("./")


def test_llms_txt_lists_every_page_once_with_a_description(site: Path) -> None:
    pages = {page.removeprefix("docs/").removesuffix("index.md") for page in PAGES if page.startswith("docs/")}
    expected = [*TOP_PAGES.values(), *(re.sub(r"\.md$", "/", page) for page in pages)]
    assert sorted(addresses(site)) == sorted(expected)
    assert [address for address in addresses(site) if not (site / address / "index.html").exists()] == []


def test_no_page_loads_anything_from_another_server(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) >= len(PAGES)
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text())
        assert [url for url in loads.urls if ELSEWHERE.match(url)] == [], page
        assert [policy for policy in loads.policies if "http" not in policy] == loads.policies != [], page


def test_no_style_sheet_loads_anything_from_another_server(site: Path) -> None:
    sheets = list(site.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        urls = [found[1] or found[2] for found in IN_STYLES.finditer(sheet.read_text())]
        assert [url for url in urls if ELSEWHERE.match(url)] == [], sheet


@pytest.mark.parametrize(
    ("link", "reported"),
    [
        ("[gone](gone.md)", "gone.md"),
        ("[gone](keys.md#gone)", "#gone"),
        ("[gone](../../README.md#gone)", "#gone"),
        ("[gone](../../tests/gone.py)", "gone.py"),
    ],
)
def test_a_broken_link_fails_the_build_and_is_named(copy: Path, link: str, reported: str) -> None:
    with (copy / "docs/run/settings.md").open("a") as page:
        page.write(f"\n{link}\n")
    done = build(copy)
    assert done.returncode != 0
    assert "run/settings.md" in done.stderr
    assert reported in done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_only_lists_and_tables_that_the_site_reads_as_github_does(page: str) -> None:
    """The site needs an empty line before a list or a table. An item has lines of its own, and no paragraph."""
    lines = ["", *prose_of(page).splitlines()]
    wrong = [
        line
        for before, line in itertools.pairwise(lines)
        if (line.startswith(" ") and not before)
        or (line.startswith("|") and before and not before.startswith("|"))
        or (ITEM.match(line) and before and not ITEM.match(before) and not before.startswith(" "))
    ]
    assert wrong == []


def test_links_to_files_outside_the_documents_lead_to_the_source_if_its_address_is_set(site: Path, copy: Path) -> None:
    linked, page = "tests/security/test_attacks.py", "understand/security/index.html"
    assert f"<code>{linked}</code>" in (site / page).read_text()
    assert build(copy, {"DOCS_SOURCE_URL": "https://example.com/main/"}).returncode == 0
    assert f'href="https://example.com/main/{linked}"' in (copy / "build/site" / page).read_text()
