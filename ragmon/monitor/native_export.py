"""Takes over what a scan in the native core has counted: its arrays are added to the state of a scorer.

Everything is addition, so it may be done at any time, and in any order with what Python counted itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from ragmon.core import constants
from ragmon.core.constants import STAGES
from ragmon.metrics.facts import Key
from ragmon.monitor.native_setup import Described
from ragmon.native.scanning import Scan, Section, TakenArrays
from ragmon.scoring.cohorts import UNTIMED
from ragmon.scoring.counts import ItemTable, Table, WindowBucket
from ragmon.scoring.scorer import Scorer
from ragmon.scoring.series import SeriesKey, WindowSeries

_WORD: Final = (1 << 64) - 1
_HOW: Final = (constants.BY_QID, constants.BY_QUESTION, constants.BY_PARAPHRASE)
_COUNTED: Final = tuple(section for section in Section if Section.KEYS < section <= Section.LATENCY_COUNTS)
"""The arrays of what was counted; the facts themselves are looked at before."""
_GROUP_BYTES: Final = 256
"""The packed counts of 64 groups, in 32 bits each (`ragmon.scoring.groups`)."""


def take_over(scan: Scan, described: Described, scorer: Scorer) -> list[Key]:
    """Add everything that a scan has counted to a scorer, and let the scan start anew.

    Args:
        scan: The scan.
        described: What it was told.
        scorer: The scorer.

    Returns:
        The facts that were counted, by number.
    """
    state, totals = scorer.state, scan.array(Section.TOTALS)
    keys = _keys(scan, scorer)
    state.advance(*scan.times)
    arrays = scan.take(_COUNTED)
    scorer.scored += totals[2]
    scorer.unmatched += totals[3]
    strata = arrays.texts(Section.STRATA)
    lanes = list(_rows_of(arrays.array(Section.LANES), 6))
    series = _series(lanes, strata, described, scorer)
    for lane, is_folded, start, row in _rows(arrays, keys):
        state.add_row(series[lane], start, row, is_folded=is_folded)
    for lane, hour, table in _tables(arrays, lanes, described, keys):
        state.add_items(series[lane], hour, table)
    _add_streams(arrays, strata, described, scorer)
    _add_captured(arrays, described, scorer)
    return keys


def _rows_of(array: memoryview, columns: int) -> Iterator[tuple[int, ...]]:
    """The rows of an array."""
    return zip(*[iter(array)] * columns, strict=True)


def _keys(scan: Scan, scorer: Scorer) -> list[Key]:
    """The facts by number; a metric that raises does so here, before anything is added."""
    keys = []
    for flags, wanted, retrieved, low, high in _rows_of(scan.array(Section.KEYS), 5):
        ranks = (high & _WORD) << 64 | low & _WORD
        key = scorer.table.shared((flags, wanted, retrieved, ranks, 0, 0, ()))
        scorer.table.scores(key)
        keys.append(key)
    return keys


def _series(
    lanes: Sequence[tuple[int, ...]], strata: Sequence[str], described: Described, scorer: Scorer
) -> list[WindowSeries]:
    """The series by number."""
    found = []
    for stream, is_match, by_model, gold, audit, stratum in lanes:
        cache, model = described.streams[stream]
        name, version = described.sets[gold - 1] if gold else ("", "")
        source = constants.MATCH if is_match else cache.source
        where = model if by_model else ""
        names = (cache.build, cache.index_hash)
        key = SeriesKey(cache.pipeline, source, name, version, where, bool(audit), strata[stratum], *names)
        found.append(scorer.state.at(key))
    return found


def _rows(scan: TakenArrays, keys: list[Key]) -> Iterator[tuple[int, bool, int, WindowBucket]]:
    """The rows: the number of the series, whether it is a folded one, its start, and its counts."""
    cells = _rows_of(scan.array(Section.CELLS), 3)
    histograms = _Histograms(scan)
    groups, at = scan.raw(Section.GROUPS), 0
    for lane, is_folded, start, n_cells, *sizes in _rows_of(scan.array(Section.ROWS), 4 + len(STAGES)):
        row = WindowBucket()
        for key, count, is_grouped in islice(cells, n_cells):
            row.cells[keys[key]] = count
            if is_grouped:
                row.groups[keys[key]] = int.from_bytes(groups[at : at + _GROUP_BYTES], "little")
                at += _GROUP_BYTES
        for name, size in zip(STAGES, sizes, strict=True):
            if size:
                row.latency[name] = histograms.take(size)
        yield lane, bool(is_folded), start, row


class _Histograms:
    """The histograms of all rows, one after another: most of what is counted, so they are not taken number by number.

    Args:
        scan: What was taken of the scan.
    """

    def __init__(self, scan: TakenArrays) -> None:
        buckets = scan.array(Section.LATENCY).tolist()
        one = {bucket: bucket for bucket in buckets}
        # The rows share one object for a bucket: there are few, and each takes as much memory as its place in a row.
        self._counts = zip(map(one.__getitem__, buckets), scan.array(Section.LATENCY_COUNTS).tolist(), strict=True)

    def take(self, size: int) -> dict[int, int]:
        """The next one."""
        return dict(islice(self._counts, size))


def _tables(
    scan: TakenArrays, lanes: Sequence[tuple[int, ...]], described: Described, keys: list[Key]
) -> Iterator[tuple[int, int, ItemTable]]:
    """The tables of gold items: the number of the series, the hour, and the table."""
    entries = _rows_of(scan.array(Section.ITEMS), 3)
    for lane, hour, n in _rows_of(scan.array(Section.TABLES), 3):
        qids = described.qids(lanes[lane][0])
        table: Table = {}
        last, facts = -1, dict[Key, int]()
        for item, key, count in islice(entries, n):
            if item != last:
                last, facts = item, table.setdefault(qids[item], {})
            facts[keys[key]] = facts.get(keys[key], 0) + count  # two items of one id in several sets
        yield lane, hour, ItemTable(table)


def _add_streams(scan: TakenArrays, strata: Sequence[str], described: Described, scorer: Scorer) -> None:
    """Add what is counted by stream: matches, answers and cohorts."""
    state = scorer.state
    matched = _rows_of(scan.array(Section.MATCHED), len(_HOW))
    answers = _rows_of(scan.array(Section.ANSWERS), 2)
    for (cache, _), by_how, (answered, citing) in zip(described.streams, matched, answers, strict=True):
        for how, n in zip(_HOW, by_how, strict=True):
            if n:
                state.matched[cache.pipeline, how] += n
        if answered:
            state.count_answers(cache.pipeline, answered, citing)
    for stream, stratum, hour, *counts in _rows_of(scan.array(Section.COHORTS), 6):
        state.cohorts.add_answers(described.streams[stream].cache.pipeline, strata[stratum], hour, counts)


def _add_captured(scan: TakenArrays, described: Described, scorer: Scorer) -> None:
    """Add what was captured; a replay has no minutes of it, as its report is of all of them."""
    series = [scorer.state.captured.at(*place) for place in described.captured]
    for place, minute, mask, n in _rows_of(scan.array(Section.MASKS), 4):
        series[place].add(None if minute == UNTIMED else minute, mask, n)
    buckets = [each.past for each in series]
    examples = iter(scan.texts(Section.EXAMPLES))
    for bucket, (ids, n) in zip(buckets, _rows_of(scan.array(Section.CAPTURED), 2), strict=True):
        bucket.ids += ids
        for _ in range(n):
            bucket.add_example(next(examples))
