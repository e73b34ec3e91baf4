"""Hooks of MkDocs: add pages from outside `docs/`, rewrite links that lead there, and write `llms.txt`.

The pages are written for GitHub: their links lead to files of the repository. MkDocs knows only files below `docs/`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File

TOP: Final = Path(__file__).resolve().parents[2]
ADDED: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages from the top of the repository, and their places on the site."""
PLACES: Final = {place: source for source, place in ADDED.items()}
FENCED: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
MARKUP: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|[*`]")
SENTENCE: Final = re.compile(r".*?[.:](?= [A-Z]|$)")
LISTED: Final = re.compile(r"^- \[[^\]]*\]\((\w+\.md)\): (.+)$", re.MULTILINE)
"""A page as the start page of its group lists it, with a description."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from the top of the repository."""
    for source, place in ADDED.items():
        files.append(File.generated(config, place, content=(TOP / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001 - MkDocs passes all by name
    """Give a page its description, and rewrite its links for the site."""
    page.meta.setdefault("description", listed(page.file.src_uri) or first_sentence(markdown))
    pieces = FENCED.split(markdown)
    for index in range(0, len(pieces), 2):
        pieces[index] = LINK.sub(
            lambda found: rewritten(found, page.file.src_uri, config.extra["source"]), pieces[index]
        )
    return "".join(pieces)


def listed(place: str) -> str | None:
    """Return the description of a page on the start page of its group, if it is listed there."""
    start = TOP / "docs" / posixpath.dirname(place) / "index.md"
    if not start.exists():
        return None
    found = dict(LISTED.findall(start.read_text(encoding="utf-8"))).get(posixpath.basename(place))
    return found and found[0].upper() + found[1:]


def first_sentence(markdown: str) -> str:
    """Return the first sentence of a page as plain text."""
    paragraphs = [" ".join(part.split()) for part in markdown.split("\n\n")]
    first = next(part for part in paragraphs if not part.startswith(("#", "!", "|", "- ")))
    plain = MARKUP.sub(lambda found: found[1] or "", first)
    sentence = SENTENCE.match(plain)
    return (sentence[0] if sentence else plain).rstrip(":")


def rewritten(link: re.Match[str], place: str, source_url: str) -> str:
    """Return a link as the site needs it. A link that leads nowhere stays, and MkDocs reports it."""
    image, text, target, anchor = link[1], link[2], link[3], link[4] or ""
    here = PLACES.get(place, f"docs/{place}")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
    if not (TOP / path).exists():
        return link[0]
    if path in ADDED or path.startswith("docs/"):
        there = ADDED.get(path) or path.removeprefix("docs/")
        return f"{image}[{text}]({posixpath.relpath(there, posixpath.dirname(place) or '.')}{anchor})"
    if source_url:
        return f"[{text}]({source_url.rstrip('/')}/{path}{anchor})"
    return text if text.strip("`") == path else f"{text} (`{path}`)"


def on_nav(nav: Any, config: Any, files: Any) -> None:  # noqa: ARG001 - MkDocs passes all by name
    """Keep the navigation for `llms.txt`."""
    config.extra["nav"] = nav


def on_post_build(config: Any) -> None:
    """Write `llms.txt`: every page with its description, in the groups of the navigation."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    for entry in config.extra["nav"]:
        lines += ["", f"## {entry.title}", ""]
        lines += [
            f"- [{page.title}]({page.canonical_url or page.url or './'}): {page.meta['description']}"
            for page in pages_of(entry)
        ]
    Path(config.site_dir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def pages_of(entry: Any) -> Iterator[Any]:
    """Yield the pages of an entry of the navigation, in order."""
    if entry.is_page:
        yield entry
    for child in entry.children or ():
        yield from pages_of(child)
