"""A replay on Spark's own cluster of processes, one of whose executors is killed: prints what came of it."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

from ragmon.alarms.pipelines import as_alert_line
from ragmon.stream.spark import replay

EXECUTOR = b"CoarseGrainedExecutorBackend"
_killed: list[int] = []


def busy_executors():
    """The executors that have a Python worker: they count."""
    commands = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands[int(path.parent.name)] = (
                path.read_bytes(),
                int((path.parent / "stat").read_text().rpartition(")")[2].split()[1]),
            )
        except OSError:
            continue
    parents = {parent for command, parent in commands.values() if b"pyspark" in command}
    return [number for number, (command, _) in commands.items() if EXECUTOR in command and number in parents]


def kill_one():
    """Kill the first executor that counts."""
    while not _killed:
        for number in busy_executors():
            os.kill(number, signal.SIGKILL)
            _killed.append(number)
            return
        time.sleep(0.05)


def main(folder):
    """Replay the archive in a folder."""
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("ragmon")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    threading.Thread(target=kill_one, daemon=True).start()
    result = replay(session.read.text(f"{folder}/traces/*.jsonl.gz"), f"{folder}/ragmon.toml")
    edges = [as_alert_line(edge) for edge in result.edges]
    session.stop()
    sys.stdout.write(json.dumps({"digest": result.report.digest, "edges": edges, "killed": _killed}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
