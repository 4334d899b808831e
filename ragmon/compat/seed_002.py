"""seed-002: the Markdown report of WFGY Example 08 (`score.md.py`).

The published Python file never calls its `main`, so as it stands it prints nothing; this is what `main` prints. (The
Node version prints the same, except that a rate exactly half-way between two tenths of a percent is rounded up there
and to the even digit here.) Predictions join gold on the exact question text; every prediction counts, a gold question
without one does not; no gate is enforced and compliance is not computed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ragmon.compat.base import Entry, Options, array_items, published_rule, read_document, read_lines

REFUSAL: Final = "not in context"

_CITATIONS = re.compile(r"citations\s*:\s*\[", re.IGNORECASE)
_BETWEEN_IDS = re.compile(r"[,\s]+")
# Maximal runs: a gold sentence of letters, digits, hyphens and spaces must occur completely.
_PHRASE = re.compile(r"[a-z0-9][a-z0-9\-\s]{4,}")


class _Row(NamedTuple):
    qid: Any
    answerable: Any
    refused: bool
    hit: bool
    contained: bool


def score(traces: Sequence[str], gold: Sequence[str], options: Options) -> str:
    """The Markdown report."""
    del options
    questions: dict[Any, Entry] = {}
    for path in gold:
        for item in array_items(read_document(path)):
            hint = "one JSON array of objects, each with its question as q"
            with published_rule(item, "it files the gold item under its question", hint):
                questions[item.value["q"]] = item
    rows = [row for trace in read_lines(traces) if (row := _row(trace, questions)) is not None]
    report = "\n".join([*_summary(rows), *_table(rows)]) + "\n"
    with published_rule(Entry(report, "the report"), "it prints UTF-8", "take unpaired surrogates out of the qids"):
        report.encode("utf-8")
    return report


def _row(trace: Entry, questions: dict[Any, Entry]) -> _Row | None:
    hint = "one object a line: q a string, answer a string, citations a list if any"
    with published_rule(trace, "it reads a prediction", hint):
        record = trace.value
        item = questions.get(record.get("q") or record.get("question") or "")
        if item is None:
            return None
        answer = record.get("answer") or ""
        cited = set(_citations(answer, record.get("citations")))
        refused = answer.strip().lower() == REFUSAL
    hint = "qid, answerable, gold_ids a list of strings, gold_claim a string if any"
    with published_rule(item, "it reads a gold item", hint):
        hit = bool(cited & set(item.value.get("gold_ids", ())))
        text, gold_claim = answer.lower(), item.value.get("gold_claim", "") or ""
        phrases = (match[0].strip() for match in _PHRASE.finditer(gold_claim.lower()))
        contained = any(len(phrase) >= 5 and phrase in text for phrase in phrases)
        return _Row(item.value["qid"], item.value["answerable"], refused, hit, contained)


def _citations(answer: str, field: Any) -> list[str]:
    # Of the JSON field if it is a list, else of the first `citations: [...]` in the text.
    if isinstance(field, list):
        return [str(cited).strip() for cited in field]
    match = _CITATIONS.search(answer)
    # If no bracket closes the first list, none closes a later one, so one search is enough.
    end = answer.find("]", match.end()) if match else -1
    return [cited for cited in _BETWEEN_IDS.split(answer[match.end() : end]) if cited] if match and end >= 0 else []


def _summary(rows: list[_Row]) -> list[str]:
    positive = [row for row in rows if row.answerable]
    negative = [row for row in rows if not row.answerable]
    answered = [row for row in rows if not row.refused]
    precision = _percent([bool(row.answerable and row.hit) for row in answered])
    over = _percent([row.refused for row in positive])
    under = _percent([not row.refused for row in negative])
    citation_hits = _percent([not row.refused and row.hit for row in positive])
    containment = _percent([not row.refused and row.contained for row in positive])
    return [
        "# RAG Quality Report",
        "",
        # A gold item whose qid is empty, 0 or null counts in every rate and in the table, but not here.
        f"- Questions scored: **{sum(bool(row.qid) for row in rows)}**",
        f"- Answer precision (over answered): **{precision}**",
        f"- Over-refusal (answerable but refused): **{over}**",
        f"- Under-refusal / Hallucination (unanswerable but answered): **{under}**",
        f"- Citation hit rate (answerable): **{citation_hits}**",
        f"- Claim containment (answerable): **{containment}**",
    ]


def _percent(scores: list[bool]) -> str:
    share = sum(scores) / len(scores) if scores else 0.0
    return f"{100 * share:.1f}%"


def _table(rows: list[_Row]) -> list[str]:
    head = ["", "## Per-question", "", "| qid | answered | hit | refusal | label |"]
    lines = [
        f"| {row.qid} | {_bool(not row.refused)} | {_bool(row.hit)} | {_bool(row.refused)} | **{_label(row)}** |"
        for row in rows
    ]
    return [*head, "|-----|----------|-----|---------|-------|", *lines]


def _bool(flag: bool) -> str:
    return "true" if flag else "false"


def _label(row: _Row) -> str:
    if not row.answerable:
        return "REFUSAL_OK" if row.refused else "HALLUCINATION"
    if row.refused:
        return "OVER_REFUSAL"
    return "OK" if row.hit else "ANS_NO_HIT"
