"""The faults that tests are tried on still stand in the code that they change."""

from __future__ import annotations

import tomllib

import pytest

from tests.support.faults import ROOT, put

FAULTS = tomllib.loads((ROOT / "tests" / "faults.toml").read_text("utf-8"))["fault"]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["sentence"][:60])
def test_the_code_of_a_fault_stands_once(fault):
    _, text, faulty = put(fault, ROOT)
    assert text != faulty
