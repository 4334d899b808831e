"""Whole reports, compared with files that a person has read."""

from __future__ import annotations

import pytest

from tests.support.regenerate import GOLDEN, goldens


@pytest.fixture(scope="module")
def now():
    return goldens()


@pytest.mark.parametrize("name", ["report_small.json", "report_small.md"])
def test_the_report_on_the_small_set_is_the_golden_one(now, name):
    """After a change that is meant to show here: `python tests/support/regenerate.py`, and read the difference."""
    assert now[name] == (GOLDEN / name).read_text(encoding="utf-8")


def test_every_golden_file_is_compared(now):
    assert {path.name for path in GOLDEN.iterdir() if path.is_file()} == set(now)
