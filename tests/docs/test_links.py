"""The README links each group's start page, these link all pages, and every link leads to an existing heading."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.markdown import PAGES, README, TOP, anchors_of, links_of


def test_the_readme_links_the_start_page_of_each_group() -> None:
    linked = {file for file, _ in links_of(README)}
    assert {page for page in PAGES if page.endswith("/index.md")} - linked == set()


@pytest.mark.parametrize("page", sorted(set(PAGES) - {README}))
def test_every_page_is_linked_from_the_start_page_of_its_group(page: str) -> None:
    start = str(Path(page).with_name("index.md"))
    assert page == start or Path(page).name in {file for file, _ in links_of(start)}


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md", "SECURITY.md"])
def test_every_link_leads_somewhere(page: str) -> None:
    for file, anchor in links_of(page):
        target = (TOP / page).parent.joinpath(file).resolve() if file else TOP / page
        assert target.exists(), file
        assert not anchor or anchor in anchors_of(str(target.relative_to(TOP))), f"{file}#{anchor}"
