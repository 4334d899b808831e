"""What one process tells of all its calls, kept or not: lines of the contract, counted from its start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from threading import Lock
from time import time

from ragmon.capture.calls import seen
from ragmon.capture.pages import Departed, Page
from ragmon.capture.runtime import Runtime
from ragmon.core import constants
from ragmon.core.record import Totals
from ragmon.stats import buckets

Key = tuple[str, str, str]
"""Pipeline, source, stratum."""


class Timings:
    """How long all calls took, in log buckets of milliseconds; each call is counted once, whoever looks."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[Key, Counter[int]] = {}

    def read(self, runtime: Runtime) -> dict[Key, Counter[int]]:
        """Take in what waits, and give all there is."""
        with self._lock:
            for pipeline, tally in list(runtime.tallies.items()):
                for (source, stratum), waiting in tally.latencies.items():
                    seconds = [waiting.popleft() for _ in range(len(waiting))]
                    if seconds:
                        counted = self._found.setdefault((pipeline, source, stratum), Counter())
                        counted.update(buckets([1000.0 * second for second in seconds]))
            return {key: Counter(counted) for key, counted in self._found.items()}


def lines(
    runtime: Runtime, page: Page, timings: Mapping[Key, Mapping[int, int]], dropped: Mapping[str, int]
) -> list[Totals]:
    """The counts of this process: a line per pipeline, source and stratum that had calls, and one for what was lost.

    What was lost stands on a line of its own, of the pipeline `__other__`: a batch is lost as a whole.
    """
    now, found = time(), []
    for (pipeline, source, stratum), calls in runtime.totals().items():
        if calls:
            found.append(
                Totals(
                    ts=now,
                    instance=page.instance,
                    started=page.started,
                    pipeline=pipeline,
                    source=source,
                    stratum=stratum,
                    calls=calls,
                    kept=seen(runtime.tallies[pipeline].kept[source, stratum]),
                    latency_ms=dict(timings.get((pipeline, source, stratum), {})),
                )
            )
    if dropped:
        found.append(_losses(now, page.instance, page.started, dropped))
    return found


def lines_of_departed(lost: Departed, dropped: Mapping[str, int]) -> list[Totals]:
    """What is told of a process that is gone, by one that found its page.

    Args:
        lost: The page.
        dropped: What it counted as lost itself, and what was missing besides.
    """
    return [_losses(time(), lost.instance, lost.started, dropped)] if dropped else []


def _losses(now: float, instance: str, started: float, dropped: Mapping[str, int]) -> Totals:
    return Totals(
        ts=now,
        instance=instance,
        started=started,
        pipeline=constants.OTHER,
        source=constants.LIVE,
        dropped=dict(dropped),
    )
