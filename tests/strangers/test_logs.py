"""Logs as people write them: no false fail, no false page within a day, the numbers right, the remedy named."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.support.strangers import REQUESTS, assert_true, judge, judge_day

FOLDER = Path(__file__).with_name("logs")
STRANGERS = {path.stem: import_module(f"tests.strangers.logs.{path.stem}") for path in sorted(FOLDER.glob("*.py"))}
READ = [name for name, stranger in STRANGERS.items() if not stranger.TRUTH.refused]


def given(stranger, folder):
    """The log of a stranger in a folder, and how its owner has it judged."""
    stranger.write(folder)
    gold = getattr(stranger, "GOLD", None)
    options = {"config": getattr(stranger, "CONFIG", ""), "flags": getattr(stranger, "FLAGS", ())}
    return folder / stranger.LOG, {"gold": None if gold is None else folder / gold, **options}


@pytest.mark.slow
@pytest.mark.parametrize("name", STRANGERS)
def test_a_log_is_judged_truly(name, tmp_path):
    """Each file in logs/ writes a log as somebody has it, and says what is true of it."""
    stranger = STRANGERS[name]
    log, options = given(stranger, tmp_path)
    assert_true(judge(tmp_path, log, **options, day=0), stranger.TRUTH)


@pytest.mark.slow
@pytest.mark.parametrize("name", READ)
def test_a_day_pages_for_what_is_wrong_and_for_nothing_else(name, tmp_path):
    """Some 1,500 live requests like those of the log, over 24 hours; more where alarms count conversations."""
    stranger = STRANGERS[name]
    log, options = given(stranger, tmp_path)
    assert_true(judge_day(tmp_path, log, day=getattr(stranger, "DAY", REQUESTS), **options), stranger.TRUTH)


def test_there_are_twenty_of_them():
    assert len(STRANGERS) >= 20
