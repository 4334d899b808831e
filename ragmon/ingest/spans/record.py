"""What a record of ragmon's lacks, other instrumentations' spans of the same request may know.

Which spans of a trace belong to which request, where a trace holds several.

The spans of one request become a record; what a record lacks is filled from them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ragmon.core import constants, semconv
from ragmon.core.bounds import bounded
from ragmon.core.record import Answer, Latency, Record
from ragmon.ingest.spans import fields
from ragmon.ingest.spans.documents import DocumentReader, SpanDocuments
from ragmon.ingest.spans.fields import judge_scores
from ragmon.ingest.spans.messages import answer, numeric_citations, question
from ragmon.ingest.spans.model import (
    ATTRIBUTES_DROPPED,
    CONTENT_NOT_CAPTURED,
    INCOMPLETE,
    NOT_RAG,
    OWN_SCOPE,
    Mapped,
    Merge,
    Path,
    Role,
    Span,
    Trace,
)
from ragmon.ingest.spans.retrieval import Retrievals, Retrieved, ids_of, scores_of, texts_of
from ragmon.ingest.spans.values import too_long

_CUT: Final = "cut"
"""How a call ended that streamed more than was held of it: others may have held the whole answer."""


def fill(
    record: Record,
    spans: Iterable[Span],
    *,
    id_from: Path | None = None,
    content_hash: bool = False,
    merge: Merge = "concat",
) -> Record:
    """A record with what it lacks, as far as other instrumentations' spans of the same request know it.

    What the record says is never overridden. Text that was kept back on purpose, as the record's `facts` show, stays
    back; so fill a record before it is redacted.

    Args:
        record: What ragmon knows of the request.
        spans: The request's spans; ragmon's own among them tell nothing new.
        id_from: As for `to_record`.
        content_hash: As for `to_record`.
        merge: As for `to_record`.
    """
    trace = Trace(span for span in spans if span.scope != OWN_SCOPE and semconv.RAGMON_RECORD not in span.attributes)
    if not trace.is_rag:
        return record
    found = Retrievals(trace, DocumentReader(id_from, content_hash)).read(merge)
    told: dict[str, Any] = {
        "qid": fields.qid(trace),
        "session": fields.session(trace),
        "candidate_ids": ids_of(found.candidates),
        **_documents(record, found),
    }
    if record.facts is None:
        told |= {"q": question(trace), "contexts": _contexts(record, found)}
    told = {field: value for field, value in told.items() if getattr(record, field) is None}
    return msgspec.structs.replace(
        record, **told, answer_json=_merged_answer(record, trace), latency_ms=_latency(record.latency_ms, trace)
    )


def _documents(record: Record, found: Retrieved) -> dict[str, Any]:
    """Ids and scores, where they cannot contradict what the record knows of the documents."""
    ids = ids_of(found.final)
    if record.retrieved_ids is None:
        known = next((len(held) for held in (record.contexts, record.scores) if held is not None), None)
        fits = ids is not None and known in (None, len(ids))
    else:
        fits = ids == record.retrieved_ids
    return {"retrieved_ids": ids, "scores": scores_of(found.final)} if fits else {}


def _contexts(record: Record, found: Retrieved) -> list[str] | None:
    fits = record.retrieved_ids is None or record.retrieved_ids == ids_of(found.final)
    return texts_of(found.final) if fits else None


def _merged_answer(record: Record, trace: Trace) -> Answer | None:
    """The answer, each part by whoever knows it; citations of another claim are none of this one."""
    mine = record.answer_json
    if record.facts is not None or record.error is not None or record.ended not in (None, _CUT):
        return mine
    theirs = answer(trace)
    if theirs is None or mine is None:
        return mine or theirs
    if mine.claim is None:
        return Answer(theirs.claim, theirs.citations if mine.citations is None else mine.citations)
    same = mine.citations is None and mine.claim == theirs.claim
    return Answer(mine.claim, theirs.citations) if same else mine


def _latency(mine: Latency | None, trace: Trace) -> Latency:
    theirs = fields.latency(trace)
    if mine is None:
        return theirs
    stages = ("total", "retrieve", "generate")
    told = {stage: getattr(theirs, stage) for stage in stages if getattr(mine, stage) is None}
    return msgspec.structs.replace(mine, **told)


SLACK: Final = 5_000_000
"""Nanoseconds a span may reach beyond its request: ragmon reads other clocks than the SDK."""


def per_request(spans: Iterable[Span]) -> list[Trace]:
    """The requests in a trace: one for each root of ragmon's, else one for each workflow that is one by itself.

    Turns of a session may share a trace, or a batch of questions; their documents and answers are not to be mixed.

    Args:
        spans: All spans of one trace.

    Returns:
        With several roots of ragmon's: each root, what lies in it by its parents, and what happened in its time and in
        no other root's; what fits several requests belongs to none. Without one, and where every outermost span is a
        workflow that retrieved and answered, or failed: each of them with what lies in it. Else the trace as a whole.
    """
    trace = Trace(spans)
    roots = [span for span in trace.spans if semconv.RAGMON_RECORD in span.attributes]
    if roots:
        return [trace] if len(roots) == 1 else _around(roots, trace)
    if len(trace.outermost) > 1:
        turns = [Trace([flow, *trace.inside(flow)]) for flow in trace.outermost]
        if all(map(_is_request, trace.outermost, turns)):
            return turns
    return [trace]


def _around(roots: list[Span], trace: Trace) -> list[Trace]:
    requests = {root.span_id: [root] for root in roots}
    times = _Times(roots)
    for span in trace.spans:
        if span.span_id not in requests:
            owner = next((span_id for span_id in trace.above(span) if span_id in requests), None)
            owner = times.only(span) if owner is None else owner
            if owner is not None:
                requests[owner].append(span)
    return [Trace(held) for held in requests.values()]


class _Times:
    """When requests ran: which of many one span fell into is found without looking at all of them.

    Args:
        roots: Their roots, in the order they started.
    """

    def __init__(self, roots: list[Span]) -> None:
        self._starts = [root.start_ns for root in roots]
        self._last: list[tuple[Span, Span | None]] = []
        """Of the roots up to each, the one that ended last, and the next before it."""
        for root in roots:
            last, second = self._last[-1] if self._last else (None, None)
            if last is None or root.end_ns > last.end_ns:
                last, second = root, last
            elif second is None or root.end_ns > second.end_ns:
                second = root
            self._last.append((last, second))

    def only(self, span: Span) -> str | None:
        """The root in whose time a span happened; None where it is none's, or several's."""
        started = bisect_right(self._starts, span.start_ns + SLACK)
        if not started:
            return None
        last, second = self._last[started - 1]
        ended = span.end_ns - SLACK
        return last.span_id if last.end_ns >= ended and (second is None or second.end_ns < ended) else None


def _is_request(flow: Span, turn: Trace) -> bool:
    """Whether a workflow is a request by itself: parts of one retrieve, rewrite, or put together what others found."""
    if not turn.role(flow) & Role.WORKFLOW:
        return False
    answered = turn.having(Role.GENERATION) or answer(turn) is not None
    return flow.failed or bool(turn.steps and answered)


_decode = msgspec.json.Decoder(Record).decode


def to_record(
    spans: Iterable[Span] | Trace,
    *,
    id_from: Path | None = None,
    content_hash: bool = False,
    merge: Merge = "concat",
    pipeline: str | None = None,
    service: str | None = None,
    build: str | None = None,
) -> Mapped:
    """The record of one request.

    A root span of ragmon's is the whole record; the other spans fill what it lacks. Without one the request is read
    off the spans other instrumentations left: OpenTelemetry's GenAI conventions, OpenInference, OpenLLMetry, TruLens.

    Args:
        spans: All of the request's spans, in any order, or as `per_request` gives them.
        id_from: Where a document's id is, `("metadata", "chunk_id")`; None tries its own id, then the metadata's id,
            chunk_id and doc_id.
        content_hash: Call documents without an id by the first 16 hex digits of their text's SHA-256.
        merge: What several independent retrievals make.
        pipeline: The pipeline's name; None takes the workflow's, then the service's.
        service: The service's name (`service.name`).
        build: The application's version (`service.version`).

    Example:
        >>> from ragmon.core.semconv import DOCUMENTS, OPERATION, QUERY_TEXT
        >>> held = {OPERATION: "retrieval", QUERY_TEXT: "Is it?", DOCUMENTS: '[{"id": "d1"}, {"id": "d2"}]'}
        >>> mapped = to_record([Span("0" * 31 + "1", "0" * 15 + "1", None, "retrieval", 1, 2, held)])
        >>> mapped.record.q, mapped.record.retrieved_ids, dict(mapped.missing)
        ('Is it?', ['d1', 'd2'], {'answer_json': 'no_answer'})
    """
    trace = spans if isinstance(spans, Trace) else Trace(spans)
    own = [span for span in trace.spans if semconv.RAGMON_RECORD in span.attributes]
    if own:
        record = own_record(own[0].attributes[semconv.RAGMON_RECORD], own[0].trace_id, own[0].end_ns)
        if isinstance(record, str):
            return Mapped(None, record)
        filled = fill(record, trace.spans, id_from=id_from, content_hash=content_hash, merge=merge)
        return Mapped(*_bounded(filled))
    if not trace.is_rag:
        return Mapped(None, NOT_RAG)
    found = Retrievals(trace, DocumentReader(id_from, content_hash)).read(merge)
    failed, ids = fields.error(trace), ids_of(found.final)
    record = Record(
        v=constants.CONTRACT_VERSION,
        trace_id=trace.spans[0].trace_id,
        ts=fields.end_time(trace),
        pipeline=pipeline or fields.workflow(trace) or service or constants.DEFAULT_PIPELINE,
        source=constants.LIVE,
        qid=fields.qid(trace),
        q=question(trace),
        retrieved_ids=ids,
        candidate_ids=ids_of(found.candidates),
        scores=scores_of(found.final),
        contexts=texts_of(found.final),
        answer_json=_cited_answer(trace, ids) if failed is None else None,
        error=failed,
        latency_ms=fields.latency(trace),
        build=build,
        session=fields.session(trace),
        exported=(trace.root or trace.spans[0]).sampled,
        measures=judge_scores(trace.spans),
    )
    # What nobody recorded is unknown; an answer that was empty is recorded as one.
    record.partial = record.answer_json is None and record.error is None
    kept, reason, odd = _bounded(record)
    return Mapped(kept, reason, {**_missing(record, trace, found.final), **odd})


def _bounded(record: Record) -> tuple[Record, str, Mapping[str, str]]:
    """A record without what is out of range, and what that is, as they are told."""
    kept, odd = bounded(record)
    return kept, "", odd


def incomplete(mapped: Mapped) -> Mapped:
    """A request of which spans are missing: its documents are unknown, and what was said is not known to be all."""
    if mapped.record is None:
        return mapped
    documents = dict.fromkeys(("retrieved_ids", "candidate_ids", "scores", "contexts"))
    record = msgspec.structs.replace(mapped.record, **documents, partial=True)
    return mapped._replace(record=record, missing={**mapped.missing, "retrieved_ids": INCOMPLETE})


def _cited_answer(trace: Trace, ids: Sequence[str] | None) -> Answer | None:
    """What was answered; where it has no list of citations, the marks in its text are one."""
    said = answer(trace)
    if said is None or said.claim is None or said.citations is not None or not ids:
        return said
    return Answer(claim=said.claim, citations=numeric_citations(said.claim, ids))


def own_record(line: object, trace_id: str, end_ns: int) -> Record | str:
    """The record on a root span of ragmon's, or why it cannot be read.

    Args:
        line: What the span carries as its record.
        trace_id: The span's trace, 32 hex digits.
        end_ns: When the span ended, nanoseconds since the epoch.
    """
    try:
        record = _decode(line) if isinstance(line, str) else None
    except msgspec.ValidationError:
        return constants.INVALID_SCHEMA
    except RecursionError:
        return constants.DEPTH
    except ValueError:  # msgspec's own errors, and text without a UTF-8 form
        return constants.MALFORMED_JSON
    if record is None or record.v != constants.CONTRACT_VERSION or record.kind is not None:
        return constants.INVALID_SCHEMA
    if record.source is not None and record.source not in constants.SOURCES:
        return constants.INVALID_SCHEMA
    if record.trace_id is None:
        record.trace_id = trace_id
    if record.ts is None:
        record.ts = fields.event_time(end_ns)
    return record


def _missing(record: Record, trace: Trace, found: SpanDocuments) -> dict[str, str]:
    """Why a record's fields are unknown."""
    reasons = {}
    if record.q is None:
        reasons["q"] = _hidden(trace)
    if record.retrieved_ids is None and found.reason:
        reasons["retrieved_ids"] = found.reason
    if record.answer_json is None and record.error is None:
        answered = trace.having(Role.GENERATION | Role.WORKFLOW)
        reasons["answer_json"] = _hidden(trace) if answered else constants.NO_ANSWER
    return reasons


def _hidden(trace: Trace) -> str:
    """Why what was said in a request is unknown."""
    if any(span.dropped for span in trace.tops):
        return ATTRIBUTES_DROPPED
    told = (value for span in trace.spans for _, value in span.attributes.items())
    return constants.OVERSIZE if any(map(too_long, told)) else CONTENT_NOT_CAPTURED
