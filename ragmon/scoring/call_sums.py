"""The calls of a key summed over all producers, by time step: what windows read, however many producers there are.

What a producer had counted before its first report is kept apart, by when it started and by that report: it lies in
the windows within which the producer started.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import accumulate
from math import ceil, inf
from typing import Final, NamedTuple

from ragmon.core.constants import FOLDED, STEP
from ragmon.scoring import fingerprint
from ragmon.scoring.counters import Change, Count, slot
from ragmon.scoring.fingerprint import PRIME, moment, of_counts

_CALLS: Final = of_counts({"calls": 1})
_KEPT: Final = of_counts({"kept": 1})

Start = tuple[int, int]
"""When producers started and the step of their first report, both in seconds since the epoch."""


class Resolution:
    """Which steps are kept apart: ten seconds while they are fresh, five minutes after that, and none at last.

    Args:
        fresh: Older steps are five minutes long.
        oldest: Five minutes that begin before it are not kept apart.
    """

    def __init__(self, fresh: float = 0.0, oldest: float = 0.0) -> None:
        self.fresh = fresh
        self.oldest = oldest

    def advance(self, fresh: float, oldest: float | None) -> None:
        """Move both edges forward; an edge never moves back."""
        self.fresh = max(self.fresh, fresh)
        self.oldest = max(self.oldest, ceil((oldest or 0.0) / FOLDED) * FOLDED)

    def of(self, step: int) -> int | None:
        """The step under which a step is kept; None for one that is not kept apart."""
        if step >= self.fresh:
            return step if step >= self.oldest else None
        return slot(step) if step >= self.oldest else None


class SavedCallSums(NamedTuple):
    """The saved form of `CallSums`.

    Attributes:
        fingerprint: As text.
        past, past_first: The calls that are not kept apart, and those before first reports.
        increments: The calls of each step.
        firsts: The calls before first reports, by the producers' start and that report.
    """

    fingerprint: str
    past: Count
    past_first: Count
    increments: list[tuple[int, int, int]]
    firsts: list[tuple[int, int, int, int]]


class CallSums:
    """The calls of a key by step, summed over all producers.

    Args:
        resolution: Which steps are kept apart; shared by all keys.

    Attributes:
        fingerprint: The fingerprint of all calls.
        total: All calls ever.
    """

    def __init__(self, resolution: Resolution) -> None:
        self.fingerprint = 0
        self.total = Count()
        self._resolution = resolution
        self._past, self._past_first = Count(), Count()
        self._increments: dict[int, Count] = {}
        self._firsts: dict[Start, Count] = {}
        # Caches: the steps in order with running sums, which are right before the step `_changed`; and the firsts.
        self._steps: list[int] = []
        self._running: list[Count] = []
        self._changed = inf
        self._sorted_firsts: _SortedFirsts | None = None

    def add(self, change: Change, factor: int) -> None:
        """Add to the increment of a step.

        Args:
            change: The step, and how many more calls and kept calls it has.
            factor: The factor of the producer's fingerprints.
        """
        step, calls, kept = change
        self.fingerprint = (self.fingerprint + factor * moment(slot(step)) * (calls * _CALLS + kept * _KEPT)) % PRIME
        self.total = Count(self.total.calls + calls, self.total.kept + kept)
        self._add(step, calls, kept)

    def _add(self, step: int, calls: int, kept: int) -> None:
        place = self._resolution.of(step)
        if place is None:
            self._past = self._past.plus(Count(calls, kept))
            return
        known = self._increments.get(place)
        if known is None:
            insort(self._steps, place)
            self._increments[place] = Count(calls, kept)
        else:
            self._increments[place] = Count(known.calls + calls, known.kept + kept)
        self._changed = min(self._changed, place)

    def add_first(self, first: tuple[int, Count], factor: int, sign: int) -> None:
        """Add the first report of a series to the fingerprint, or take it away if `sign` is -1."""
        step, count = first
        own = factor * moment(step) * of_counts({"first": [1, *count]})
        self.fingerprint = (self.fingerprint + sign * own) % PRIME

    def set_apart(self, start: float, first: tuple[int, Count], sign: int) -> None:
        """Move what a producer had counted until its first report out of that step, or back if `sign` is -1.

        Args:
            start: When the producer started, seconds since the epoch.
            first: The step of the report, and the count.
            sign: 1 or -1.
        """
        step, (calls, kept) = first
        self._add(step, -sign * calls, -sign * kept)
        self._add_apart((int(start) // STEP * STEP, step), Count(sign * calls, sign * kept))

    def _add_apart(self, start: Start, count: Count) -> None:
        started, first = (self._resolution.of(step) for step in start)
        if started is None or first is None:  # no window that is kept begins before the start
            self._past_first = self._past_first.plus(count)
            return
        self._sorted_firsts = None
        self._firsts[started, first] = self._firsts.get((started, first), Count()).plus(count)

    def add_gone(self, count: Count) -> None:
        """Add calls of which only the number is known: they lie in no window."""
        self.total = self.total.plus(count)
        self._past_first = self._past_first.plus(count)

    def since(self, begin: float | None, end: float) -> Count:
        """The calls of a window; see `ragmon.scoring.calls.CallTotals.since`."""
        self._refresh()
        known = self._until(end)
        if begin is None:
            return known.plus(self._past)
        if self._sorted_firsts is None:
            self._sorted_firsts = _SortedFirsts(self._firsts)
        return known.plus(self._sorted_firsts.within(begin, end)).minus(self._until(begin))

    def _until(self, end: float) -> Count:
        place = bisect_left(self._steps, end)
        return self._running[place - 1] if place else Count()

    def _refresh(self) -> None:
        """Compute the running sums from the first step that has changed on."""
        if self._changed < inf:
            place = bisect_left(self._steps, self._changed)
            counts = [self._increments[step] for step in self._steps[place:]]
            if place:
                counts.insert(0, self._running[place - 1])
            del self._running[max(0, place - 1) :]
            self._running += accumulate(counts, Count.plus)
            self._changed = inf

    def fold(self) -> None:
        """Keep apart what the resolution keeps apart now."""
        old = bisect_left(self._steps, max(self._resolution.fresh, self._resolution.oldest))
        for step in self._steps[:old]:
            if self._resolution.of(step) != step:
                self._add(step, *self._increments.pop(step))
        self._increments = {step: count for step, count in self._increments.items() if any(count)}
        self._steps = sorted(self._increments)
        self._running.clear()
        self._changed = -inf
        firsts, self._firsts = self._firsts, {}
        for start, count in firsts.items():
            if any(count):
                self._add_apart(start, count)
        self._sorted_firsts = None

    def dump(self) -> SavedCallSums:
        """The sums in their saved form."""
        return SavedCallSums(
            fingerprint=fingerprint.as_text(self.fingerprint),
            past=self._past,
            past_first=self._past_first,
            increments=[(step, *count) for step, count in sorted(self._increments.items()) if any(count)],
            firsts=[(*start, *count) for start, count in sorted(self._firsts.items()) if any(count)],
        )

    @classmethod
    def load(cls, saved: SavedCallSums, resolution: Resolution) -> CallSums:
        """The sums from their saved form."""
        sums = cls(resolution)
        sums.fingerprint = fingerprint.from_text(saved.fingerprint)
        sums._past, sums._past_first = saved.past, saved.past_first
        sums._increments = {step: Count(*count) for step, *count in saved.increments}
        sums._firsts = {(started, first): Count(*count) for started, first, *count in saved.firsts}
        sums._steps, sums._changed = sorted(sums._increments), -inf
        parts = (saved.past, saved.past_first, *sums._increments.values(), *sums._firsts.values())
        sums.total = Count(sum(part.calls for part in parts), sum(part.kept for part in parts))
        return sums


class _SortedFirsts:
    """What producers had counted before their first reports, in order of their starts.

    Args:
        firsts: The counts.
    """

    def __init__(self, firsts: dict[Start, Count]) -> None:
        self._firsts = sorted(firsts.items())
        self._newest = max((first for _, first in firsts), default=0)
        from_the_end = accumulate((count for _, count in reversed(self._firsts)), Count.plus, initial=Count())
        self._sums = list(from_the_end)[::-1]

    def within(self, begin: float, end: float) -> Count:
        """The counts of the producers that started within a window and reported within it first."""
        place = bisect_left(self._firsts, begin, key=lambda entry: entry[0][0])
        if self._newest < end:
            return self._sums[place]
        counts = [count for (_, first), count in self._firsts[place:] if first < end]
        return Count(sum(count.calls for count in counts), sum(count.kept for count in counts))
