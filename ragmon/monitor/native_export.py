"""Takes over what a scan in the native core has counted: its arrays are added to the state of a scorer.

Everything is addition, so it may be done at any time, and in any order with what Python counted itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from typing import Final

from ragmon.core import constants
from ragmon.core.constants import STAGES
from ragmon.metrics.facts import Key
from ragmon.monitor.native_setup import Described
from ragmon.native.scanning import Scan, Section
from ragmon.scoring.counts import ItemTable, Table, WindowBucket
from ragmon.scoring.scorer import Scorer
from ragmon.scoring.series import SeriesKey, WindowSeries

_WORD: Final = (1 << 64) - 1
_HOW: Final = (constants.BY_QID, constants.BY_QUESTION, constants.BY_PARAPHRASE)
_GROUP_BYTES: Final = 256
"""The packed counts of 64 groups, in 32 bits each (`ragmon.scoring.groups`)."""


def take_over(scan: Scan, described: Described, scorer: Scorer) -> None:
    """Add everything that a scan has counted to a scorer, and let the scan start anew.

    Args:
        scan: The scan.
        described: What it was told.
        scorer: The scorer.
    """
    state, totals = scorer.state, scan.array(Section.TOTALS)
    scorer.scored += totals[2]
    scorer.unmatched += totals[3]
    state.advance(*scan.times)
    keys = _keys(scan, scorer)
    lanes = _lanes(scan, described, scorer)
    for lane, is_folded, start, row in _rows(scan, keys):
        state.add_row(lanes[lane], start, row, is_folded=is_folded)
    for lane, hour, table in _tables(scan, described, keys):
        state.add_items(lanes[lane], hour, table)
    _add_streams(scan, described, scorer)
    _add_captured(scan, described, scorer)
    scan.clear()


def _rows_of(array: memoryview, columns: int) -> Iterator[tuple[int, ...]]:
    """The rows of an array."""
    return zip(*[iter(array)] * columns, strict=True)


class _Columns:
    """An array that is taken piece by piece, by columns: a loop over its rows would take several times as long.

    Args:
        array: The array.
        columns: How many columns it has.
    """

    def __init__(self, array: memoryview, columns: int) -> None:
        self._array, self._columns, self._at = array, columns, 0

    def take(self, n: int) -> list[list[int]]:
        """The columns of the next rows."""
        begin, self._at = self._at, self._at + n * self._columns
        piece = self._array[begin : self._at]
        return [piece[column :: self._columns].tolist() for column in range(self._columns)]


def _keys(scan: Scan, scorer: Scorer) -> list[Key]:
    """The facts by number; a metric that raises does so here, before anything is added."""
    keys = []
    for flags, wanted, retrieved, low, high in _rows_of(scan.array(Section.KEYS), 5):
        ranks = (high & _WORD) << 64 | low & _WORD
        key = scorer.table.shared((flags, wanted, retrieved, ranks, 0, 0, ()))
        scorer.table.scores(key)
        keys.append(key)
    return keys


def _lanes(scan: Scan, described: Described, scorer: Scorer) -> list[WindowSeries]:
    """The series by number."""
    strata = scan.texts(Section.STRATA)
    found = []
    for stream, is_match, by_model, gold, audit, stratum in _rows_of(scan.array(Section.LANES), 6):
        cache, model = described.streams[stream]
        name, version = described.sets[gold - 1] if gold else ("", "")
        source = constants.MATCH if is_match else cache.source
        where = model if by_model else ""
        names = (cache.build, cache.index_hash)
        key = SeriesKey(cache.pipeline, source, name, version, where, bool(audit), strata[stratum], *names)
        found.append(scorer.state.at(key))
    return found


def _rows(scan: Scan, keys: list[Key]) -> Iterator[tuple[int, bool, int, WindowBucket]]:
    """The rows: the number of the series, whether it is a folded one, its start, and its counts."""
    cells, latency = _Columns(scan.array(Section.CELLS), 3), _Columns(scan.array(Section.LATENCY), 3)
    groups, at = scan.raw(Section.GROUPS), 0
    for lane, is_folded, start, n_cells, n_buckets in _rows_of(scan.array(Section.ROWS), 5):
        row = WindowBucket()
        numbers, counts, are_grouped = cells.take(n_cells)
        row.cells = dict(zip(map(keys.__getitem__, numbers), counts, strict=True))
        for number in compress(numbers, are_grouped):
            row.groups[keys[number]] = int.from_bytes(groups[at : at + _GROUP_BYTES], "little")
            at += _GROUP_BYTES
        stages, buckets, counts = latency.take(n_buckets)
        begin = 0
        for stage, name in enumerate(STAGES):  # they stand in this order
            end = begin + stages.count(stage)
            if end > begin:
                row.add_histograms({name: dict(zip(buckets[begin:end], counts[begin:end], strict=True))})
            begin = end
        yield lane, bool(is_folded), start, row


def _tables(scan: Scan, described: Described, keys: list[Key]) -> Iterator[tuple[int, int, ItemTable]]:
    """The tables of gold items: the number of the series, the hour, and the table."""
    lanes = list(_rows_of(scan.array(Section.LANES), 6))
    entries = _Columns(scan.array(Section.ITEMS), 3)
    for lane, hour, n in _rows_of(scan.array(Section.TABLES), 3):
        qids = described.qids(lanes[lane][0])
        table: Table = {}
        last, facts = -1, dict[Key, int]()
        for item, key, count in zip(*entries.take(n), strict=True):
            if item != last:
                last, facts = item, table.setdefault(qids[item], {})
            facts[keys[key]] = facts.get(keys[key], 0) + count  # two items of one id in several sets
        yield lane, hour, ItemTable(table)


def _add_streams(scan: Scan, described: Described, scorer: Scorer) -> None:
    """Add what is counted by stream: matches, answers and cohorts."""
    state, strata = scorer.state, scan.texts(Section.STRATA)
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


def _add_captured(scan: Scan, described: Described, scorer: Scorer) -> None:
    """Add what was captured, without its minutes: the report of a run is of all of them."""
    buckets = [scorer.state.captured.at(*place).past for place in described.captured]
    for place, mask, n in _rows_of(scan.array(Section.MASKS), 3):
        masks = buckets[place].masks
        masks[mask] = masks.get(mask, 0) + n
    examples = iter(scan.texts(Section.EXAMPLES))
    for bucket, (ids, n) in zip(buckets, _rows_of(scan.array(Section.CAPTURED), 2), strict=True):
        bucket.ids += ids
        for _ in range(n):
            bucket.add_example(next(examples))
