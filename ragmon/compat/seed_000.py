"""seed-000: the reference scorer of the WFGY eval page (`score_eval.py`, 2025-08-13).

It is reproduced as the code behaves, not as the text of the page defines it: a gold item without a trace counts as an
answer, an absent `answerable` counts as unanswerable but never as an under-refusal, empty denominators give 1.0 or 0.0,
gates are compared unrounded and printed as the strings that were given, and the exit code does not depend on them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ragmon.compat.base import Entry, Options, published_rule, read_lines

REFUSAL: Final = "not in context"
DEFAULT_K: Final = 5
DEFAULT_GATES: Final = "precision=0.80,chr=0.75,under=0.05,over=0.10"
SHORTEST_MATCH: Final = 5

_ID_LISTS = "give ids as a list of strings"


@dataclass(slots=True)
class _Counts:
    shipped: int = 0
    refused: int = 0
    answerable: int = 0
    unanswerable: int = 0
    correct: int = 0
    cited: int = 0
    under: int = 0
    over: int = 0
    recalled: int = 0
    recallable: int = 0


@dataclass(frozen=True, slots=True)
class _Answer:
    at: Entry
    claim: str
    citations: Any
    retrieved: Any


def score(traces: Sequence[str], gold: Sequence[str], options: Options) -> str:
    """The JSON report, with the final newline of `print`."""
    k = DEFAULT_K if options.k is None else options.k
    items: dict[Any, Entry] = {}
    for item in read_lines(gold):
        with published_rule(item, "it files the gold item under its qid", "one object a line, with a qid"):
            items[item.value["qid"]] = item
    answers: dict[Any, Entry] = {}
    for trace in read_lines(traces):
        with published_rule(trace, "it files the trace under its qid", "one object a line, its qid a string"):
            # A line whose id is falsy (0, "") is dropped silently.
            if qid := trace.value.get("qid") or trace.value.get("q_id"):
                answers[qid] = trace
    counts = _Counts()
    for qid, item in items.items():
        _count(counts, item, _answer(answers.get(qid, Entry({}, item.path, item.line))), k)
    return _report(counts, k, DEFAULT_GATES if options.gates is None else options.gates)


def _answer(trace: Entry) -> _Answer:
    hint = 'answer_json is {"claim": text, "citations": [ids]} or null'
    with published_rule(trace, "it reads answer_json as an object and its claim as text", hint):
        body = trace.value.get("answer_json") or {}
        claim = (body.get("claim") or "").strip()
        return _Answer(trace, claim, body.get("citations") or [], trace.value.get("retrieved_ids") or [])


def _count(counts: _Counts, item: Entry, answer: _Answer, k: int) -> None:
    label = item.value.get("answerable")
    # Python's equality, as in the script: 1 equals true and 0 false, while null and "false" equal neither.
    is_true, is_false = bool(label == True), bool(label == False)  # noqa: E712
    counts.answerable += bool(label)
    counts.unanswerable += not label
    if answer.claim.lower() == REFUSAL:
        counts.refused += 1
        counts.over += is_true
    else:
        contained = _contained(item, answer.claim)
        hit = _citation_hit(item, answer)
        counts.shipped += 1
        if is_false:
            counts.under += 1
        else:
            counts.cited += hit
            counts.correct += contained and hit
    if is_true:
        counts.recallable += 1
        with published_rule(answer.at, "it makes a set of the first k retrieved_ids", _ID_LISTS):
            top = set(answer.retrieved[:k])
        with published_rule(item, "it makes a set of gold_citations", _ID_LISTS):
            counts.recalled += set(item.value.get("gold_citations") or ()) <= top


def _contained(item: Entry, claim: str) -> bool:
    phrases = item.value.get("gold_claim_substr")
    text = claim.lower()
    with published_rule(item, "it lowers every gold_claim_substr", "gold_claim_substr is a list of strings"):
        if any(len(phrase := raw.lower()) >= SHORTEST_MATCH and phrase in text for raw in phrases or ()):
            return True
    # Only an empty list counts as contained; an absent one and null do not.
    return isinstance(phrases, list) and not phrases


def _citation_hit(item: Entry, answer: _Answer) -> bool:
    if not isinstance(answer.citations, list):
        return False
    with published_rule(answer.at, "it makes sets of citations and retrieved_ids", _ID_LISTS):
        cited = set(answer.citations)
        if not cited <= set(answer.retrieved):
            return False
    gold_ids = item.value.get("gold_citations")
    if not gold_ids:
        return not cited
    with published_rule(item, "it makes a set of gold_citations", _ID_LISTS):
        return bool(cited & set(gold_ids))


def _report(counts: _Counts, k: int, gates_text: str) -> str:
    precision = counts.correct / counts.shipped if counts.shipped else 1.0
    chr_rate = counts.cited / counts.shipped if counts.shipped else 1.0
    under = counts.under / counts.unanswerable if counts.unanswerable else 0.0
    over = counts.over / counts.answerable if counts.answerable else 0.0
    recall = counts.recalled / counts.recallable if counts.recallable else 0.0
    rule, hint = "it splits each gate at its one equals sign", f"--gates {DEFAULT_GATES}"
    with published_rule(Entry(gates_text, "--gates"), rule, hint):
        gates = dict(pair.split("=") for pair in gates_text.split(","))
    report = {
        "answered": counts.shipped,
        "refused": counts.refused,
        "answerable": counts.answerable,
        "unanswerable": counts.unanswerable,
        "precision": round(precision, 4),
        "chr": round(chr_rate, 4),
        "under_refusal": round(under, 4),
        "over_refusal": round(over, 4),
        "recall@k": round(recall, 4),
        "k": k,
        "gates": gates,
        # Lazily, in the published order: gates after the first failing gate are not read, so they may be missing.
        "pass": precision >= _bound(gates, "precision")
        and chr_rate >= _bound(gates, "chr")
        and under <= _bound(gates, "under")
        and over <= _bound(gates, "over"),
    }
    return json.dumps(report, indent=2) + "\n"


def _bound(gates: dict[str, str], name: str) -> float:
    hint = f"--gates {DEFAULT_GATES}: all four names, no spaces"
    with published_rule(Entry(gates, "--gates"), f"it reads the gate {name!r} as a number", hint):
        return float(gates[name])
