"""The concept pages: their examples run and print what the pages say, and their pictures are what would be drawn."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import environment
from tests.support.waiting import TIMEOUT

CONCEPTS = Path(__file__).parents[2] / "docs" / "concepts"
PAGES = sorted(CONCEPTS.glob("*.md"))
_BLOCK = re.compile(r"^```(bash|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks_of(page):
    """The fenced blocks of a page that are typed or compared, with their languages, in order."""
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


def typed(page):
    """All of a page's blocks as one script; each block of Python is a file of its own that is run."""
    lines = []
    for place, (language, block) in enumerate(blocks_of(page)):
        if language == "bash":
            lines.append(block)
        elif language == "python":
            lines.append(f"cat > block{place}.py <<'PYTHON'\n{block}PYTHON\n.venv/bin/python block{place}.py\n")
    return "".join(lines).replace(".venv/bin/", f"{Path(sys.executable).parent}/")


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if typed(page)], ids=lambda page: page.stem)
def test_a_page_can_be_typed_and_prints_what_it_says(page, tmp_path):
    """In an empty folder; every line of its `text` blocks is printed, in this order."""
    done = subprocess.run(
        ["/bin/bash", "-eo", "pipefail", "-c", typed(page)],
        cwd=tmp_path,
        env=environment(TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    written = iter([line.rstrip() for line in done.stdout.splitlines()])
    promised = [line for language, block in blocks_of(page) if language == "text" for line in block.splitlines()]
    assert promised
    for line in promised:
        pattern = re.compile(".*".join(map(re.escape, line.rstrip().split("…"))))
        assert any(map(pattern.fullmatch, written)), line


def test_the_pictures_are_what_would_be_drawn():
    """After a change: `python docs/images/concepts/draw.py`, and look at the pictures."""
    path = CONCEPTS.parent / "images" / "concepts" / "draw.py"
    spec = importlib.util.spec_from_file_location("draw_concepts", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    drawn = module.drawn()
    assert {path.name: path.read_text(encoding="utf-8") for path in path.parent.glob("*.svg")} == {
        path.name: svg for path, svg in drawn.items()
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_fits_and_has_a_picture_that_can_be_read_aloud(page):
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    assert re.findall(r"!\[[^\]]{20,}\]\(\.\./images/concepts/[\w-]+\.svg\)", text)


def test_the_glossary_is_sorted_and_every_term_has_an_example_and_a_link():
    text = (CONCEPTS.parent / "reference" / "glossary.md").read_text(encoding="utf-8")
    entries = re.findall(r"^### ([^\n]+)\n\n(.*?)(?=\n\n##|\Z)", text, re.MULTILINE | re.DOTALL)
    names = [name for name, _ in entries]
    assert len(names) > 90
    assert names == sorted(set(names), key=str.casefold)
    own = [(name, words) for name, words in entries if not re.fullmatch(r"See \[[^\]]+\]\(#[\w-]+\)\.", words)]
    assert [name for name, words in own if "Example" not in words or not re.search(r"\]\([^#)][^)]*\)", words)] == []
