"""The only accumulator: rows of counts per time step and series, and one table of gold items.

Everything here is addition of integers, so states merge in any order, on any machine, to the same bits. Time is the
records' own; `now` comes from whoever asks.

Rows of some series added up, each of them once, by the windows they are in: windows lie within one another.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, NamedTuple

from ragmon.core.constants import FOLDED, FRESH, GONE, HOUR, OTHER, STEP, UNKNOWN_WEIGHT
from ragmon.metrics.facts import Key
from ragmon.scoring.calls import CallKey, CallTotals, Count
from ragmon.scoring.counts import ItemCounts, Table, WindowBucket

UNTIMED: Final = -1
"""The step of records that carry no time: in the totals, in no window."""


class SeriesKey(NamedTuple):
    """What keeps rows apart. Rows of different keys are added only where a reader says so."""

    pipeline: str
    source: str
    gold: str = ""
    gold_version: str = ""
    slice: str = ""
    audit: bool = True
    stratum: str = "rest"
    build: str = ""
    index_hash: str = ""

    @property
    def drawn(self) -> bool:
        """Its records won the uniform draw, at a rate that is known."""
        return self.audit and self.stratum != UNKNOWN_WEIGHT


class WindowSeries:
    """The rows of one series key.

    Attributes:
        fresh: Rows of `STEP` seconds by their start.
        folded: Rows of `FOLDED` seconds by their start.
        past: The sum of rows older than the retention; counters must never fall.
        items: What each gold item did.
        changed, old_changed: At which change of its state any of it changed last, and what is no longer fresh did.
    """

    __slots__ = ("changed", "folded", "fresh", "items", "old_changed", "past")

    def __init__(self) -> None:
        self.changed = self.old_changed = 0
        self.fresh: dict[int, WindowBucket] = {}
        self.folded: dict[int, WindowBucket] = {}
        self.past = WindowBucket()
        self.items = ItemCounts()

    def merge(self, other: WindowSeries) -> None:
        """Add another series' counts to this one."""
        for mine, theirs in ((self.fresh, other.fresh), (self.folded, other.folded)):
            for start, row in theirs.items():
                mine.setdefault(start, WindowBucket()).merge(row)
        self.past.merge(other.past)
        self.items.merge(other.items)


class State:
    """All rows of a scorer, and all calls its producers told of.

    Args:
        retention: Seconds a folded row is kept; None keeps all (replay).
        timed_items: Keep what gold items did by time (live) instead of as one table (replay).

    Attributes:
        matched: Audit members of user traffic that have a gold item, by pipeline and how it was found.
        remembered: What readers may use again; no part of the state.
    """

    def __init__(self, *, retention: float | None = None, timed_items: bool = False) -> None:
        self.series: dict[SeriesKey, WindowSeries] = {}
        self.retention = retention
        self.timed_items = timed_items
        self.newest = 0.0
        self.calls = CallTotals()
        self.matched: Counter[tuple[str, str]] = Counter()
        self.remembered: dict[Any, Any] = {}
        self._fold_due = 0.0
        self._changes = 0

    def at(self, key: SeriesKey) -> WindowSeries:
        """The series of a key, made when it is new."""
        series = self.series.get(key)
        if series is None:
            series = self.series[key] = WindowSeries()
        return series

    def row(self, series: WindowSeries, ts: float | None) -> WindowBucket | None:
        """The row an event time belongs to.

        Args:
            series: Where.
            ts: Event time in seconds since the epoch; None for a record without one.

        Returns:
            The row; None when the time is older than the retention.
        """
        self._changes = series.changed = self._changes + 1
        if ts is None:
            series.old_changed = self._changes
            return series.folded.setdefault(UNTIMED, WindowBucket())
        if ts > self.newest:
            self.newest = ts
            if ts > self._fold_due:
                self.fold(ts)
        if ts < self.newest - FRESH:
            if self.retention is not None and ts < self.newest - self.retention:
                return None
            series.old_changed = self._changes
            rows, start = series.folded, int(ts) // FOLDED * FOLDED
        else:
            rows, start = series.fresh, int(ts) // STEP * STEP
        row = rows.get(start)
        if row is None:
            row = rows[start] = WindowBucket()
        return row

    def count_item(self, series: WindowSeries, ts: float | None, qid: str, key: Key) -> None:
        """Add one request to the tables of gold items."""
        items = series.items
        table = items.whole if not self.timed_items or ts is None else items.at(ts, fresh_from=self.newest - FRESH)
        facts = table.get(qid)
        if facts is None:
            table[qid] = {key: 1}
        else:
            facts[key] = facts.get(key, 0) + 1

    def _change(self, series: WindowSeries) -> None:
        """Let readers know that what they remember of a series is of another time."""
        self._changes = series.changed = series.old_changed = self._changes + 1

    def fold(self, now: float) -> None:
        """Fold fresh rows that have grown old, and move rows past the retention out of the windows."""
        self._fold_due = now + FOLDED
        self.calls.fold(now - FRESH, None if self.retention is None else now - self.retention)
        for series in self.series.values():
            self._change(series)
            for start in [s for s in series.fresh if s < now - FRESH]:
                series.folded.setdefault(start // FOLDED * FOLDED, WindowBucket()).merge(series.fresh.pop(start))
            series.items.fold(now - FRESH)
            if self.retention is not None:
                for start in [s for s in series.folded if s != UNTIMED and s + FOLDED < now - self.retention]:
                    series.past.merge(series.folded.pop(start))
                series.items.expire(now - self.retention)

    def merge(self, other: State) -> None:
        """Add another state's counts; the order of merging does not matter."""
        for key, series in other.series.items():
            self.at(key).merge(series)
            self._change(self.at(key))
        self.calls.merge(other.calls)
        self.matched.update(other.matched)
        self.newest = max(self.newest, other.newest)

    def retire(self, pipeline: str, build: str, index_hash: str) -> None:
        """Add the series of a build and its index to those of the others."""
        which = (pipeline, build, index_hash)
        for key in [key for key in self.series if (key.pipeline, key.build, key.index_hash) == which]:
            others = self.at(key._replace(build=OTHER, index_hash=OTHER))
            others.merge(self.series.pop(key))
            self._change(others)

    def give_up(self, pipeline: str) -> None:
        """Add all that was ever counted of a pipeline to the sums of those whose series are gone, without its times.

        Slices are not kept: they are counted a second time, and stand in no sum without a pipeline.
        """
        for key in [key for key in self.series if key.pipeline == pipeline]:
            series = self.series.pop(key)
            if not key.slice:
                sums = self.at(key._replace(pipeline=GONE, build="", index_hash=""))
                for row in self.window(series, None, 0):
                    sums.past.merge(row)
                self._change(sums)
        for gone, how in [held for held in self.matched if held[0] == pipeline]:
            self.matched[GONE, how] += self.matched.pop((gone, how))

    def window(self, series: WindowSeries, span: int | None, now: float) -> Iterator[WindowBucket]:
        """The rows of a window that ends at the first step edge after now.

        Args:
            series: Where.
            span: Seconds; None is everything ever counted.
            now: Seconds since the epoch.
        """
        if span is None:
            yield series.past
            yield from series.folded.values()
            yield from series.fresh.values()
            return
        step, _ = grid(span, now)
        begin, end = edges(span, now)
        yield from (row for start, row in series.fresh.items() if begin <= start // step * step < end)
        yield from (row for start, row in series.folded.items() if begin <= start < end)

    def totals(self, span: int, now: float) -> dict[CallKey, Count]:
        """All calls of a window, sampled or not, as far as producers told, by the same edges."""
        return self.calls.since(*edges(span, now))

    def items(self, series: WindowSeries, span: int | None, now: float) -> Iterator[Table]:
        """The item tables of a window, by the same edges; of a longer one, hours that reach into it count whole."""
        if span is None:
            return series.items.all()
        _, end = grid(span, now)
        return series.items.window(max(0, end - span), end, hours=span > HOUR)

    def to_rows(self) -> list[dict[str, Any]]:
        """Every row, folded, as plain data in canonical order; two equal states give equal lists."""
        rows: list[dict[str, Any]] = []
        for key in sorted(self.series):
            series, folded = self.series[key], dict[int, WindowBucket]()
            for start, row in (*series.folded.items(), *series.fresh.items()):
                step = start if start == UNTIMED else start // FOLDED * FOLDED
                folded.setdefault(step, WindowBucket()).merge(row)
            rows += [{"series": list(key), "step": step, **folded[step].dump()} for step in sorted(folded)]
            if series.past.count:
                rows.append({"series": list(key), "step": None, **series.past.dump()})
        return rows

    def digest(self) -> str:
        """sha256 over the folded rows and how gold was found: the fingerprint by which live and replay are compared."""
        digest = hashlib.sha256()
        for row in self.to_rows():
            digest.update(json.dumps(row, sort_keys=True, separators=(",", ":")).encode())
        if self.matched:
            digest.update(json.dumps(sorted(self.matched.items()), separators=(",", ":")).encode())
        return digest.hexdigest()

    def dump(self) -> dict[str, Any]:
        """The whole state as plain JSON data."""
        return {
            "newest": self.newest,
            "fold_due": self._fold_due,
            "retention": self.retention,
            "timed_items": self.timed_items,
            "calls": self.calls.dump(),
            "matched": [[pipeline, how, n] for (pipeline, how), n in self.matched.items()],
            "series": [{"key": list(key), **_dump(series)} for key, series in self.series.items()],
        }

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> State:
        """The state that `dump` wrote."""
        state = cls(retention=data["retention"], timed_items=data["timed_items"])
        state.newest = data["newest"]
        state._fold_due = data.get("fold_due", 0.0)
        state.calls = CallTotals.load(data["calls"])
        state.matched = Counter({(pipeline, how): n for pipeline, how, n in data.get("matched", ())})
        for entry in data["series"]:
            state.series[SeriesKey(*entry["key"])] = _load(entry)
        return state


def grid(span: int, now: float) -> tuple[int, int]:
    """The step of a window's edges, and the first edge after now where it ends."""
    step = STEP if span <= HOUR else FOLDED
    return step, (int(now) // step + 1) * step


def edges(span: int, now: float) -> tuple[int, int]:
    """Where a window begins and ends; records without a time stand before all times, and in none."""
    _, end = grid(span, now)
    return max(0, end - span), end


def _dump(series: WindowSeries) -> dict[str, Any]:
    return {
        "fresh": {str(start): row.dump() for start, row in series.fresh.items()},
        "folded": {str(start): row.dump() for start, row in series.folded.items()},
        "past": series.past.dump(),
        "items": series.items.dump(),
    }


def _load(data: Mapping[str, Any]) -> WindowSeries:
    series = WindowSeries()
    series.fresh = {int(start): WindowBucket.load(row) for start, row in data["fresh"].items()}
    series.folded = {int(start): WindowBucket.load(row) for start, row in data["folded"].items()}
    series.past = WindowBucket.load(data["past"])
    series.items = ItemCounts.load(data["items"])
    return series


class Kind(NamedTuple):
    """Which records of a group stand together."""

    gold: str
    gold_version: str
    stratum: str
    drawn: bool


Rows = dict[Kind, WindowBucket]
Held = Sequence[tuple[Kind, WindowSeries]]
"""Series and their kinds."""


@dataclass
class Window:
    """A window at a moment.

    Attributes:
        name: Its name.
        span: Seconds; None is everything.
        now: Seconds since the epoch.
        begin, end: Its edges.
        step: What they are a multiple of.
    """

    name: str
    span: int | None
    now: float
    begin: float = -inf
    end: float = inf
    step: int = 1

    def __post_init__(self) -> None:
        if self.span is not None:
            self.step, _ = grid(self.span, self.now)
            self.begin, self.end = edges(self.span, self.now)


Sums = dict[int, Rows]
"""Rows by the windows they are in, a bit for each, and by kind."""


def _places(start: int, windows: Sequence[Window], *, fresh: bool = False) -> int:
    """The windows a row is in, a bit for each."""
    found = 0
    for place, window in enumerate(windows):
        at = start // window.step * window.step if fresh else start
        if window.begin <= at < window.end:
            found |= 1 << place
    return found


def folded_sums(series: Held, windows: Sequence[Window]) -> Sums:
    """What is no longer fresh of some series, each row added once."""
    found: Sums = {}
    everything = sum(1 << place for place, window in enumerate(windows) if window.span is None)
    for kind, one in series:
        if one.past.count:
            _add(found, everything, kind, one.past)
        for start, row in one.folded.items():
            _add(found, _places(start, windows), kind, row)
    return found


def with_fresh_rows(sums: Sums, series: Held, windows: Sequence[Window]) -> Sums:
    """Those sums and what is fresh of the series; the sums stay as they are."""
    found = {mask: {kind: _copied(row) for kind, row in rows.items()} for mask, rows in sums.items()}
    masks: dict[int, int] = {}
    for kind, one in series:
        for start, row in one.fresh.items():
            mask = masks.get(start)
            if mask is None:
                mask = masks[start] = _places(start, windows, fresh=True)
            _add(found, mask, kind, row)
    return found


def _add(sums: Sums, mask: int, kind: Kind, row: WindowBucket) -> None:
    if mask:
        rows = sums.setdefault(mask, {})
        held = rows.get(kind)
        if held is None:
            rows[kind] = _copied(row)
        else:
            held.merge(row)


def _copied(row: WindowBucket) -> WindowBucket:
    found = WindowBucket()
    found.merge(row)
    return found


def rows_of_window(sums: Sums, place: int) -> Rows:
    """The rows of one window by kind."""
    found: Rows = {}
    for mask, rows in sums.items():
        if mask >> place & 1:
            for kind, row in rows.items():
                found.setdefault(kind, WindowBucket()).merge(row)
    return found


def kind_of(key: SeriesKey) -> Kind:
    """With which others the records of a series stand together."""
    return Kind(key.gold, key.gold_version, key.stratum, key.drawn)
