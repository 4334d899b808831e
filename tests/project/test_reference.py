"""Pages that are generated are those that would be generated, and the map names what is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from bench.house import ROOT, order

DOCS = Path(__file__).parents[2] / "docs"
NO_FILES = {"core"}
"""Words in code that are no file of their package."""


def test_generated_pages_are_what_would_be_generated():
    """After a change: `make reference`, and read the difference."""
    command = [sys.executable, DOCS / "reference" / "generate.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=DOCS.parent)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_map_names_every_package_and_every_file_in_it():
    """The rows stand in the order of the layers; a file that the map does not name is not there, and the reverse."""
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", (DOCS / "architecture.md").read_text(encoding="utf-8"), re.MULTILINE)
    level = {name: number for number, layer in enumerate(order()) for name in layer}
    assert sorted((name for name, _ in rows), key=level.__getitem__, reverse=True) == [name for name, _ in rows]
    files = {name: {""} for name in level}
    for path in (ROOT / "ragmon").glob("*/*.py"):
        files[path.parent.name] |= {path.stem}
    for name, text in rows:
        named = {word for word in re.findall(r"`([a-z_]+)`", text) if word not in NO_FILES}
        assert named == files[name] - {"", "__init__"} or name == "compat", name
    assert {name for name, _ in rows} == level.keys()


def test_every_file_the_map_names_is_there():
    """A name in backticks that ends in `.py` is a file of the project, called by the end of its path."""
    files = [path.as_posix() for folder in ("ragmon", "tests") for path in (DOCS.parent / folder).rglob("*.py")]
    named = re.findall(r"`([\w/]+\.py)`", (DOCS / "architecture.md").read_text(encoding="utf-8"))
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in files)] == []
