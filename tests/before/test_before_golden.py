"""Today's version answers as the yardstick did: `tests/golden/before/`, by the command line and the ports alone."""

from __future__ import annotations

import ast

import pytest

from tests.support.against_before import Version
from tests.support.before import GOLDEN, NOW, ROOT, differences, read_golden
from tests.support.write_before import SUBJECTS, answers

QUICK = {"alerts/live": 4, "reports/small": 2, "records/results": 8, "commands/configs": 20, "worlds/streams": 4}
"""The subjects of which some cases are asked in the quick suite, and how many."""


@pytest.fixture(scope="module")
def version():
    version = Version(NOW)
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
def test_every_answer_is_that_of_the_yardstick(version, subject):
    assert compared(version, subject) == []


@pytest.mark.parametrize("subject", QUICK)
def test_the_first_answers_are_those_of_the_yardstick(version, subject):
    assert compared(version, subject, QUICK[subject]) == []


def test_every_golden_file_is_one_of_a_subject_and_they_are_small():
    found = {path.relative_to(GOLDEN).as_posix().removesuffix(".json.gz") for path in GOLDEN.rglob("*.gz")}
    assert found == set(SUBJECTS)
    assert sum(path.stat().st_size for path in GOLDEN.rglob("*.gz")) < 10_000_000


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "support").glob("*before*.py")), ids=lambda path: path.name)
def test_what_asks_both_versions_knows_the_documented_names_alone(path):
    """So that no rebuilding of ragmon can change the yardstick."""
    imported = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
    assert [node.module for node in imported if (node.module or "").split(".")[0] == "ragmon"] == []
