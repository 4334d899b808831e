"""Replay an archive of traces with spark-submit: report and alarm edges as `ragmon replay` writes them.

    spark-submit deploy/spark/replay.py --config ragmon.toml --report report.json --alerts alerts.jsonl \
        's3a://traces/2026/*.jsonl.gz'

The executors need `pip install 'ragmon[spark]'`. A folder of Parquet is read as a table of records.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import struct, to_json

from ragmon.alarms.pipelines import as_alert_line
from ragmon.stream.spark import replay


def main() -> None:
    """Read the command line, replay, and write what came of it."""
    parser = argparse.ArgumentParser(description="Replay an archive of traces on Spark.")
    parser.add_argument("traces", help="JSON lines, compressed or not, or a folder of Parquet")
    parser.add_argument("--config", required=True, help="ragmon.toml")
    parser.add_argument("--report", default="report.json", help="the report, as JSON")
    parser.add_argument("--alerts", help="the alarm edges, a line each")
    given = parser.parse_args()
    session = SparkSession.builder.appName("ragmon replay").getOrCreate()
    if given.traces.rstrip("/").endswith(".parquet"):
        lines = session.read.parquet(given.traces).select(to_json(struct("*")))
    else:
        lines = session.read.text(given.traces)
    result = replay(lines, given.config)
    Path(given.report).write_text(result.report.json() + "\n", encoding="utf-8")
    if given.alerts:
        edges = "".join(json.dumps(as_alert_line(edge)) + "\n" for edge in result.edges)
        Path(given.alerts).write_text(edges, encoding="utf-8")
    sys.stdout.write(f"{result.report.scored} records scored: {result.report.verdict}\n")


if __name__ == "__main__":
    main()
