"""Writes the golden reports anew: `python tests/support/regenerate.py`. Read the difference before committing it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ragmon.export.text import report_markdown
from ragmon.ingest.files import ReadSummary, read_files
from ragmon.ingest.gold import GoldSet
from ragmon.metrics import build
from ragmon.monitor.replay import Run
from ragmon.scoring.scorer import Scorer
from tests.support.runs import DEFAULT, SMALL

GOLDEN = Path(__file__).parents[1] / "golden"


def goldens():
    """The golden files as they would be written now, by name.

    The version and the digest are left out: they change with every release, and with how facts are stored. So are
    metrics that other tests registered.
    """
    metrics = {key: metric for key, metric in build().items() if type(metric).__module__.startswith("ragmon.metrics.")}
    intake = ReadSummary()
    run = Run(Scorer(GoldSet.load(SMALL / "gold.jsonl"), metrics=metrics), intake)
    run.feed(read_files([str(SMALL / "traces.jsonl")], intake))
    report = replace(run.report(DEFAULT), version="0", digest="0" * 64)
    return {"report_small.json": report.json() + "\n", "report_small.md": report_markdown(report, questions=None)}


def main():
    """Write all of them."""
    GOLDEN.mkdir(exist_ok=True)
    for name, content in goldens().items():
        (GOLDEN / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
