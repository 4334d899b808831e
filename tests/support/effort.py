"""How much CPU time work takes, in units of plain parsing in the same process: a busy machine changes both alike."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from math import inf
from time import process_time
from typing import TypeVar

Result = TypeVar("Result")

REFERENCE_BODY = b"[" + b"{}," * 300_000 + b"{}]"


def cpu_seconds(work: Callable[[], object]) -> float:
    """The CPU seconds that `work` takes. What other tests left in memory is collected before, not meanwhile."""
    gc.collect()
    began = process_time()
    work()
    return process_time() - began


def least_ratio(
    work: Callable[[], object], reference: Callable[[], object], *, enough: float, rounds: int = 7
) -> float:
    """The CPU time of `work` in that of `reference`, each measured right after the other, in the best of some rounds.

    Another process on the machine makes single rounds worse; work that takes too long makes every round so. The first
    round with a ratio that is small enough is the last.
    """
    least = inf
    for _ in range(rounds):
        least = min(least, cpu_seconds(work) / max(cpu_seconds(reference), 1e-6))
        if least <= enough:
            break
    return least


def effort(work: Callable[[], Result]) -> tuple[float, Result]:
    """The CPU time of `work` in units, and what it returns.

    One unit is what `json.loads` takes for 300,000 empty objects, about 25 ms. It is measured before and after the
    work, and the longer one counts, so that a machine that slows down meanwhile fails no test.
    """
    results: list[Result] = []
    before = cpu_seconds(lambda: json.loads(REFERENCE_BODY))
    worked = cpu_seconds(lambda: results.append(work()))
    return worked / max(before, cpu_seconds(lambda: json.loads(REFERENCE_BODY))), results[0]
