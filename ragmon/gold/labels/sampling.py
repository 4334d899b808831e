"""Which answers are worth a label: a random sample first, then those of which least is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from heapq import nsmallest
from typing import Final, NamedTuple

from ragmon.core.constants import JUDGE_PREFIX
from ragmon.core.escaping import printable
from ragmon.core.record import Label, Line, Record, joins

CELL: Final = 32_000
"""Characters that a cell of a spreadsheet takes, and some less."""
_SALT: Final = b"ragmon label queue"
_SURE: Final = 0.25
"""A score of a half says as little as can be: p (1 - p) is a quarter."""


class LabelPriority(NamedTuple):
    """Why an answer is worth a label; the smallest comes first.

    Attributes:
        drawn: 0 for an answer that won the uniform draw over all calls: labels of those estimate all traffic.
        known: How much is known of it, in [0, 1].
        place: Chance, the same for everybody who asks: of answers that are worth as much, any is as good.
    """

    drawn: int
    known: float
    place: bytes


def queue(lines: Iterable[Line], most: int) -> list[Record]:
    """The answers most worth a label.

    Those that won the audit draw come first, in an order of chance, so that whoever stops anywhere has labelled a
    sample. Then come those of which scores that are there say least: a judge's, else groundedness, near a half.

    Args:
        lines: Records and labels, in any order; answers that are labelled, and answers to gold questions, are left out.
        most: How many to tell.
    """
    done: set[str] = set()
    found: dict[str, Record] = {}
    for line in lines:
        if isinstance(line, Label):
            done.add(line.trace_id)
        elif isinstance(line, Record) and line.trace_id and line.error is None and joins(line):
            found[line.trace_id.lower()] = line
    open_ones = ((priority(trace_id, record), record) for trace_id, record in found.items() if trace_id not in done)
    return [record for _, record in nsmallest(most, open_ones, key=lambda one: one[0])]


def priority(trace_id: str, record: Record) -> LabelPriority:
    """Why an answer is worth a label."""
    audit = record.sampling is None or record.sampling.drawn
    place = blake2b(trace_id.encode(), key=_SALT, digest_size=8).digest()
    return LabelPriority(0, 0.0, place) if audit else LabelPriority(1, _known(record.measures or {}), place)


def _known(measures: Mapping[str, float]) -> float:
    """How much scores say of an answer: nothing where there is none, all where one is 0 or 1."""
    told = [score for name, score in measures.items() if name.startswith(JUDGE_PREFIX)] or [*measures.values()]
    return min((1.0 - score * (1.0 - score) / _SURE for score in told), default=0.0)


def rows(records: Iterable[Record], link: str | None, *, text: bool = False) -> Iterator[dict[str, object]]:
    """What whoever labels is shown.

    Args:
        records: The answers.
        link: Where a trace opens, with `{trace_id}` in it.
        text: Show question and answer, as far as they were captured.
    """
    for record in records:
        row: dict[str, object] = {
            "trace_id": record.trace_id,
            "pipeline": _plain(record.pipeline),
            "answered": record.ts,
        }
        row["sample"] = "audit" if priority("", record).drawn == 0 else "informative"
        if link is not None:
            row["link"] = link.replace("{trace_id}", record.trace_id or "")
        if text:
            row["question"] = _plain(record.q)
            row["answer"] = _plain(None if record.answer_json is None else record.answer_json.claim)
        yield row


def _plain(text: str | None) -> str | None:
    """Text on one line that a spreadsheet takes for text: what begins like a formula would be one."""
    shown = text and printable(text, CELL)
    return f"'{shown}" if shown and shown.lstrip()[:1] in ("=", "+", "-", "@") else shown
