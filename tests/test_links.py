"""Every link of a page leads somewhere: to a file that is there, and to a heading of it."""

from __future__ import annotations

import itertools
import re
from functools import cache

import pytest
from markdown_it import MarkdownIt

from tests.pages import ROOT, pages

ALL = [*pages(), "CHANGELOG.md", "SECURITY.md", "benchmarks/README.md", "fuzz/README.md"]


def anchor(heading: str) -> str:
    """The name that GitHub, and the site, give a heading."""
    plain = re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).lower())
    return plain.replace(" ", "-")


@cache
def anchors(page: str) -> frozenset[str]:
    """Names of the headings of a page; of equal ones the second ends in -1."""
    tokens = MarkdownIt().parse((ROOT / page).read_text(encoding="utf-8"))
    found: list[str] = []
    for before, token in itertools.pairwise(tokens):
        if before.type == "heading_open":
            name = anchor(token.content)
            again = sum(each == name for each in found)
            found.append(f"{name}-{again}" if again else name)
    return frozenset(found)


def links(page: str) -> list[str]:
    tokens = MarkdownIt().enable("table").parse((ROOT / page).read_text(encoding="utf-8"))
    return [
        str(child.attrs.get("href", child.attrs.get("src")))
        for token in tokens
        for child in token.children or ()
        if child.type in ("link_open", "image")
    ]


def leads_nowhere(page: str, link: str) -> bool:
    """Whether a link within the repository has no file, or no such heading in it."""
    if re.match(r"[a-z]+:", link):
        return False
    name, _, part = link.partition("#")
    target = (ROOT / page).parent / name if name else ROOT / page
    if not target.exists():
        return True
    inside = target.resolve().relative_to(ROOT.resolve()).as_posix()
    return bool(part) and inside.endswith(".md") and part not in anchors(inside)


@pytest.mark.parametrize("page", ALL)
def test_every_link_leads_somewhere(page: str) -> None:
    assert [link for link in links(page) if leads_nowhere(page, link)] == []


def test_links_are_found_and_followed() -> None:
    assert sum(len(links(page)) for page in ALL) > 150
    assert leads_nowhere("README.md", "docs/no.md")
    assert leads_nowhere("README.md", "docs/command.md#no-such-heading")
    assert not leads_nowhere("docs/command.md", "#captures")
    assert anchor('`kind` = "x", and more') == "kind--x-and-more"


def test_every_page_is_on_the_site() -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    trees = re.findall(r"```\{toctree\}\n(?::[^\n]*\n)+\n(.*?)```", index, re.DOTALL)
    listed = {re.sub(r".*<(.*)>", r"\1", line) for tree in trees for line in tree.splitlines()}
    there = {page.removesuffix(".md") for page in ALL} - {"docs/index"}
    said = {f"docs/{name}" if not name.startswith("../") else name[3:] for name in listed}
    assert there - said == set()
    assert all((ROOT / f"{name}.md").exists() for name in said - {"examples/sweep"})
