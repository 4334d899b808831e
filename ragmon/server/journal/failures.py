"""The requests that failed a gate, so that they can be opened, newest first, however many there are.

Each stands under every metric it failed and its series, which are few: a page is merged from the newest of each series,
and what does not match is never read.
"""

from __future__ import annotations

import base64
import heapq
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from ragmon.core.constants import OTHER
from ragmon.core.errors import RagmonError, shorten
from ragmon.core.record import is_forgotten

LONGEST: Final = 1000
"""Failures on a page."""
SERIES: Final = 4096
"""Series there may be; past them builds and indexes that are new are held as others."""
SLICES: Final = "slices"
"""The fact that says in which slices a request is."""
LOOKED_AT: Final = 20_000
"""Failures a page of a slice looks at before it ends: the next one goes on there."""
_ANY: Final = ""
"""The metric every failure stands under."""
_CHANGED: Final = 500
_UNKNOWN: Final = ""

Place = tuple[float, int, int]
"""Time, row and place in it: the order of failures."""
_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_cursor: Final = msgspec.json.Decoder(tuple[float, _Number, _Number]).decode


@dataclass(frozen=True)
class Failure:
    """A request that failed a gate.

    Attributes:
        seq: Its row.
        place: Its line in that row, counted from 0.
        ts: Its event time, seconds since the epoch.
        pipeline: Which pipeline answered.
        source: Where it was counted.
        scores: What failed it, by metric.
        trace_id: Its trace.
        build: The version of the application.
        index_hash: The version of the index.
        facts: What else a list of failures shows.
    """

    seq: int
    place: int
    ts: float
    pipeline: str
    source: str
    scores: Mapping[str, float]
    trace_id: str | None = None
    build: str | None = None
    index_hash: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FailureQuery:
    """Which failures.

    Args:
        pipeline, source, build, index_hash: Those of one; None for any.
        metric: Those that failed it; None for any.
        sources: Those of any of several; empty for any.
        where: Those of a slice, `tag=value`; "" for all.
        since: Event time of the oldest, seconds since the epoch.
        until: All are older than this.
        limit: How many a page has, at most `LONGEST`.
        cursor: Where the page before ended.
    """

    pipeline: str | None = None
    source: str | None = None
    metric: str | None = None
    build: str | None = None
    index_hash: str | None = None
    sources: tuple[str, ...] = ()
    where: str = ""
    since: float = 0.0
    until: float = float("inf")
    limit: int = 50
    cursor: str | None = None


class FailurePage(NamedTuple):
    """Some failures, newest first; of a slice there may be fewer than asked for, though more follow.

    Attributes:
        failures: The failures.
        cursor: Where the next page begins; None after the last one.
    """

    failures: list[Failure]
    cursor: str | None


class FailureIndex:
    """Writes failures inside transactions.

    Args:
        connection: The journal.

    Attributes:
        erased: Records may have been forgotten since their failures were found.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.erased = False
        self._connection = connection
        self._series: dict[tuple[str, ...], int] = {}

    def add(self, failures: Iterable[Failure]) -> None:
        """Write failures."""
        whole, under = [], []
        for each in filter(self._stands, failures) if self.erased else failures:
            series = self._number((each.pipeline, each.source, each.build or _UNKNOWN, each.index_hash or _UNKNOWN))
            scores, facts = (json.dumps(dict(told), separators=(",", ":")) for told in (each.scores, each.facts))
            whole.append((each.seq, each.place, series, each.ts, each.trace_id, scores, facts))
            under += [(metric, series, each.ts, each.seq, each.place) for metric in (_ANY, *each.scores)]
        self._connection.executemany("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?, ?, ?)", whole)
        self._connection.executemany("INSERT OR REPLACE INTO failed VALUES (?, ?, ?, ?, ?)", under)

    def _stands(self, failure: Failure) -> bool:
        """Whether the record a failure is of is in the journal yet."""
        find = "SELECT lines FROM rows WHERE seq = ?"
        found = self._connection.execute(find, (failure.seq,)).fetchone()
        return found is None or not is_forgotten(found[0].split(b"\n")[failure.place])

    def _number(self, key: tuple[str, str, str, str]) -> int:
        known = self._series.get(key)
        if known is not None:
            return known
        find = "SELECT id FROM series WHERE (pipeline, source, build, index_hash) = (?, ?, ?, ?)"
        found = self._connection.execute(find, key).fetchone()
        if found is None and key[2:] != (OTHER, OTHER):
            (count,) = self._connection.execute("SELECT count(*) FROM series").fetchone()
            if count >= SERIES:
                return self._number((key[0], key[1], OTHER, OTHER))
        if found is None:
            add = "INSERT INTO series (pipeline, source, build, index_hash) VALUES (?, ?, ?, ?)"
            found = (self._connection.execute(add, key).lastrowid,)
        self._series[key] = found[0]
        return int(found[0])

    def forget_series(self) -> None:
        """Look series up again: the transaction that wrote them was undone, or they were deleted."""
        self._series.clear()


def delete(connection: sqlite3.Connection, where: str, *values: Any) -> None:
    """Delete failures inside a transaction.

    Args:
        connection: The journal.
        where: Which, as a condition on the columns of `failures`.
        values: The values in it.
    """
    chosen = f"SELECT seq, place, series, ts, scores FROM failures WHERE {where} LIMIT {_CHANGED}"  # noqa: S608 - ours
    while found := connection.execute(chosen, values).fetchall():
        under = (
            (metric, series, ts, seq, place)
            for seq, place, series, ts, scores in found
            for metric in (_ANY, *json.loads(scores))
        )
        connection.executemany("DELETE FROM failed WHERE (metric, series, ts, seq, place) = (?, ?, ?, ?, ?)", under)
        gone = [(seq, place) for seq, place, *_ in found]
        connection.executemany("DELETE FROM failures WHERE seq = ? AND place = ?", gone)


def delete_series(connection: sqlite3.Connection) -> None:
    """Delete series nothing stands in."""
    connection.execute(
        "DELETE FROM series WHERE NOT EXISTS (SELECT 1 FROM failed WHERE metric = ? AND series = series.id)", (_ANY,)
    )


def page(connection: sqlite3.Connection, query: FailureQuery) -> FailurePage:
    """One page of failures.

    Raises:
        RagmonError: The cursor is none.
    """
    limit = max(1, min(query.limit, LONGEST))
    before = (query.until, 0, 0) if query.cursor is None else _read(query.cursor)
    each = [_newest(connection, series, query, before) for series in _series(connection, query)]
    found: list[Failure] = []
    last: Place | None = None
    for looked, place in enumerate(heapq.merge(*each, reverse=True)):
        if last is not None and (len(found) == limit or looked == LOOKED_AT):
            return FailurePage(found, _write(last))
        last, failure = place, _failure(connection, place)
        if failure is not None and (not query.where or query.where in failure.facts.get(SLICES, ())):
            found.append(failure)
    return FailurePage(found, None)


def _series(connection: sqlite3.Connection, query: FailureQuery) -> list[int]:
    wanted = {name: getattr(query, name) for name in ("pipeline", "source", "build", "index_hash")}
    told = {name: value for name, value in wanted.items() if value is not None}
    where = " AND ".join(f"{name} = :{name}" for name in told) or "1"
    rows = connection.execute(f"SELECT id, source FROM series WHERE {where}", told)  # noqa: S608 - ours
    return [found for found, source in rows if not query.sources or source in query.sources]


def _newest(connection: sqlite3.Connection, series: int, query: FailureQuery, before: Place) -> Iterator[Place]:
    """Places of one series, newest first, read as far as they are asked for."""
    return connection.execute(
        "SELECT ts, seq, place FROM failed WHERE metric = ? AND series = ? AND ts >= ? "
        "AND (ts, seq, place) < (?, ?, ?) ORDER BY ts DESC, seq DESC, place DESC",
        (_ANY if query.metric is None else query.metric, series, query.since, *before),
    )


def _failure(connection: sqlite3.Connection, place: Place) -> Failure | None:
    find = (
        "SELECT seq, place, ts, pipeline, source, scores, trace_id, build, index_hash, facts "
        "FROM failures JOIN series ON series.id = failures.series WHERE seq = ? AND place = ?"
    )
    found = connection.execute(find, place[1:]).fetchone()
    if found is None:
        return None
    seq, line, ts, pipeline, source, scores, trace_id, build, index_hash, facts = found
    told = json.loads(scores), trace_id, build or None, index_hash or None, json.loads(facts)
    return Failure(seq, line, ts, pipeline, source, *told)


def _write(place: Place) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _read(cursor: str) -> Place:
    try:
        return _cursor(base64.urlsafe_b64decode(cursor))
    except (ValueError, msgspec.DecodeError):
        raise RagmonError(
            f"this is no cursor: {shorten(cursor)}", hint="give the one that came with the page before"
        ) from None
