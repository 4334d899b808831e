"""What producers say of all their calls, beside what weighs in windows: losses, latency, and what they sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from ragmon.core import constants
from ragmon.core.record import Totals
from ragmon.scoring.counts import add_counts

SILENT: Final = 86_400.0
"""Seconds after which a producer that says nothing may be gone."""
MOST: Final = 20_000
"""Series beyond which those that may be gone are added up: should one of them come back, it would count twice."""
GONE: Final = "gone"
_REASONS: Final = frozenset(value for value in vars(constants).values() if isinstance(value, str))
"""Reasons for losses are among the names that everything is called by."""


class Series(NamedTuple):
    """Of what a producer counts."""

    instance: str
    started: float
    pipeline: str
    source: str
    stratum: str


class Last(msgspec.Struct):
    """What a producer said last.

    Attributes:
        at: When that came, seconds since the epoch.
        calls: Calls in all.
        kept: Those of them that became records.
        dropped: Records it lost, by reason.
        latency: Calls in log buckets of milliseconds.
    """

    at: float
    calls: int
    kept: int
    dropped: dict[str, int]
    latency: dict[int, int]


class Producers:
    """The last word of every producer."""

    def __init__(self) -> None:
        self._last: dict[Series, Last] = {}
        self._due = 0.0

    def see(self, line: Totals, now: float) -> None:
        """Take in what a producer says; counts only grow, so of two words the larger one is the later.

        Args:
            line: What it says; its own clock may be wrong.
            now: When that came, seconds since the epoch.
        """
        key = Series(line.instance, line.started, line.pipeline, line.source, line.stratum)
        held = self._last.get(key)
        if held is None or line.calls >= held.calls:
            self._last[key] = Last(now, line.calls, line.kept, _known(line.dropped), line.latency_ms)
        if len(self._last) > MOST and now > self._due:
            self._bury(now - SILENT)
            self._due = now + SILENT / 24

    def _bury(self, before: float) -> None:
        for key in [key for key, last in self._last.items() if last.at < before and key.instance != GONE]:
            last = self._last.pop(key)
            sum_of = self._last.setdefault(key._replace(instance=GONE, started=0.0), Last(0.0, 0, 0, {}, {}))
            sum_of.calls += last.calls
            sum_of.kept += last.kept
            add_counts(sum_of.dropped, last.dropped)
            add_counts(sum_of.latency, last.latency)

    def calls(self) -> dict[tuple[str, str, str], int]:
        """All calls by pipeline, source and stratum."""
        found: Counter[tuple[str, str, str]] = Counter()
        for key, last in self:
            found[key.pipeline, key.source, key.stratum] += last.calls
        return dict(found)

    def latency(self) -> dict[tuple[str, str], dict[int, int]]:
        """Calls in log buckets of milliseconds, by pipeline and source."""
        found: dict[tuple[str, str], dict[int, int]] = {}
        for key, last in self:
            if last.latency:
                add_counts(found.setdefault((key.pipeline, key.source), {}), last.latency)
        return found

    def dropped(self) -> Counter[str]:
        """Records that producers lost and know of, by reason."""
        found: Counter[str] = Counter()
        for _, last in self:
            for reason, n in last.dropped.items():
                found[reason] += n
        return found

    def missing(self, came: int) -> int:
        """Records that producers sent, did not lose, and that have not come; what is on its way counts among them.

        Args:
            came: Whole records that came.
        """
        kept = sum(last.kept for _, last in self)
        return max(0, kept - self.dropped().total() - came)

    def __iter__(self) -> Iterator[tuple[Series, Last]]:
        return iter(self._last.items())

    def dump(self) -> list[Any]:
        """Plain data."""
        return [[list(key), last] for key, last in self._last.items()]

    def load(self, data: Any) -> None:
        """Go on from what `dump` wrote."""
        told = msgspec.convert(data, list[tuple[Series, Last]], strict=False)
        self._last = dict(told)


def _known(dropped: Mapping[str, int]) -> dict[str, int]:
    """Losses by the reasons there are; what a producer calls otherwise is another."""
    found: dict[str, int] = {}
    for reason, n in dropped.items():
        known = reason if reason in _REASONS else constants.OTHER
        found[known] = found.get(known, 0) + n
    return found
