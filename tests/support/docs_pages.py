"""Types a page of docs/ as its reader does, in an empty folder, and compares what is printed with it."""

from __future__ import annotations

from tests.support.example_pages import ROOT, type_text

DOCS = ROOT / "docs"


def type_doc(name, folder):
    """Type every command of a page of docs/; what installs packages is left out, and ports are free ones.

    Args:
        name: The page, such as `how-to/gold.md`.
        folder: An empty folder.
    """
    return type_text((DOCS / name).read_text(encoding="utf-8"), folder)
