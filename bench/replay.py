"""Replay against `json.loads` alone and against the short script, on one file, in one run.

`python -m bench.replay`: the rate and memory of replay with all gold metrics and 10-second rows.
"""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

from bench import naive
from bench.data import RATE, gold_set, write_traces
from ragmon.config.gates import PRESETS
from ragmon.core.policy import Policy
from ragmon.gold import GoldIndex
from ragmon.metrics import Metric, build
from ragmon.monitor.replay import Run, run_files
from ragmon.scoring.scorer import Scorer

ROUNDS = 5
SMALL, TIMES = 200_000, 10
"""Traces of the small file, and how many times as long the large one is."""
_TIME = re.compile(rb'"ts":([0-9.]+)')


def write_longer(small: str, large: str) -> None:
    """Write the traces of a file several times, each time later: making them anew would take minutes."""
    seconds = SMALL / RATE
    with Path(large).open("wb") as file:
        for again in range(TIMES):

            def later(found: re.Match[bytes], shift: float = again * seconds) -> bytes:
                return b'"ts":%a' % round(float(found[1]) + shift, 2)

            with Path(small).open("rb") as lines:
                file.writelines(_TIME.sub(later, line, 1) for line in lines)


def replay(path: str, jobs: int = 1) -> Run:
    """One replay up to the report."""
    run = run_files([path], partial(Scorer, GoldIndex(gold_set())), jobs=jobs)
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
    """Peak resident MB of this process; `getrusage` would tell that of its parent, if it was larger."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


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
        write_traces(Path(small), SMALL, gold_set())
        write_longer(small, large)
        best = compare(small)
        print("replay, 200,000 traces, CPU seconds:", {name: round(took, 2) for name, took in best.items()})
        print(f"  {SMALL / best['replay'] / 1000:.0f} k traces/s on one core")
        loaded, scored = best["json.loads"] / best["replay"], best["script"] / best["replay"]
        print(f"  x {loaded:.2f} of json.loads alone, x {scored:.2f} of the short script")
        one = min(seconds(partial(replay, small), perf_counter) for _ in range(3))
        two = min(seconds(partial(replay, small, 2), perf_counter) for _ in range(3))
        print(f"  --jobs 2: x {one / two:.2f} of one job, wall clock")
        few, many = memory(small), memory(large)
        print(f"  peak memory {few:.0f} MB at 200,000 traces, {many:.0f} MB at 2,000,000 (under 80, flat)")
        print(f"  forty more metrics cost {cost_of_a_metric(small):.2f} us a trace")


if __name__ == "__main__":
    main()
