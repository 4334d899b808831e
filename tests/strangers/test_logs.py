"""Logs as people write them: no false fail, no false page within a day, the numbers right, the remedy named."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.support.strangers import assert_true, judge

STRANGERS = sorted(path.stem for path in Path(__file__).with_name("logs").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", STRANGERS)
def test_a_stranger_is_judged_truly(name, tmp_path):
    """Each file in logs/ writes a log as somebody has it, and says what is true of it."""
    stranger = import_module(f"tests.strangers.logs.{name}")
    stranger.write(tmp_path)
    gold = getattr(stranger, "GOLD", None)
    judged = judge(
        tmp_path,
        tmp_path / stranger.LOG,
        gold=None if gold is None else tmp_path / gold,
        config=getattr(stranger, "CONFIG", ""),
        flags=getattr(stranger, "FLAGS", ()),
    )
    assert_true(judged, stranger.TRUTH)


def test_there_are_twenty_strangers():
    assert len(STRANGERS) >= 20
