"""An index of the requests that failed a gate, read in pages, newest first.

Each failure is indexed under every metric it failed and under its series. Series are few: a page is merged from the
newest failures of each series, and series that do not match are never read.
"""

from __future__ import annotations

import base64
import heapq
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from ragmon.core.constants import DEFAULT_PIPELINE, OTHER
from ragmon.core.errors import RagmonError, shorten
from ragmon.core.record import Record, is_tombstone

MAX_PAGE: Final = 1000
SERIES: Final = 4096
"""Maximum number of series; beyond it, new builds and index hashes are counted as `OTHER`."""
SLICES: Final = "slices"
TRAITS: Final = "traits"
LATENCY_MS: Final = "latency_ms"
"""The keys in `facts` of the slices a request belongs to, of its traits in the terms of a diagnosis, and of how long it
took in all."""
MAX_SCANNED: Final = 20_000
"""Maximum number of failures read for one page of a slice; the next page continues there."""
_ALL: Final = ""
"""The metric name under which every failure is indexed."""
_BATCH: Final = 500
_MISSING: Final = ""
"""A build or an index hash that is not known."""

_Position = tuple[float, int, int]
"""Event time, row, and line in the row: the sort key of failures."""
_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_decode_cursor: Final = msgspec.json.Decoder(tuple[float, _Number, _Number]).decode


@dataclass(frozen=True)
class Failure:
    """A request that failed a gate."""

    seq: int
    line: int
    ts: float
    pipeline: str
    source: str
    scores: Mapping[str, float]
    trace_id: str | None = None
    build: str | None = None
    index_hash: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        record: Record,
        source: str,
        scores: Mapping[str, float],
        traits: Sequence[str],
        slices: Sequence[str] = (),
        seq: int = 0,
        line: int = 0,
    ) -> Failure:
        """The failure of a record in a line of a row."""
        total = None if record.latency_ms is None else record.latency_ms.total
        facts = {TRAITS: traits, SLICES: slices or None, LATENCY_MS: None if total is None else round(total, 1)}
        return cls(
            seq,
            line,
            ts=record.ts or 0.0,
            pipeline=record.pipeline or DEFAULT_PIPELINE,
            source=source,
            trace_id=record.trace_id,
            build=record.build,
            index_hash=record.index_hash,
            scores=scores,
            facts={name: value for name, value in facts.items() if value is not None},
        )


@dataclass(frozen=True)
class FailureQuery:
    """Selects failures; None, "" and an empty tuple stand for any.

    Args:
        where: Only failures of this slice, `tag=value`.
        since: Earliest event time, inclusive, seconds since the epoch.
        until: Latest event time, exclusive.
        cursor: The cursor of the previous page; None for the first page.
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
    """One page of failures, newest first; a page of a slice may be short although more pages follow."""

    failures: list[Failure]
    cursor: str | None
    """The cursor of the next page; None after the last page."""


class FailureIndex:
    """Writes failures to the index, inside transactions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.erased = False
        self._connection = connection
        self._series: dict[tuple[str, ...], int] = {}

    def add(self, failures: Iterable[Failure]) -> None:
        """Write failures."""
        rows, index = [], []
        for failure in failures:
            if self.erased:
                find = "SELECT lines FROM rows WHERE seq = ?"
                row = self._connection.execute(find, (failure.seq,)).fetchone()
                if row is not None and is_tombstone(row[0].split(b"\n")[failure.line]):
                    continue
            series = self._series_id(
                (failure.pipeline, failure.source, failure.build or _MISSING, failure.index_hash or _MISSING)
            )
            scores, facts = (
                json.dumps(dict(values), separators=(",", ":")) for values in (failure.scores, failure.facts)
            )
            rows.append((failure.seq, failure.line, series, failure.ts, failure.trace_id, scores, facts))
            index += [(metric, series, failure.ts, failure.seq, failure.line) for metric in (_ALL, *failure.scores)]
        self._connection.executemany("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self._connection.executemany("INSERT OR REPLACE INTO failed VALUES (?, ?, ?, ?, ?)", index)

    def _series_id(self, key: tuple[str, str, str, str]) -> int:
        series_id = self._series.get(key)
        if series_id is not None:
            return series_id
        find = "SELECT id FROM series WHERE (pipeline, source, build, index_hash) = (?, ?, ?, ?)"
        row = self._connection.execute(find, key).fetchone()
        if row is None and key[2:] != (OTHER, OTHER):
            (count,) = self._connection.execute("SELECT count(*) FROM series").fetchone()
            if count >= SERIES:
                return self._series_id((key[0], key[1], OTHER, OTHER))
        if row is None:
            add = "INSERT INTO series (pipeline, source, build, index_hash) VALUES (?, ?, ?, ?)"
            row = (self._connection.execute(add, key).lastrowid,)
        self._series[key] = row[0]
        return int(row[0])

    def forget_series(self) -> None:
        """Drop the cached series ids: their transaction was rolled back, or the series were deleted."""
        self._series.clear()


def delete(connection: sqlite3.Connection, where: str, *values: Any) -> None:
    """Delete failures inside a transaction."""
    select = f"SELECT seq, place, series, ts, scores FROM failures WHERE {where} LIMIT {_BATCH}"  # noqa: S608 - no user input
    while batch := connection.execute(select, values).fetchall():
        entries = (
            (metric, series, ts, seq, place)
            for seq, place, series, ts, scores in batch
            for metric in (_ALL, *json.loads(scores))
        )
        connection.executemany("DELETE FROM failed WHERE (metric, series, ts, seq, place) = (?, ?, ?, ?, ?)", entries)
        keys = [(seq, place) for seq, place, *_ in batch]
        connection.executemany("DELETE FROM failures WHERE seq = ? AND place = ?", keys)


def delete_series(connection: sqlite3.Connection) -> None:
    """Delete series without failures."""
    connection.execute(
        "DELETE FROM series WHERE NOT EXISTS (SELECT 1 FROM failed WHERE metric = ? AND series = series.id)",
        (_ALL,),
    )


def page(connection: sqlite3.Connection, query: FailureQuery) -> FailurePage:
    """One page of failures."""
    limit = max(1, min(query.limit, MAX_PAGE))
    before: _Position = (query.until, 0, 0)
    if query.cursor is not None:
        try:
            before = _decode_cursor(base64.urlsafe_b64decode(query.cursor))
        except (ValueError, msgspec.DecodeError):
            raise RagmonError(
                f"this is no cursor: {shorten(query.cursor)}", hint="give the one that came with the page before"
            ) from None
    filters = {name: getattr(query, name) for name in ("pipeline", "source", "build", "index_hash")}
    conditions = {name: value for name, value in filters.items() if value is not None}
    where = " AND ".join(f"{name} = :{name}" for name in conditions) or "1"
    series = connection.execute(f"SELECT id, source FROM series WHERE {where}", conditions).fetchall()  # noqa: S608
    # The positions of each series, newest first; rows are read only as they are consumed.
    newest = (
        "SELECT ts, seq, place FROM failed WHERE metric = ? AND series = ? AND ts >= ? "
        "AND (ts, seq, place) < (?, ?, ?) ORDER BY ts DESC, seq DESC, place DESC"
    )
    metric = _ALL if query.metric is None else query.metric
    by_series: list[Iterator[_Position]] = [
        connection.execute(newest, (metric, series_id, query.since, *before))
        for series_id, source in series
        if not query.sources or source in query.sources
    ]
    matching: list[Failure] = []
    previous: _Position | None = None
    for n_read, position in enumerate(heapq.merge(*by_series, reverse=True)):
        if previous is not None and (len(matching) == limit or n_read == MAX_SCANNED):
            return FailurePage(matching, base64.urlsafe_b64encode(json.dumps(previous).encode()).decode())
        previous, failure = position, _failure(connection, *position[1:])
        if failure is not None and (not query.where or query.where in failure.facts.get(SLICES, ())):
            matching.append(failure)
    return FailurePage(matching, None)


def _failure(connection: sqlite3.Connection, row: int, line: int) -> Failure | None:
    find = (
        "SELECT ts, pipeline, source, scores, trace_id, build, index_hash, facts "
        "FROM failures JOIN series ON series.id = failures.series WHERE seq = ? AND place = ?"
    )
    found = connection.execute(find, (row, line)).fetchone()
    if found is None:
        return None
    ts, pipeline, source, scores, trace_id, build, index_hash, facts = found
    rest = json.loads(scores), trace_id, build or None, index_hash or None, json.loads(facts)
    return Failure(row, line, ts, pipeline, source, *rest)
