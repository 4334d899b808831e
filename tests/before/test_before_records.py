"""Records are what ragmon made of the same calls, spans and cases before (`tests/golden/before/records`)."""

from __future__ import annotations

import pytest

from tests.support.before import differences, read_golden
from tests.support.before_records import CASES, SHARED, SUBJECTS

QUICK = ("shapes_plain-full", "shapes_calls-full")
NAMES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SUBJECTS]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_records_are_what_they_were(name, tmp_path):
    for subject, content in SUBJECTS[name](tmp_path).items():
        assert not list(map(str, differences(subject, read_golden(subject), content)))


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "cases").exists(), reason="the cases are not here")
@pytest.mark.parametrize("name", CASES)
def test_cases_are_what_they_were(name, tmp_path):
    for subject, content in CASES[name](tmp_path).items():
        assert not list(map(str, differences(subject, read_golden(subject), content)))
