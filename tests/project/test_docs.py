"""Documentation that is run: README line by line, every docstring example, every metric described."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ragmon
from ragmon.capture import judges
from ragmon.metrics import base, families
from tests.support.waiting import TIMEOUT

ROOT = Path(__file__).parents[2]
DOCS = [
    *(ROOT / f"{name}.md" for name in ("README", "SECURITY", "CONTRIBUTING")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("*/README.md")),
    *sorted(ROOT.glob("examples/*/README.md")),
]


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of a language in a Markdown file."""
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_readme_can_be_typed_line_by_line(tmp_path):
    """Every command of the README runs in an empty folder, `make` apart; nobody types into `python -i`."""
    typed = "\n".join(blocks(ROOT / "README.md", "bash"))
    script = re.sub(r"^(make |\. \.venv).*\n", "", typed, flags=re.MULTILINE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAGMON_", "OTEL_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/bash", "-eo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=environment | {"PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "HALLUCINATION" in done.stdout
    assert "exit code 1" in done.stdout
    assert "citation_scope 1.0 pass" in done.stdout
    assert "no problems" in done.stderr


def test_the_readme_fits_its_budget():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150


def test_every_metric_is_described():
    """Each registered metric has a row in docs/reference/metrics.md under its own name."""
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    described, _, _ = text.partition("## What could not be assessed")
    rows = re.findall(r"^\| `([a-z_]+)(?:@k)?`", described, re.MULTILINE)
    assert sorted(rows) == sorted(families())


def test_each_rule_of_comparison_names_a_test_that_is_there():
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    named = re.findall(r"\| `(test_\w+)` \|$", text, re.MULTILINE)
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 5
    assert [name for name in named if f"def {name}(" not in tests] == []


def test_links_to_files_lead_somewhere():
    for path in DOCS:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), target


def test_each_promise_of_security_names_tests_that_are_there():
    """What SECURITY.md promises can be looked up and run."""
    named = re.findall(r"`(tests/[\w/]+\.py)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_a_decision_fits_on_a_page_and_says_what_would_change_it():
    for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 60, path
        assert re.search(r"^\*\*Choice[.:]", text, re.MULTILINE), path
        assert "**What would change our mind.**" in text, path


def with_examples() -> list[str]:
    """The modules whose docstrings hold examples."""
    names = [module.name for module in pkgutil.walk_packages(ragmon.__path__, "ragmon.")]
    paths = {name: ROOT / (name.replace(".", "/") + ".py") for name in names if not name.endswith("__main__")}
    return [name for name, path in paths.items() if path.is_file() and ">>>" in path.read_text(encoding="utf-8")]


@pytest.mark.slow
@pytest.mark.parametrize("name", with_examples())
def test_the_examples_in_docstrings_are_true(name, monkeypatch):
    module = importlib.import_module(name)
    monkeypatch.setattr(base, "_families", base.families())  # what an example registers ends with it
    monkeypatch.setattr(judges, "_functions", judges.functions())
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
