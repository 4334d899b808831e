"""Pages that are generated are those that would be generated, and the map names what is there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.support.imports import layers

DOCS = Path(__file__).parents[2] / "docs"


def generator():
    """The program that writes the pages; it lies beside them."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "reference" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = generator().PAGES


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_what_would_be_generated(page):
    """After a change: `make reference`, and read the difference."""
    assert (DOCS / page).read_text(encoding="utf-8") == PAGES[page]()


def test_the_map_names_every_package_in_its_layer():
    """A package that the map does not name is not there, and the reverse."""
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", (DOCS / "architecture.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = {name: int(layer) for layer, name in rows}
    drawn = {name: len(layers()) - place for place, layer in enumerate(layers()) for name in layer}
    assert named == drawn


def test_every_file_the_map_names_is_there():
    """A name in backticks that ends in `.py` is a file of the project, called by the end of its path."""
    files = [path.as_posix() for folder in ("ragmon", "tests") for path in (DOCS.parent / folder).rglob("*.py")]
    named = re.findall(r"`([\w/]+\.py)`", (DOCS / "architecture.md").read_text(encoding="utf-8"))
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in files)] == []
