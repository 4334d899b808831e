"""Pages that are generated are those that would be generated, and the map names what is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.imports import layers

DOCS = Path(__file__).parents[2] / "docs"


def test_generated_pages_are_what_would_be_generated():
    """After a change: `make reference`, and read the difference."""
    command = [sys.executable, DOCS / "reference" / "generate.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=DOCS.parent)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


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
