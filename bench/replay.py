"""Replay against `json.loads` alone and against the short script, on one file, in one run.

`python -m bench.replay [TRACES]`: the rate and memory of replay with all gold metrics and 10-second rows.
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

from bench import naive
from bench.data import gold_set, write_traces
from ragmon.config.gates import PRESETS
from ragmon.core.policy import Policy
from ragmon.gold import GoldIndex
from ragmon.metrics import Metric, build
from ragmon.monitor.replay import Run, run_files
from ragmon.scoring.scorer import Scorer

ROUNDS = 5


def make_scorer() -> Scorer:
    """The scorer of one process: every metric, every item."""
    return Scorer(GoldIndex(gold_set()))


def replay(path: str, jobs: int = 1) -> Run:
    """One replay up to the report."""
    run = run_files([path], make_scorer, jobs=jobs)
    run.report(Policy(gates=PRESETS["default"]), questions=False)
    return run


def loads(path: str) -> None:
    """`json.loads` on every line, and nothing else."""
    with Path(path).open("rb") as file:
        for line in file:
            json.loads(line)


def short_script(path: str) -> None:
    """The published arithmetic on every trace."""
    with Path(path).open("rb") as file:
        naive.score(file, gold_set())


def seconds(work: Callable[[], object], clock: Callable[[], float] = process_time) -> float:
    """Seconds of one run."""
    gc.collect()
    started = clock()
    work()
    return clock() - started


def compare(path: str) -> dict[str, float]:
    """Best of interleaved rounds, in CPU seconds."""
    works: dict[str, Callable[[], object]] = {
        "replay": partial(replay, path),
        "json.loads": partial(loads, path),
        "script": partial(short_script, path),
    }
    best = dict.fromkeys(works, float("inf"))
    for _ in range(ROUNDS):
        for name, work in works.items():
            best[name] = min(best[name], seconds(work))
    return best


def memory(path: str) -> float:
    """Peak resident MB of a process that does nothing but replay the file."""
    code = f"from bench.replay import replay, peak; replay({path!r}); print(peak())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def peak() -> float:
    """Peak resident MB of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


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
    with tempfile.TemporaryDirectory() as folder:
        small, large = f"{folder}/small.jsonl", f"{folder}/large.jsonl"
        write_traces(Path(small), 200_000, gold_set())
        best = compare(small)
        print("replay, 200,000 traces, CPU seconds:", {name: round(took, 2) for name, took in best.items()})
        print(f"  {200_000 / best['replay'] / 1000:.0f} k traces/s on one core")
        print(f"  x {best['json.loads'] / best['replay']:.2f} of json.loads alone (at least 1.0)")
        print(f"  x {best['script'] / best['replay']:.2f} of the short script (at least 2)")
        print(f"  forty more metrics cost {cost_of_a_metric(small):.2f} us a trace")
        one = min(seconds(partial(replay, small), perf_counter) for _ in range(3))
        two = min(seconds(partial(replay, small, 2), perf_counter) for _ in range(3))
        print(f"  --jobs 2: x {one / two:.2f} of one job, wall clock (at least 1.4)")
        first = memory(small)
        write_traces(Path(large), 2_000_000, gold_set())
        print(f"  peak memory {first:.0f} MB at 200,000 traces, {memory(large):.0f} MB at 2,000,000 (under 80, flat)")


if __name__ == "__main__":
    main()
