"""Every page can be found from the README, and every link leads to a file and a heading that exist."""

from __future__ import annotations

import pytest

from tests.docs.markdown import PAGES, README, TOP, anchors_of, links_of


def test_the_readme_links_every_page() -> None:
    linked = {file for file, _ in links_of(README)}
    assert set(PAGES) - {README} - linked == set()


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md"])
def test_every_link_leads_somewhere(page: str) -> None:
    for file, anchor in links_of(page):
        target = (TOP / page).parent.joinpath(file).resolve() if file else TOP / page
        assert target.exists(), file
        assert not anchor or anchor in anchors_of(str(target.relative_to(TOP))), f"{file}#{anchor}"
