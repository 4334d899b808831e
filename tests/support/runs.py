"""Runs over the small set and over a handful of records, and their reports."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ragmon.config.gates import PRESETS
from ragmon.core.policy import Policy
from ragmon.ingest.files import ReadSummary, read_files
from ragmon.ingest.gold import GoldSet
from ragmon.monitor.replay import Run
from ragmon.scoring.scorer import Scorer
from ragmon.testing import make_gold

SMALL = Path(__file__).parents[1] / "data" / "squad2" / "small"
DEFAULT = Policy(PRESETS["default"])


def run_file(traces, gold, **options):
    intake = ReadSummary()
    run = Run(Scorer(GoldSet.load(gold)), intake, **options)
    run.feed(read_files([str(traces)], intake))
    return run


@cache
def small_report():
    """The report on the small set."""
    return run_file(SMALL / "traces.jsonl", SMALL / "gold.jsonl").report(DEFAULT)


GOLD = make_gold(("a", True), ("b", False), ("c", True), ("d", True))
