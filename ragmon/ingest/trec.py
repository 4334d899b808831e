"""TREC runs: six columns `qid Q0 docid rank score tag`, one line per retrieved document, as one record per query."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ragmon.core import constants
from ragmon.core.record import Record
from ragmon.ingest.decode import BOM
from ragmon.ingest.fields import Rejected

Reject = Callable[[int, str, str], None]
"""Called with the line number, the reason and the details of a line that cannot be read."""

COLUMNS: Final = 6
_SINGLE: Final = struct.Struct("f")


def is_run(line: bytes) -> bool:
    """Whether the first line of a file looks like a TREC run: six columns, the fifth a number.

    >>> is_run(b"301 Q0 FR940202-2-00150 104 2.129133 STANDARD"), is_run(b'{"qid": "301"}')
    (True, False)
    """
    columns = line.split(None, COLUMNS)
    if len(columns) != COLUMNS:
        return False
    try:
        float(columns[4])
    except ValueError:
        return False
    return True


def records(lines: Iterable[tuple[int, bytes]], reject: Reject) -> Iterator[Record]:
    """One record per query, ranked as trec_eval ranks: by score, then by document id, both descending.

    The rank column is not used, because trec_eval does not use it either. A run has no answers, so they are unknown.
    """
    runs: dict[str, list[tuple[float, str, float]]] = {}
    for number, line in lines:
        try:
            qid, document, score = _columns(line)
        except Rejected as rejected:
            reject(number, rejected.reason, str(rejected))
        else:
            runs.setdefault(qid, []).append((_single_precision(score), document, score))
    for qid, documents in runs.items():
        documents.sort(reverse=True)
        yield Record(
            qid=qid,
            retrieved_ids=[document for _, document, _ in documents],
            scores=[score for *_, score in documents],
            partial=True,
        )


def _columns(line: bytes) -> tuple[str, str, float]:
    """Query id, document id and score of one line."""
    try:
        columns = line.removeprefix(BOM).decode().split(None, COLUMNS)
    except UnicodeDecodeError as error:
        raise Rejected(constants.INVALID_UTF8, str(error)) from None
    if len(columns) != COLUMNS:
        raise Rejected(constants.INVALID_SCHEMA, f"a line of a run has {COLUMNS} columns: qid Q0 docid rank score tag")
    try:
        score = float(columns[4])
    except ValueError:
        raise Rejected(constants.INVALID_SCHEMA, f"a score is a number, not {columns[4]!r:.80}") from None
    if not math.isfinite(score):
        raise Rejected(constants.NON_FINITE, f"a score is finite, not {columns[4]!r:.80}")
    return columns[0], columns[2], score


def _single_precision(score: float) -> float:
    """The score in single precision, as in trec_eval: scores that differ only beyond it are ties."""
    try:
        single: float = _SINGLE.unpack(_SINGLE.pack(score))[0]
    except OverflowError:
        return math.copysign(math.inf, score)
    return single
