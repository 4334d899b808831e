"""What producers' totals cost a server: 5,000 processes that report four strata each, every ten seconds for an hour.

The server's state is in this process, so that its CPU and memory are told apart from those of HTTP and the journal.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import process_time

from ragmon.config.load import load
from ragmon.core.constants import BUCKET_SECONDS, STRATA
from ragmon.core.record import Totals
from ragmon.export.prometheus import families
from ragmon.scoring.snapshot import ALL, window_totals
from ragmon.server.state import ServerState
from ragmon.stream.chunk import BatchCounts

PRODUCERS = 5000
MINUTES = 60
ASKED = 100.0
"""CPU milliseconds a scrape may take."""
BEGIN = 1_763_683_200
EVERY = 60
"""Rounds of reports between two lines of figures."""
BUCKETS = 24
"""Buckets of a producer's latency histogram."""
CONFIG = "[pipelines.support]\n"


def resident() -> float:
    """Megabytes of memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def milliseconds(work: Callable[[], object]) -> float:
    """CPU milliseconds that work takes."""
    begin = process_time()
    work()
    return (process_time() - begin) * 1000


class Fleet:
    """Processes that started at some time in the hour before and count their calls since.

    Args:
        n: How many.
    """

    def __init__(self, n: int) -> None:
        self._rng = random.Random(11)
        self._started = [BEGIN - self._rng.random() * 3600 for _ in range(n)]
        self._histograms = [dict.fromkeys(range(BUCKETS), 1) for _ in range(n * len(STRATA))]
        self._calls = [BUCKETS] * len(self._histograms)

    def reports(self, now: float) -> Iterator[Totals]:
        """What each of them says now; two strata in three have had calls since."""
        for place, histogram in enumerate(self._histograms):
            for _ in range(self._rng.choice((0, 1, 7))):
                histogram[self._rng.randrange(BUCKETS)] += 1
                self._calls[place] += 1
            producer, stratum = divmod(place, len(STRATA))
            yield Totals(
                ts=now + self._rng.random() * BUCKET_SECONDS,
                instance=f"process-{producer}",
                started=self._started[producer],
                pipeline="support",
                source="live",
                stratum=STRATA[stratum],
                calls=self._calls[place],
                kept=self._calls[place] // 10,
                latency_ms=dict(histogram),
            )


def scrape(state: ServerState, now: float) -> None:
    """Everything that `/metrics` reads of the state."""
    state.producers.missing(0)
    state.producers.dropped()
    list(families(state.monitor_snapshot(now, 0)))


def read_windows(state: ServerState, now: float) -> None:
    """All calls of every window."""
    for span in {**state.engine.settings.windows, ALL: None}.values():
        window_totals(state.engine.scorer.state, span, now)


def run(state: ServerState, fleet: Fleet, rounds: int) -> None:
    """Feed the state, and print figures every few rounds: nothing of a scrape was read since the last reports."""
    before, fed, windows = resident(), 0.0, 0.0
    for number in range(1, rounds + 1):
        now = BEGIN + number * BUCKET_SECONDS
        lines = list(fleet.reports(now))
        fed += milliseconds(partial(state.apply, number, now + BUCKET_SECONDS, BatchCounts(), lines))
        del lines
        if number % EVERY == EVERY - 1:
            windows = milliseconds(partial(read_windows, state, now + BUCKET_SECONDS + 1))
        elif number % EVERY == 0:
            scraped, per_round, fed = milliseconds(partial(scrape, state, now + BUCKET_SECONDS + 1)), fed / EVERY, 0.0
            print(
                f"  {number * BUCKET_SECONDS / 60:5.0f} min: windows {windows:7.1f} ms, scrape {scraped:7.1f} ms, "
                f"round of reports {per_round:7.1f} ms, memory {resident() - before:6.0f} MB",
                flush=True,
            )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--producers", type=int, default=PRODUCERS)
    parser.add_argument("--minutes", type=int, default=MINUTES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "ragmon.toml").write_text(CONFIG)
        state = ServerState(load(Path(name) / "ragmon.toml", environ={}))
    reports = f"{options.producers} processes of {len(STRATA)} strata report every {BUCKET_SECONDS} s"
    print(f"{reports} (asked: {ASKED:.0f} ms a scrape)")
    run(state, Fleet(options.producers), options.minutes * 60 // BUCKET_SECONDS)

    print(f"  {len(state.producers.last)} series taken")
    print(f"  checkpoint: {milliseconds(state.dump):.0f} ms, {len(state.dump()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
