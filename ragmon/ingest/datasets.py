"""Data sets and evaluation tools in their own shapes, as rows with the usual names.

One JSON document is rows where it

* wraps a list: `{"results": [...]}`, also in an object, such as LlamaIndex' `{"examples": [...]}`;
* has a list or an object a column, as Hugging Face's `to_dict` and pandas' `to_json` write it, or a row an index;
* judges documents: `{qid: {document: score}}` of ranx and pytrec_eval, `{qid: [document, ...]}`, or LlamaIndex' queries
  and relevant documents;
* is SQuAD's: articles of paragraphs of questions.

A row of gold may be one of SQuAD, Natural Questions or TriviaQA, whose right answers are texts with aliases, a test of
promptfoo, or a judgement of one document, of which an item has several (BEIR's qrels).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ragmon.core.errors import shorten, warn_once
from ragmon.core.shapes import normalised
from ragmon.ingest.cells import CellError, as_structure, is_absent
from ragmon.ingest.tables import (
    GOLD,
    TRACE,
    TableOptions,
    as_flag,
    as_id,
    flat,
    has_reference,
    is_trace,
)

_WRAPPERS: Final = frozenset(
    (
        *("results", "data", "examples", "rows", "items", "records", "entries", "instances", "samples", "dataset"),
        *("goldens", "questions", "test_cases", "tests", "traces"),
    )
)
_DEPTH: Final = 3
_ALL: Final = (*TRACE.values(), *GOLD.values())
_NAMES: Final = frozenset(name for usual in _ALL for name in usual.strong + usual.weak)
_SPOKEN: Final = frozenset(
    name
    for usual in (*map(TRACE.__getitem__, ("question", "qid", "answer", "trace_id")), GOLD["gold_claim"])
    for name in usual.strong + usual.weak
)
"""Names of which an object has one text: a row, not a table."""


def rows_of(document: Any, *, gold: bool, depth: int = _DEPTH) -> Sequence[Mapping[str, Any]] | None:
    """The rows in one JSON document; None where it is a row itself, or nothing that is known.

    >>> rows_of({"question": ["Why?", "How?"], "answer": ["So.", "Thus."]}, gold=False)
    [{'question': 'Why?', 'answer': 'So.'}, {'question': 'How?', 'answer': 'Thus.'}]
    >>> rows_of({"q1": {"a": 1, "b": 0}}, gold=True)
    [{'qid': 'q1', 'answerable': True, 'gold_ids': ['a']}]
    """
    if not isinstance(document, dict) or not document or not depth:
        return None
    names = {normalised(str(name)): value for name, value in document.items()}
    if any(name in _SPOKEN and isinstance(value, str | int | float) for name, value in names.items()):
        return None
    if isinstance(names.get("queries"), dict) and isinstance(names.get("relevant_docs"), dict):
        relevant = names["relevant_docs"]
        return [
            {"qid": qid, "question": text, "answerable": True, "gold_ids": relevant.get(qid) or []}
            for qid, text in names["queries"].items()
        ]
    if isinstance(names.get("columns"), list) and isinstance(names.get("data"), list):  # pandas, orient="split"
        return [dict(zip(map(str, names["columns"]), row, strict=False)) for row in names["data"]]
    values = list(document.values())
    is_table = not _NAMES.isdisjoint(names)
    if is_table and all(isinstance(value, list) for value in values) and len(set(map(len, values))) == 1:
        return [dict(zip(document, row, strict=True)) for row in zip(*values, strict=True)]
    if all(isinstance(value, dict) for value in values):
        if is_table:  # pandas, orient="columns"
            return [{name: cells.get(index) for name, cells in document.items()} for index in values[0]]
        if all(_is_row(value) for value in values):  # one object a question
            return [row if str(key).isdigit() or "qid" in row else {"qid": key, **row} for key, row in document.items()]
    if not is_table and (judged := _judged(document, gold=gold)) is not None:
        return judged
    for name, value in names.items():
        if name in _WRAPPERS and isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            if "paragraphs" in value[0]:
                return list(_squad(value))
            if any(map(_is_row, value)):
                return value
    inner = (rows_of(value, gold=gold, depth=depth - 1) for name, value in names.items() if name in _WRAPPERS)
    return next((rows for rows in inner if rows is not None), None)


def _is_row(row: Mapping[str, Any]) -> bool:
    return any(normalised(name) in _NAMES for name in flat(row))


def _judged(document: Mapping[str, Any], *, gold: bool) -> list[dict[str, Any]] | None:
    rows = []
    for qid, documents in document.items():
        if isinstance(documents, dict) and all(isinstance(score, int | float) for score in documents.values()):
            ranked = sorted(documents.items(), key=lambda entry: -entry[1])
            ids: list[Any] = [name for name, score in ranked if score > 0]
            retrieved: list[Any] = [{"id": name, "score": score} for name, score in ranked]
        elif isinstance(documents, list) and all(isinstance(name, str | int) for name in documents):
            ids = retrieved = documents
        else:
            return None
        row = {"answerable": True, "gold_ids": ids} if gold else {"retrieved_ids": retrieved, "partial": True}
        rows.append({"qid": qid, **row})
    return rows


def _squad(articles: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for article in articles:
        for paragraph in article.get("paragraphs") or ():
            for entry in paragraph.get("qas") or ():
                yield {**entry, "context": paragraph.get("context")}


class JudgedDocument(NamedTuple):
    """A row that judges one document for one question, and which columns say so."""

    key: str
    document: str
    is_relevant: bool
    row: dict[str, Any]
    column: str


_QUESTIONS: Final = (*GOLD["qid"].strong, *GOLD["question"].strong)
_DOCUMENTS: Final = ("corpus_id", "doc_id", "docid", "document_id", "docno", "passage_id", "pid")
_SCORES: Final = ("score", "relevance", "rel", "label", "grade", "relevance_score")


def judgement(row: Mapping[str, Any], options: TableOptions) -> JudgedDocument | None:
    """The judgement in a row with a question, one document and a score; None for other rows.

    The item of such rows is the row of its first one, without these columns: see `JudgedDocument.row`.
    """
    mapped = {normalised(column): name for name, column in options.columns.items()}
    by_name = {normalised(str(name)): str(name) for name in row}
    documents = [name for name in by_name if name in _DOCUMENTS or mapped.get(name) == "gold_ids"]
    questions = [name for name in by_name if name in _QUESTIONS or mapped.get(name) in ("qid", "question")]
    scores = [name for name in by_name if name in _SCORES and name not in mapped]
    if len(documents) != 1 or not questions or len(scores) > 1 or (not scores and len(by_name) > 2):
        return None
    if has_reference(row) or is_trace(row):
        return None
    question, document = by_name[min(questions, key=lambda name: "id" not in name)], by_name[documents[0]]
    key, name = as_id(row[question]), row[document]
    if not key or is_absent(name) or isinstance(name, list | dict):
        return None
    score = row[by_name[scores[0]]] if scores else 1
    try:
        is_relevant = not is_absent(score) and float(score) > 0
    except (TypeError, ValueError):
        raise CellError(f"is not a score: {shorten(score)}") from None
    rest = {name: cell for name, cell in row.items() if name != document and (not scores or name != by_name[scores[0]])}
    column = options.columns.get("gold_ids") or "gold_ids"
    return JudgedDocument(key, str(as_id(name)), is_relevant, {**rest, "answerable": True}, column)


_EXPECTED: Final = re.compile(r"__expected\d*")
_ASSERTION: Final = re.compile(
    r"((?:not-)?(?:i?contains|equals|starts-with|regex|is-|javascript|python|ruby|fn|eval|grade|llm-rubric|similar|"
    r"model-graded|factuality|answer-relevance|context-|levenshtein|rouge|bleu|cost|latency|perplexity|webhook|g-eval|"
    r"select-best|classifier|moderation|guardrails|file)[a-z-]*)(?:\([^)]*\))?(?::|$)"
)
_ANY: Final = ("contains-any", "icontains-any")
_EVERY: Final = ("contains-all", "icontains-all")


_REFERENCES: Final = frozenset(GOLD["gold_claim"].strong + GOLD["gold_claim_substr"].strong)


class UnreadAssertionError(CellError):
    """A test whose assertions say nothing that a gold item holds."""


def adapted(row: Mapping[str, Any], options: TableOptions) -> Mapping[str, Any]:
    """A row of gold with the usual names, where a data set or tool has others.

    >>> adapted({"question": "Why?", "answer": ["So.", "Thus."]}, TableOptions())
    {'question': 'Why?', 'answers': ['So.', 'Thus.']}
    >>> adapted({"question": "Why?", "__expected": "is-refusal"}, TableOptions())
    {'question': 'Why?', 'answerable': False}
    """
    tests = [name for name in row if _EXPECTED.fullmatch(str(name)) and name not in options.columns.values()]
    if tests:
        rest = {name: cell for name, cell in row.items() if name not in tests}
        return {**rest, **_expected([str(row[name]).strip() for name in tests if not is_absent(row[name])])}
    if isinstance(row.get("vars"), dict) and isinstance(row.get("assert"), list):
        assertions = [entry for entry in row["assert"] if isinstance(entry, dict)]
        return {**row["vars"], **_expected([f"{entry.get('type')}:{_value(entry)}" for entry in assertions])}
    by_name = {normalised(str(name)): str(name) for name in row}
    if not options.columns and "answer" in by_name and "answers" not in by_name and _REFERENCES.isdisjoint(by_name):
        right = row[by_name["answer"]]
        written = as_structure(right) if isinstance(right, str) else right
        if isinstance(written, list) or (isinstance(written, dict) and {"aliases", "Aliases"} & written.keys()):
            row = {("answers" if name == by_name["answer"] else name): cell for name, cell in row.items()}
            by_name = {normalised(name): name for name in row}
    is_impossible = by_name.get("is_impossible")
    if is_impossible is not None and not is_absent(row[is_impossible]) and as_flag(row[is_impossible]):
        row = {name: cell for name, cell in row.items() if normalised(str(name)) != "answers"} | {"answers": []}
        by_name["answers"] = "answers"
    has_answers = not by_name.keys().isdisjoint(GOLD["answers"].strong)
    if has_answers and "id" in by_name and by_name.keys().isdisjoint(GOLD["qid"].strong):
        row = {("qid" if name == by_name["id"] else name): cell for name, cell in row.items()}
    return row


def _value(assertion: Mapping[str, Any]) -> str:
    value = assertion.get("value")
    return ",".join(map(str, value)) if isinstance(value, list) else str(value or "")


def _expected(assertions: Sequence[str]) -> dict[str, Any]:
    """What the assertions of one test say is right."""
    fields: dict[str, Any] = {}
    phrases: list[str] = []
    unread = []
    for text in assertions:
        match = _ASSERTION.match(text)
        kind, value = (match[1], text[match.end() :].strip()) if match else ("equals", text)
        values = [part.strip().strip('"') for part in value.split(",")] if kind in (*_ANY, *_EVERY) else [value]
        if kind == "is-refusal":
            fields["answerable"] = False
        elif kind == "not-is-refusal":
            fields["answerable"] = True
        elif kind == "equals" and value:
            fields["gold_claim"] = value
        elif kind in ("contains", "icontains", *_ANY) or (kind in _EVERY and len(values) == 1):
            phrases += values
        else:
            unread.append(text)
            warn_once(f"assertions `{kind}` of promptfoo name no phrase and are not read")
    if phrases:
        fields["gold_claim_substr"] = phrases
    if unread and not fields:
        read = "contains, icontains, contains-any, equals and is-refusal are read"
        raise UnreadAssertionError(f"its `__expected` is {shorten(unread[0])}, which names no phrase: {read}")
    return fields
