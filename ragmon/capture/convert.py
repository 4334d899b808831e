"""Conversion of a finished call to a record of the contract. Runs in the worker, never on the request path.

The documents may be plain ids, dicts, or objects of LangChain or LlamaIndex. `question` and `result` find the rest in
the call's arguments and result.
"""

from __future__ import annotations

import math
from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import chain, islice
from math import inf
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

from ragmon.capture.call import Call
from ragmon.capture.layouts import is_a, is_str
from ragmon.capture.question import question
from ragmon.capture.result import CONTEXT, LABEL_FIELDS, SOURCES, are_ids, as_id, extract, stream_fields, text_of
from ragmon.capture.stored import attempt, entries, first, held, held_at, number, plain_text, storage, stored
from ragmon.core import capture_hints, constants
from ragmon.core.citations import alike, split_citations, with_marks
from ragmon.core.errors import warn_once
from ragmon.core.record import DOCUMENTS, MAX_DOCUMENTS_KEPT, Answer, Latency, Record, Sampling
from ragmon.core.text import Path, clean
from ragmon.ingest.spans.mapper import fill
from ragmon.ingest.spans.span import from_sdk_span

_ID_FIELDS: Final = ("id", "node_id")
_METADATA_FIELDS: Final = ("metadata", "meta", "payload", "_source")
"""Where a document keeps its fields: LangChain and Pinecone, Haystack, Qdrant, Elasticsearch."""
_METADATA_ID_FIELDS: Final = ("id", "chunk_id", "doc_id")
_OTHER_ID_FIELDS: Final = ("_id", "chunk_id", "passage_id", "doc_id", "document_id")
"""Where documents of an application's own classes have their ids, if nowhere else."""
_TEXT_FIELDS: Final = ("text", "page_content", "content", "chunk", "passage", "snippet")
_SCORE_FIELDS: Final = ("score", "_score", "similarity")
_TITLE: Final = 200
"""Characters; a longer text among `sources` is a passage."""


class CapturedDocuments(NamedTuple):
    """Ids, texts and scores of documents, in rank order; each is None unless every document has it."""

    ids: list[str] | None = None
    texts: list[str] | None = None
    scores: list[float] | None = None


class _Document(NamedTuple):
    """A document while it is read.

    Attributes:
        value: The document.
        fields: The fields of it, or of the `node` in it; None where it is an id itself.
        inner: The fields of its metadata.
        score: Its score.
    """

    value: Any
    fields: dict[str, Any] | None
    inner: list[dict[str, Any]]
    score: float | None


def _opened(value: Any, strings: str = "ids") -> _Document:
    """A document, or one in a pair with its score."""
    value, score = value if type(value) is tuple and len(value) == 2 else (value, None)
    if is_a(value, int, float, UUID) or (is_str(value) and strings == "ids"):
        return _Document(value, None, [], _finite(score))
    outer = {"text": value} if is_str(value) else held(value)
    scores = (_finite(first(outer, (name,))) for name in _SCORE_FIELDS) if score is None else (_finite(score),)
    node = first(outer, ("node",))
    fields = outer if node is None else held(node)
    inner = [held(found) for name in _METADATA_FIELDS if (found := first(fields, (name,))) is not None]
    return _Document(value, fields, inner, next((found for found in scores if found is not None), None))


def read_documents(value: Any, id_from: Path | None, *, strings: str = "ids") -> CapturedDocuments:
    """The ids, texts and scores of documents.

    Args:
        value: A collection of documents; any other value counts as no documents.
        id_from: Path from a document to its id; None tries the usual fields.
        strings: What a plain string in the collection is: `ids` or `texts`.
    """
    listed = entries(value)
    if listed is None:
        return CapturedDocuments()
    documents = attempt("documents", lambda: [_opened(entry, strings) for entry in _first(listed)], steps=inf)
    if documents is None:
        return CapturedDocuments()
    ids = attempt("ids", _ids, documents, id_from, steps=inf)
    if capture_hints.documents.room > 0 and ids is not None:
        for name, document in zip(ids, documents, strict=True):
            capture_hints.documents.note(name, *map(_short, (document.value, stored(document.fields, "metadata"))))
    texts = attempt("contexts", lambda: [_text_of(document) for document in documents], steps=inf) or []
    scores = [document.score for document in documents]
    return CapturedDocuments(
        ids,
        [passage for passage in texts if passage is not None] if texts and None not in texts else None,
        [score for score in scores if score is not None] if scores and None not in scores else None,
    )


def _first(documents: Sequence[Any]) -> Sequence[Any]:
    """The documents up to the limit; the first time some are left out, a warning is logged."""
    if len(documents) > MAX_DOCUMENTS_KEPT:
        warn_once(
            f"a retrieval found more than {DOCUMENTS} documents: ranks end there, and metrics of whole lists are "
            "unassessed"
        )
    return documents[:MAX_DOCUMENTS_KEPT]


def _ids(documents: Iterable[_Document], id_from: Path | None) -> list[str] | None:
    """The ids of documents or citations; None, with one warning, if one of them has no id."""
    ids = [_id_of(document, id_from) for document in documents]
    if None in ids:
        warn_once("a document or citation has no id: say where it is with id_from; metrics by ids stay unassessed")
        return None
    return [name for name in ids if name is not None]


def _id_of(document: _Document, id_from: Path | None) -> str | None:
    own = document.fields
    if own is None:
        return as_id(document.value)
    if id_from is not None:
        return as_id(held_at(document.value, id_from))
    places = ((own, _ID_FIELDS), *((fields, _METADATA_ID_FIELDS) for fields in document.inner), (own, _OTHER_ID_FIELDS))
    found = (as_id(dict.get(fields, name)) for fields, names in places for name in names)
    return next((id_ for id_ in found if id_ is not None), None)


def _short(value: Any) -> dict[str, Any] | None:
    """The short fields of a dictionary among which another id may be."""
    if not is_a(value, dict):
        return None
    few = islice(dict.items(value), capture_hints.KEYS)
    return {name: field for name, field in few if type(name) is str and type(field) in (str, int)}


def _finite(value: Any) -> float | None:
    """A finite number, else None; JSON has no infinities and no NaN."""
    found = number(value)
    return None if found is None or not math.isfinite(found) else float(found)


def _text_of(document: _Document) -> str | None:
    views = () if document.fields is None else (document.fields, *document.inner)
    found = (first(fields, (name,)) for fields in views for name in _TEXT_FIELDS)
    return next((plain_text(passage) for passage in found if is_str(passage)), None)


def answer(fields: Mapping[str, Any], id_from: Path | None) -> Answer:
    """The answer in the fields; without a list of citations, those written in its text are moved out of it.

    Args:
        fields: Fields of `ragmon.record`.
        id_from: Path from a citation that is an object to the document's id.
    """
    citations = fields.get("citations")
    claim = attempt("claim", text_of, fields.get("claim"))
    if claim is not None and citations is None:
        claim, citations_in_text = split_citations(claim)
        return Answer(claim=claim, citations=citations_in_text)
    return Answer(claim=claim, citations=attempt("citations", _citations, citations, id_from, steps=inf))


def _citations(citations: Any, id_from: Path | None) -> list[str] | None:
    kind = next((kind for kind in (set, frozenset) if is_a(citations, kind)), None)
    listed = entries(citations) if kind is None else list(islice(kind.__iter__(citations), MAX_DOCUMENTS_KEPT))
    return None if listed is None else _ids(map(_opened, listed[:MAX_DOCUMENTS_KEPT]), id_from)


def to_record(call: Call, *, build: str | None = None) -> Record:
    """The record of a call; spans of the application's tracer inside it fill its missing fields.

    Args:
        call: The kept call.
        build: The application's version, unless the call has set another.
    """
    id_from = call.traced_function.id_from or call.plan.id_from
    fields = _fields(call)
    documents = _documents(fields, id_from)
    is_probe = call.probe is not None
    labels: dict[str, Any] = {name: attempt(name, as_id, fields.get(name)) for name in LABEL_FIELDS}
    labels["build"] = labels["build"] or build
    if call.probe is not None:
        labels["qid"] = as_id(call.probe)
    record = Record(
        v=constants.CONTRACT_VERSION,
        trace_id=call.trace_id,
        ts=call.ts,
        pipeline=clean(call.plan.pipeline),
        source=constants.PROBE if is_probe else constants.LIVE,
        q=attempt("question", _question, call, fields.get("question")),
        retrieved_ids=documents.ids,
        candidate_ids=read_documents(fields.get("candidates"), id_from).ids,
        scores=documents.scores,
        contexts=documents.texts,
        answer_json=answer(fields, id_from) if call.error is None and call.ending is None else None,
        error=call.error,
        latency_ms=_latency(call),
        sampling=_sampling(call),
        partial=not call.detailed or call.ending is not None,
        ended=call.ending,
        exported=None if call.parent is None else call.parent.sampled,
        parent_span_id=None if call.parent is None else f"{call.parent.span_id:016x}",
        tags=attempt("tags", _tags, fields.get("tags")),
        **labels,
    )
    if call.spans:
        spans = map(from_sdk_span, call.spans)
        filled = attempt("spans", lambda: fill(record, spans, id_from=id_from, retrievers=call.plan.retrievers))
        record = filled or record
    attempt("sources", _add_sources, record, fields, id_from, steps=inf)
    record.answer_json = with_marks(record.answer_json, record.retrieved_ids)
    return record


def _question(call: Call, said: Any) -> str | None:
    """The question that the call recorded, else the one among its arguments."""
    found = question(call.traced_function, call.args, call.kwargs, call.context) if said is None else said
    return text_of(found)


def _add_sources(record: Record, fields: Mapping[str, Any], id_from: Path | None) -> None:
    """Add the result's `sources`: the retrieved documents; or the citations, where these are known by other means."""
    sources, context = fields.get(SOURCES), fields.get(CONTEXT)
    if sources is not None and record.retrieved_ids is None and record.contexts is None:
        if not _are_titles(sources):
            found = read_documents(sources, id_from, strings="ids" if are_ids(sources) else "texts")
            record.retrieved_ids, record.contexts, record.scores = found
    elif sources is not None and record.answer_json is not None and record.answer_json.citations is None:
        record.answer_json.citations = _cited_sources(sources, record.retrieved_ids, id_from)
    is_alone = record.retrieved_ids is None or len(record.retrieved_ids) == 1
    if record.contexts is None and context and is_alone:
        record.contexts = [clean(context)]


def _are_titles(sources: Any) -> bool:
    """Whether sources are neither ids nor passages, but short texts."""
    found = (entries(sources) or ())[:MAX_DOCUMENTS_KEPT]
    are_short = all(is_str(entry) and str.__len__(entry) <= _TITLE for entry in found)
    return bool(found) and are_short and not are_ids(found)


def _cited_sources(sources: Any, retrieved: list[str] | None, id_from: Path | None) -> list[str] | None:
    """The sources as citations; None where they are written in another way than the retrieved ids, as titles are."""
    cited = _citations(sources, id_from)
    return cited if cited is None or retrieved is None or alike(cited, retrieved) else None


def _fields(call: Call) -> dict[str, Any]:
    """The fields of the result, overridden by those of `ragmon.record` inside the call."""
    fields = dict(call.fields or {})
    if "candidates" in fields:
        batches = [entries(batch) or () for batch in fields["candidates"]]
        fields["candidates"] = list(islice(chain.from_iterable(batches), MAX_DOCUMENTS_KEPT))
    if call.error is not None or call.ending is not None:
        return fields
    site = call.traced_function
    return {**(extract(call.result, site) if call.items is None else stream_fields(call.items, site)), **fields}


def _documents(fields: Mapping[str, Any], id_from: tuple[str | int, ...] | None) -> CapturedDocuments:
    """The retrieved documents: parts missing in `retrieved` are taken from `documents`."""
    retrieved = read_documents(fields.get("retrieved"), id_from)
    documents = read_documents(fields.get("documents"), id_from, strings="texts")
    if retrieved.ids is not None and documents.texts is not None and len(retrieved.ids) != len(documents.texts):
        return retrieved
    return CapturedDocuments(
        documents.ids if retrieved.ids is None else retrieved.ids,
        documents.texts if retrieved.texts is None else retrieved.texts,
        documents.scores if retrieved.scores is None else retrieved.scores,
    )


def _sampling(call: Call) -> Sampling:
    """The sampling block of a call's record."""
    odds = call.decision
    if not odds.known:
        return Sampling(audit=False, stratum=call.stratum, p_audit=0.0, p=1.0)
    p = odds.p(call.plan.outcome_rates.get(call.stratum, 0.0))
    return Sampling(audit=odds.audit, stratum=call.stratum, p_audit=odds.p_audit, p=p)


def _tags(tags: Any) -> dict[str, str] | None:
    """Tags as text; booleans as in JSON, and None is no tag."""
    if not is_a(tags, dict, UserDict, MappingProxyType):
        return None
    texts = ((_tag(name), _tag(tag)) for name, tag in list(dict.items(storage(tags))))
    return {name: tag for name, tag in texts if name is not None and tag is not None}


def _tag(value: Any) -> str | None:
    if type(value) in (bool, date, datetime, Decimal):
        return str(value).lower() if type(value) is bool else str(value)
    found = number(value)
    return as_id(value) if found is None else str(found)


def _latency(call: Call) -> Latency:
    """Milliseconds of the call and its stages; overlapping runs of a stage count once."""
    retrieve, generate = (_union(_intervals(call, stage)) for stage in ("retrieve", "generate"))
    total = None if call.seconds is None else round(call.seconds * 1000, 3)
    return Latency(total=total, retrieve=retrieve, generate=generate)


def _intervals(call: Call, stage: str) -> Iterator[tuple[float, float]]:
    return ((started, ended) for name, started, ended in call.stages or () if name == stage)


def _union(intervals: Iterator[tuple[float, float]]) -> float | None:
    total, last_end, is_known = 0.0, float("-inf"), False
    for started, ended in sorted(intervals):
        is_known = True
        total += max(0.0, ended - max(started, last_end))
        last_end = max(last_end, ended)
    return round(total * 1000, 3) if is_known else None
