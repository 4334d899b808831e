"""ragmon answers as before its code was rebuilt: `tests/golden/before/`, by the command line and the ports alone."""

from __future__ import annotations

import ast

import pytest

from tests.support.before import GOLDEN, ROOT, differences, read_golden
from tests.support.write_before import SUBJECTS, Version, answers

QUICK = {
    "worlds/worlds": 6,
    "worlds/streams": 1,
    "worlds/lines": 4,
    "reports/small": 2,
    "alerts/replayed": 1,
    "alerts/live": 1,
    "records/results": 4,
    "commands/configs": 10,
}
"""The subjects of which some cases are asked in the quick suite, and how many."""


@pytest.fixture(scope="module")
def version():
    version = Version()
    yield version
    version.close()


def compared(version, subject, most=None):
    """The leaves of a subject that differ."""
    now, before = answers(version, subject, most), read_golden(subject)
    if not now:
        pytest.skip("the data of this subject is not here")
    return [one for name, told in now.items() for one in differences(f"{subject}/{name}", before[name], told)]


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_answer_is_the_golden_one(version, subject):
    assert compared(version, subject) == []


@pytest.mark.parametrize("subject", QUICK)
def test_the_first_answers_are_the_golden_ones(version, subject):
    assert compared(version, subject, QUICK[subject]) == []


def test_every_subject_has_a_golden_file_and_they_are_small():
    found = {path.relative_to(GOLDEN).as_posix().removesuffix(".json.gz") for path in GOLDEN.rglob("*.gz")}
    assert found >= set(SUBJECTS)
    assert sum(path.stat().st_size for path in GOLDEN.rglob("*.gz")) < 10_000_000


def imported(path, seen):
    """Every module that a module and the modules of tests that it imports name."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            file = ROOT / (name.replace(".", "/") + ".py")
            if name.startswith("tests.") and name not in seen and file.exists():
                seen[name] = path.name
                imported(file, seen)
            seen.setdefault(name, path.name)
    return seen


def test_what_asks_knows_nothing_of_ragmon():
    """So that no rebuilding of ragmon changes the questions; scripts know `import ragmon` alone."""
    support = ROOT / "tests" / "support"
    found = imported(support / "write_before.py", {})
    assert len(found) > 20
    assert {name: by for name, by in found.items() if name.partition(".")[0] == "ragmon"} == {}
    scripts = {path.name: imported(path, {}) for path in support.glob("before_*.py")}
    assert {name for names in scripts.values() for name in names if name.partition(".")[0] == "ragmon"} == {"ragmon"}
