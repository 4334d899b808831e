"""The spans of one request become a record; what a record lacks is filled from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ragmon.core import constants, semconv
from ragmon.core.bounds import bounded
from ragmon.core.record import Answer, Record
from ragmon.spans import labels
from ragmon.spans.answers import answer
from ragmon.spans.documents import Found
from ragmon.spans.evaluations import judged
from ragmon.spans.filling import fill
from ragmon.spans.marks import cited
from ragmon.spans.model import ATTRIBUTES_DROPPED, CONTENT_NOT_CAPTURED, INCOMPLETE, NOT_RAG, Mapped, Merge, Path, Span
from ragmon.spans.questions import question
from ragmon.spans.rankings import ids_of, scores_of, texts_of
from ragmon.spans.reading import DocumentReader
from ragmon.spans.retrievals import Retrievals
from ragmon.spans.roles import Role
from ragmon.spans.trace import Trace
from ragmon.spans.values import too_long

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
    failed, ids = labels.error(trace), ids_of(found.final)
    record = Record(
        v=constants.CONTRACT_VERSION,
        trace_id=trace.spans[0].trace_id,
        ts=labels.ended(trace),
        pipeline=pipeline or labels.workflow(trace) or service or constants.DEFAULT_PIPELINE,
        source=constants.LIVE,
        qid=labels.qid(trace),
        q=question(trace),
        retrieved_ids=ids,
        candidate_ids=ids_of(found.candidates),
        scores=scores_of(found.final),
        contexts=texts_of(found.final),
        answer_json=_answer(trace, ids) if failed is None else None,
        error=failed,
        latency_ms=labels.latency(trace),
        build=build,
        session=labels.session(trace),
        exported=(trace.root or trace.spans[0]).sampled,
        measures=judged(trace.spans),
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


def _answer(trace: Trace, ids: Sequence[str] | None) -> Answer | None:
    """What was answered; where it has no list of citations, the marks in its text are one."""
    said = answer(trace)
    if said is None or said.claim is None or said.citations is not None or not ids:
        return said
    return Answer(claim=said.claim, citations=cited(said.claim, ids))


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
        record.ts = labels.moment(end_ns)
    return record


def _missing(record: Record, trace: Trace, found: Found) -> dict[str, str]:
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
