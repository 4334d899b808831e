"""What a record of ragmon's lacks, other instrumentations' spans of the same request may know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from ragmon.core import semconv
from ragmon.core.record import Answer, Latency, Record
from ragmon.spans import labels
from ragmon.spans.answers import answer
from ragmon.spans.model import OWN_SCOPE, Merge, Path, Span
from ragmon.spans.questions import question
from ragmon.spans.rankings import ids_of, scores_of, texts_of
from ragmon.spans.reading import DocumentReader
from ragmon.spans.retrievals import Retrievals, Retrieved
from ragmon.spans.trace import Trace

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
        "qid": labels.qid(trace),
        "session": labels.session(trace),
        "candidate_ids": ids_of(found.candidates),
        **_documents(record, found),
    }
    if record.facts is None:
        told |= {"q": question(trace), "contexts": _contexts(record, found)}
    told = {field: value for field, value in told.items() if getattr(record, field) is None}
    return msgspec.structs.replace(
        record, **told, answer_json=_answer(record, trace), latency_ms=_latency(record.latency_ms, trace)
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


def _answer(record: Record, trace: Trace) -> Answer | None:
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
    theirs = labels.latency(trace)
    if mine is None:
        return theirs
    stages = ("total", "retrieve", "generate")
    told = {stage: getattr(theirs, stage) for stage in stages if getattr(mine, stage) is None}
    return msgspec.structs.replace(mine, **told)
