"""Conversion of a finished call to a record of the contract. Runs in the worker, never on the request path.

The documents may be plain ids, dicts, or objects of LangChain or LlamaIndex. `question` and `result` find the rest in
the call's arguments and result.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from numbers import Real
from typing import Any, Final, NamedTuple

from ragmon.capture.call import Call
from ragmon.capture.question import question
from ragmon.capture.result import CONTEXT, SOURCES, are_ids, as_id, extract, is_listed, stream_fields, text_of
from ragmon.core import capture_hints, constants
from ragmon.core.bounds import DOCUMENTS, MAX_DOCUMENTS_KEPT
from ragmon.core.citations import alike, split_citations, with_marks
from ragmon.core.log import warn_once
from ragmon.core.paths import Path, look_up, member
from ragmon.core.record import Answer, Latency, Record, Sampling
from ragmon.core.text import clean
from ragmon.ingest.spans import fill
from ragmon.ingest.spans.model import from_sdk_span

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


def read_documents(value: Any, id_from: Path | None, *, strings: str = "ids") -> CapturedDocuments:
    """The ids, texts and scores of documents.

    Args:
        value: A collection of documents; any other value counts as no documents.
        id_from: Path from a document to its id; None tries the usual fields.
        strings: What a plain string in the collection is: `ids` or `texts`.
    """
    if not is_listed(value):
        return CapturedDocuments()
    scored = [_with_score(document) for document in _first_documents(value)]
    if strings == "texts":
        scored = [({"text": document} if isinstance(document, str) else document, score) for document, score in scored]
    ids = ids_of((document for document, _ in scored), id_from)
    if capture_hints.documents.room > 0 and ids is not None:
        for (document, _), name in zip(scored, ids, strict=True):
            node = member(document, "node")
            capture_hints.documents.note(name, document, member(document if node is None else node, "metadata"))
    texts = [_text_of(document) for document, _ in scored]
    scores = [score for _, score in scored]
    return CapturedDocuments(
        ids,
        [text for text in texts if text is not None] if texts and None not in texts else None,
        [score for score in scores if score is not None] if scores and None not in scores else None,
    )


def _first_documents(documents: Collection[Any]) -> Iterable[Any]:
    """The documents up to the limit; the first time some are left out, a warning is logged."""
    if len(documents) <= MAX_DOCUMENTS_KEPT:
        return documents
    warn_once(
        f"a retrieval found more than {DOCUMENTS} documents: ranks end there, and metrics of whole lists are unassessed"
    )
    return islice(documents, MAX_DOCUMENTS_KEPT)


def ids_of(documents: Iterable[Any], id_from: Path | None) -> list[str] | None:
    """The ids of documents or citations; None, with one warning, if one of them has no id."""
    ids = [_id_of(document, id_from) for document in documents]
    if None in ids:
        warn_once("a document or citation has no id: say where it is with id_from; metrics by ids stay unassessed")
        return None
    return [name for name in ids if name is not None]


def _id_of(document: Any, id_from: Path | None) -> str | None:
    if type(document) is not dict:
        id_ = as_id(document)
        if id_ is not None or isinstance(document, str | int | float):
            return id_
    if id_from is not None:
        return as_id(look_up(document, id_from))
    node = member(document, "node")
    fields = document if node is None else node
    for name in _ID_FIELDS:
        value = as_id(member(fields, name))
        if value is not None:
            return value
    inner = [found for name in _METADATA_FIELDS if (found := member(fields, name)) is not None]
    places = [(found, name) for found in inner for name in _METADATA_ID_FIELDS]
    places += [(fields, name) for name in _OTHER_ID_FIELDS]
    return next((value for found, name in places if (value := as_id(member(found, name))) is not None), None)


def _with_score(document: Any) -> tuple[Any, float | None]:
    """A document and its score, which is a field of it or the second member of a pair."""
    if type(document) is tuple and len(document) == 2:
        return document[0], _number(document[1])
    if type(document) is not dict and isinstance(document, str | int | float):
        return document, None
    scores = (_number(member(document, name)) for name in _SCORE_FIELDS)
    return document, next((score for score in scores if score is not None), None)


def _number(value: Any) -> float | None:
    """A finite number, else None; JSON has no infinities and no NaN."""
    if value is None or isinstance(value, bool) or not isinstance(value, float | int | Real):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _text_of(document: Any) -> str | None:
    if type(document) is not dict and isinstance(document, str | int | float):
        return None
    node = member(document, "node")
    fields = document if node is None else node
    for name in _TEXT_FIELDS:
        text = member(fields, name)
        if isinstance(text, str):
            return clean(text)
    inner = (found for name in _METADATA_FIELDS if (found := member(fields, name)) is not None)
    texts = (member(found, name) for found in inner for name in _TEXT_FIELDS)
    return next((clean(text) for text in texts if isinstance(text, str)), None)


def answer(fields: Mapping[str, Any], id_from: Path | None) -> Answer:
    """The answer in the fields; without a list of citations, those written in its text are moved out of it.

    Args:
        fields: Fields of `ragmon.record`.
        id_from: Path from a citation that is an object to the document's id.
    """
    citations = fields.get("citations")
    claim = text_of(fields.get("claim"))
    if claim is not None and citations is None:
        claim, citations_in_text = split_citations(claim)
        return Answer(claim=claim, citations=citations_in_text)
    if is_listed(citations) or isinstance(citations, set | frozenset):
        return Answer(claim=claim, citations=ids_of(citations, id_from))
    return Answer(claim=claim)


def to_record(call: Call, *, build: str | None = None) -> Record:
    """The record of a call; spans of the application's tracer inside it fill its missing fields.

    Args:
        call: The kept call.
        build: The application's version, unless the call has set another.

    Raises:
        Exception: The decorator's callables or the result's own code raised it.
    """
    id_from = call.traced_function.id_from or call.plan.id_from
    fields = _fields(call)
    documents = _documents(fields, id_from)
    is_probe = call.probe is not None
    question_value = fields.get("question")
    if question_value is None:
        question_value = question(call.traced_function, call.args, call.kwargs, call.context)
    record = Record(
        v=constants.CONTRACT_VERSION,
        trace_id=call.trace_id,
        ts=call.ts,
        pipeline=clean(call.plan.pipeline),
        source=constants.PROBE if is_probe else constants.LIVE,
        qid=as_id(fields.get("qid") if call.probe is None else call.probe),
        q=text_of(question_value),
        retrieved_ids=documents.ids,
        candidate_ids=read_documents(fields.get("candidates"), id_from).ids,
        scores=documents.scores,
        contexts=documents.texts,
        answer_json=answer(fields, id_from) if call.error is None and call.ending is None else None,
        error=call.error,
        latency_ms=_latency(call),
        index_hash=as_id(fields.get("index_hash")),
        build=as_id(fields.get("build")) or build,
        session=as_id(fields.get("session")),
        model=as_id(fields.get("model")),
        user=as_id(fields.get("user")),
        sampling=_sampling(call),
        partial=not call.detailed or call.ending is not None,
        ended=call.ending,
        exported=None if call.parent is None else call.parent.sampled,
        parent_span_id=None if call.parent is None else f"{call.parent.span_id:016x}",
        tags=_tags(fields.get("tags")),
    )
    if call.spans:
        record = fill(record, map(from_sdk_span, call.spans), id_from=id_from, retrievers=call.plan.retrievers)
    _add_sources(record, fields, id_from)
    record.answer_json = with_marks(record.answer_json, record.retrieved_ids)
    return record


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


def _are_titles(sources: Collection[Any]) -> bool:
    """Whether sources are neither ids nor passages, but short texts."""
    are_short = all(isinstance(entry, str) and len(entry) <= _TITLE for entry in sources)
    return bool(sources) and are_short and not are_ids(sources)


def _cited_sources(sources: Collection[Any], retrieved: list[str] | None, id_from: Path | None) -> list[str] | None:
    """The sources as citations; None where they are written in another way than the retrieved ids, as titles are."""
    cited = ids_of(sources, id_from)
    return cited if cited is None or retrieved is None or alike(cited, retrieved) else None


def _fields(call: Call) -> dict[str, Any]:
    """The fields of the result, overridden by those of `ragmon.record` inside the call."""
    fields = dict(call.fields or {})
    if "candidates" in fields:
        fields["candidates"] = [document for batch in fields["candidates"] if is_listed(batch) for document in batch]
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
    if not isinstance(tags, Mapping):
        return None
    return {
        clean(str(name)): clean(str(tag).lower() if isinstance(tag, bool) else str(tag))
        for name, tag in tags.items()
        if tag is not None
    }


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
