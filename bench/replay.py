"""The command `ragmon replay` against `json.loads` alone on the same lines, in one run: whole processes.

`python -m bench.replay`: distinct lines, and lines of which twenty are alike, with the gates of the report.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

from bench.data import gold_set, write_traces, write_varied
from ragmon.config.gates import PRESETS
from ragmon.core.policy import Policy
from ragmon.ingest.gold import GoldIndex
from ragmon.metrics import Metric, build
from ragmon.monitor.replay import Run, run_files
from ragmon.scoring.scorer import Scorer

ROUNDS = 3
SMALL = 200_000
"""Traces of the file for other engines."""
LINES, ALIKE = 237_460, 20
"""Lines of a file, and how many times each line stands in the other one."""
LOADS = "import json,sys\nfor line in open(sys.argv[1], 'rb'): json.loads(line)"


class Cost(NamedTuple):
    """What a process took: seconds of CPU and of the clock, and peak resident MB."""

    cpu: float
    wall: float
    peak: float


def cost(*words: str) -> Cost:
    """What a command takes, with all processes that it starts."""
    started = perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall, process.returncode = perf_counter() - started, os.waitstatus_to_exitcode(status)
    return Cost(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024)


def best(*commands: tuple[str, ...]) -> list[Cost]:
    """The least of interleaved rounds, command by command."""
    rounds = [[cost(*command) for command in commands] for _ in range(ROUNDS)]
    return [Cost(*map(min, zip(*costs, strict=True))) for costs in zip(*rounds, strict=True)]


def write_gold(path: Path) -> None:
    """The gold set as a file."""
    with path.open("w") as file:
        for item in gold_set():
            row = {"qid": item.qid, "q": item.question, "answerable": item.answerable}
            if item.answerable:
                row |= {"gold_claim_substr": item.claim_substrings, "gold_citations": item.citations}
            file.write(json.dumps(row) + "\n")


def replay(path: str, jobs: int = 1) -> Run:
    """One replay in this process, up to the report."""
    run = run_files([path], partial(Scorer, GoldIndex(gold_set())), jobs=jobs)
    run.report(Policy(gates=PRESETS["default"]), questions=False)
    return run


def seconds(work: Callable[[], object]) -> float:
    """Seconds of CPU of one run in this process."""
    gc.collect()
    started = process_time()
    work()
    return process_time() - started


def cost_of_a_metric(path: str) -> float:
    """Microseconds a trace that forty more metrics cost."""
    few = {key: metric for key, metric in build(()).items() if metric.name == "answer_precision"}
    many: dict[str, Metric] = build((1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
    gold, times = GoldIndex(gold_set()), {"few": float("inf"), "many": float("inf")}
    for _ in range(ROUNDS):
        for name, metrics in (("few", few), ("many", many)):
            work = partial(run_files, [path], partial(Scorer, gold, metrics=metrics))
            times[name] = min(times[name], seconds(work))
    with Path(path).open("rb") as file:
        return (times["many"] - times["few"]) / sum(1 for _ in file) * 1e6


def main() -> None:
    """Print the ratios."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gold, distinct, alike, few = (folder / file for file in ("gold.jsonl", "distinct", "alike", "few"))
        write_gold(gold)
        write_varied(distinct, LINES, gold_set())
        write_traces(few, LINES // ALIKE, gold_set())
        with alike.open("wb") as file:
            for _ in range(ALIKE):
                with few.open("rb") as part:
                    shutil.copyfileobj(part, file)
        command = (sys.executable, "-m", "ragmon", "replay", "--format", "json", "--gold", str(gold))
        for path, what, asked in ((distinct, "distinct lines", 0.30), (alike, "lines, each twenty times", 0.65)):
            loads, one, default = best(
                (sys.executable, "-c", LOADS, str(path)),
                (*command, "--jobs", "1", str(path)),
                (*command, str(path)),
            )
            print(f"ragmon replay of {LINES:,} {what}: {LINES / one.cpu / 1000:.0f} k traces a second of CPU")
            print(f"  x {loads.cpu / one.cpu:.2f} of json.loads alone (asked {asked})")
            print(f"  x {one.wall / default.wall:.2f} faster with --jobs by default than with --jobs 1 (asked 1.6)")
            print(f"  peak memory {one.peak:.0f} MB (asked 60)")
        print(f"forty more metrics cost {cost_of_a_metric(str(few)):.2f} us a trace")


if __name__ == "__main__":
    main()
