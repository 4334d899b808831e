"""A sample of whole records beside what was counted, so that single requests can be looked at where others counted.

Some are drawn, and of each gate some fail it. Those whose trace ids have the smallest hashes are kept. So the sample is
a function of the records, and it adds up: that of a whole is among those of its parts (`ragmon.scoring.minutes`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from ragmon.core.record import FAILING_ENTRY, SAMPLED_ENTRY, Record, encode_entry
from ragmon.gates.request import Failed
from ragmon.scoring.minutes import HASH_DIGITS, rank

PER_GATE: Final = 8
"""Failing requests of a pipeline and metric that are kept."""
LARGEST: Final = 64 << 10
"""Bytes of a record in a sample; a larger one is in none."""
MOST_BYTES: Final = 256 << 10
"""Bytes of all records of a sample; those with larger hashes are left out beyond it."""
_Kept = tuple[int, str, int, Record]
"""A record that is kept, after the hash of its trace id, the id, and its place among all records."""


class RecordSample:
    """Keeps records.

    Args:
        most: How many are drawn; with 0 nothing is kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._drawn: list[_Kept] = []
        self._failing: dict[tuple[str, str], list[_Kept]] = {}
        self._seen = 0

    def see(self, record: Record, failed: Sequence[Failed] = ()) -> None:
        """Keep a record if it is among those with the smallest hashes.

        Args:
            record: The record as it came; one without a trace id is never kept.
            failed: The gates that it fails.
        """
        trace_id = record.trace_id
        if not self._most or not trace_id:
            return
        self._seen += 1
        kept = (rank(trace_id[-HASH_DIGITS:]), trace_id, self._seen, record)
        _keep(self._drawn, kept, self._most)
        for failure in failed:
            for metric in failure.scores:
                _keep(self._failing.setdefault((failure.pipeline, metric), []), kept, PER_GATE)

    def take(self) -> list[Record]:
        """The records that are kept, each marked with why; a request that was drawn and fails is one that was drawn."""
        drawn, failing = self._drawn, self._failing
        self._drawn, self._failing, self._seen = [], {}, 0
        places = {place for _, _, place, _ in drawn}
        rest = {kept[:3]: kept[3] for found in failing.values() for kept in found if kept[2] not in places}
        marked = [replace(kept[3], kind=SAMPLED_ENTRY) for kept in drawn]
        return list(_small([*marked, *(replace(rest[key], kind=FAILING_ENTRY) for key in sorted(rest))]))


def _keep(found: list[_Kept], kept: _Kept, most: int) -> None:
    """Keep a record in place of the one with the largest hash, if there are too many."""
    if len(found) < most or kept[:3] < found[-1][:3]:
        insort(found, kept, key=lambda entry: entry[:3])
        del found[most:]


def _small(records: Iterable[Record]) -> Iterable[Record]:
    """The records without those that are too large, until all of them are."""
    size = 0
    for record in records:
        length = len(encode_entry(record))
        if length <= LARGEST:
            size += length
            if size > MOST_BYTES:
                return
            yield record
