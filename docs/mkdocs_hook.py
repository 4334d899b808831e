"""A hook of the documentation site: pages outside of docs/ that a page links to become pages of the site as well.

A search ranks decisions below all other pages.

In the repository, links lead from file to file. The site has the files of docs/ at its top, and beside them every
other file that is linked to, under its path in the repository: pages of examples, code, configuration.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = "docs"
DECISIONS: Final = "decisions"
_LINK: Final = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every file of the repository that a page links to, and what those link to."""
    waiting = [f"{DOCS}/{file.src_uri}" for file in files.documentation_pages()]
    while waiting:
        for path in _linked(waiting.pop()):
            if files.get_file_from_path(_place(path)) is None:
                files.append(File.generated(config, _place(path), abs_src_path=str(ROOT / path)))
                waiting += [path] if path.endswith(".md") else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links between files of the repository as links between pages of the site."""
    here = posixpath.dirname(page.file.src_uri)
    if here == DECISIONS:  # a search answers with what to do, before why it is so
        page.meta["search"] = {"boost": 0.3}
    source = _source(page.file.src_uri)

    def moved(link: re.Match[str]) -> str:
        path = _target(source, link[2])
        if path is None:
            return link[0]
        return f"{link[1]}{posixpath.relpath(_place(path), here or '.')}{link[3] or ''}{link[4]}"

    return _LINK.sub(moved, markdown)


def _linked(path: str) -> Iterator[str]:
    """The files that a page links to."""
    for link in _LINK.finditer((ROOT / path).read_text(encoding="utf-8")):
        target = _target(path, link[2])
        if target is not None:
            yield target


def _target(source: str, link: str) -> str | None:
    """The file that a link of another one leads to; of a folder, its README.md or index.md. None: no file."""
    if re.match(r"[a-z]+:|/", link):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    if (ROOT / path).is_dir():
        path = next((f"{path}/{name}" for name in ("README.md", "index.md") if (ROOT / path / name).is_file()), path)
    return path if (ROOT / path).is_file() else None


def _place(path: str) -> str:
    """Where a file of the repository stands in the site; its README.md has a page of its own there, the first one."""
    return "index.md" if path == "README.md" else path.removeprefix(f"{DOCS}/")


def _source(place: str) -> str:
    """The file of the repository that stands at a place of the site."""
    inside = f"{DOCS}/{place}"
    return inside if (ROOT / inside).is_file() else place
