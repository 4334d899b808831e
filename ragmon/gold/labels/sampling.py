"""The labelling queue: a random sample of answers first, then the answers about which least is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from heapq import nsmallest
from typing import Final, NamedTuple

from ragmon.core.constants import JUDGE_PREFIX
from ragmon.core.errors import printable
from ragmon.core.record import FAILING_ENTRY, Label, Line, Record, accepts_labels

CELL: Final = 32_000
"""Characters of a spreadsheet cell; a little below the usual limit."""
_SALT: Final = b"ragmon label queue"
_MAX_VARIANCE: Final = 0.25
"""The largest p (1 - p), at a score of a half: that score gives the least information."""


class LabelPriority(NamedTuple):
    """The priority of an answer in the queue; the smallest comes first.

    Attributes:
        drawn: 0 for an answer that won the uniform draw over all calls: labels of these estimate all traffic.
        certainty: How certain its scores are, in [0, 1].
        place: A hash of the trace id: a random order among equals, the same on every run.
    """

    drawn: int
    certainty: float
    place: bytes


def queue(lines: Iterable[Line], most: int) -> list[Record]:
    """The answers most worth a label.

    Those that won the audit draw come first, in random order, so that the labels are a random sample wherever the rater
    stops. Then come those whose scores are least certain: the score of a judge, else groundedness, near a half.

    Args:
        lines: Records and labels, in any order; labelled answers and answers to gold questions are left out.
        most: The most answers to return.
    """
    done: set[str] = set()
    answers: dict[str, Record] = {}
    for line in lines:
        if isinstance(line, Label):
            done.add(line.trace_id)
        elif isinstance(line, Record) and line.trace_id and line.error is None and accepts_labels(line):
            answers[line.trace_id.lower()] = line
    unlabelled = ((priority(trace_id, record), record) for trace_id, record in answers.items() if trace_id not in done)
    return [record for _, record in nsmallest(most, unlabelled, key=lambda entry: entry[0])]


def priority(trace_id: str, record: Record) -> LabelPriority:
    """The priority of an answer in the queue."""
    audit = (record.sampling is None or record.sampling.drawn) and record.kind != FAILING_ENTRY
    order = blake2b(trace_id.encode(), key=_SALT, digest_size=8).digest()
    return LabelPriority(0, 0.0, order) if audit else LabelPriority(1, _certainty(record.measures or {}), order)


def _certainty(measures: Mapping[str, float]) -> float:
    """How certain the least certain score is: 0 for a half or without a score, 1 for a score of 0 or 1."""
    scores = [score for name, score in measures.items() if name.startswith(JUDGE_PREFIX)] or [*measures.values()]
    return min((1.0 - score * (1.0 - score) / _MAX_VARIANCE for score in scores), default=0.0)


def rows(records: Iterable[Record], link: str | None, *, text: bool = False) -> Iterator[dict[str, object]]:
    """The rows of the queue, as shown to the rater.

    Args:
        records: The answers.
        link: The URL of a trace, with `{trace_id}` in it.
        text: Include question and answer, where they were captured.
    """
    for record in records:
        row: dict[str, object] = {
            "trace_id": record.trace_id,
            "pipeline": _cell(record.pipeline),
            "answered": record.ts,
        }
        row["sample"] = "audit" if priority("", record).drawn == 0 else "informative"
        if link is not None:
            row["link"] = link.replace("{trace_id}", record.trace_id or "")
        if text:
            row["question"] = _cell(record.q)
            row["answer"] = _cell(None if record.answer_json is None else record.answer_json.claim)
        yield row


def _cell(text: str | None) -> str | None:
    """Text on one line that a spreadsheet does not run as a formula."""
    shown = text and printable(text, CELL)
    return f"'{shown}" if shown and shown.lstrip()[:1] in ("=", "+", "-", "@") else shown
