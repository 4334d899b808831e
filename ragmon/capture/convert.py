"""A finished call becomes a record of the contract. Runs in the worker, never on the request path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ragmon.capture.calls import Call
from ragmon.capture.documents import Documents, as_id, is_listed, read_documents
from ragmon.capture.extract import answer, extract, question, text_of
from ragmon.core import constants
from ragmon.core.record import Latency, Record, Sampling
from ragmon.core.text import clean
from ragmon.ingest.spans import fill
from ragmon.ingest.spans.model import neutral


def to_record(call: Call, *, build: str | None = None) -> Record:
    """The record of a call; what it does not know, spans of the application's tracer inside it may.

    Args:
        call: What was kept of it.
        build: The application's version, unless the call said another.

    Raises:
        Exception: Whatever the decorator's callables and the result's own code raise.
    """
    id_from = call.site.id_from or call.plan.id_from
    said = _said(call)
    documents = _documents(said, id_from)
    probe = call.probe is not None
    asked = said.get("question")
    if asked is None:
        asked = question(call.site, call.args, call.kwargs)
    record = Record(
        v=constants.CONTRACT_VERSION,
        trace_id=call.trace_id,
        ts=call.ts,
        pipeline=clean(call.plan.pipeline),
        source=constants.PROBE if probe else constants.LIVE,
        qid=as_id(said.get("qid") if call.probe is None else call.probe),
        q=text_of(asked),
        retrieved_ids=documents.ids,
        candidate_ids=read_documents(said.get("candidates"), id_from).ids,
        scores=documents.scores,
        contexts=documents.texts,
        answer_json=answer(said, id_from) if call.error is None and call.ending is None else None,
        error=call.error,
        latency_ms=_latency(call),
        index_hash=as_id(said.get("index_hash")),
        build=as_id(said.get("build")) or build,
        session=as_id(said.get("session")),
        sampling=_sampling(call),
        partial=not call.detailed or call.ending is not None,
        ended=call.ending,
        exported=None if call.parent is None else call.parent.sampled,
        parent_span_id=None if call.parent is None else f"{call.parent.span_id:016x}",
        tags=_tags(said.get("tags")),
    )
    return fill(record, map(neutral, call.spans), id_from=id_from) if call.spans else record


def _said(call: Call) -> dict[str, Any]:
    """What the result says, and over it what the code inside the call said."""
    said = dict(call.fields or {})
    if "candidates" in said:
        said["candidates"] = [found for batch in said["candidates"] if is_listed(batch) for found in batch]
    if call.error is not None or call.ending is not None:
        return said
    return {**extract(_result(call), call.site), **said}


def _result(call: Call) -> Any:
    """What the call returned; of a stream, what its items make."""
    items = call.items
    if items is None:
        return call.result
    if call.site.reduce is not None:
        return call.site.reduce(items)
    if all(isinstance(item, str) for item in items):
        return "".join(items)
    if all(isinstance(item, bytes | bytearray) for item in items):
        return b"".join(items).decode("utf-8", "replace")
    return items[-1]


def _documents(said: Mapping[str, Any], id_from: tuple[str | int, ...] | None) -> Documents:
    """The documents that were retrieved: what one field does not tell of them, the other may."""
    told = read_documents(said.get("retrieved"), id_from)
    more = read_documents(said.get("documents"), id_from, strings="texts")
    if told.ids is not None and more.texts is not None and len(told.ids) != len(more.texts):
        return told
    return Documents(
        more.ids if told.ids is None else told.ids,
        more.texts if told.texts is None else told.texts,
        more.scores if told.scores is None else told.scores,
    )


def _sampling(call: Call) -> Sampling:
    """How the call came to be kept."""
    odds = call.odds
    if not odds.known:
        return Sampling(audit=False, stratum=call.stratum, p_audit=0.0, p=1.0)
    p = odds.p(call.plan.keep.get(call.stratum, 0.0))
    return Sampling(audit=odds.audit, stratum=call.stratum, p_audit=odds.p_audit, p=p)


def _tags(found: Any) -> dict[str, str] | None:
    """Tags as text; booleans are written as JSON writes them, and None is no tag."""
    if not isinstance(found, Mapping):
        return None
    return {
        clean(str(name)): clean(str(tag).lower() if isinstance(tag, bool) else str(tag))
        for name, tag in found.items()
        if tag is not None
    }


def _latency(call: Call) -> Latency:
    """Milliseconds of the call and of its stages; a stage that ran twice at once counts its union."""
    retrieve, generate = (_union(_spans(call, stage)) for stage in ("retrieve", "generate"))
    total = None if call.seconds is None else round(call.seconds * 1000, 3)
    return Latency(total=total, retrieve=retrieve, generate=generate)


def _spans(call: Call, stage: str) -> Iterator[tuple[float, float]]:
    return ((started, ended) for name, started, ended in call.stages or () if name == stage)


def _union(spans: Iterator[tuple[float, float]]) -> float | None:
    total, reached, known = 0.0, float("-inf"), False
    for started, ended in sorted(spans):
        known = True
        total += max(0.0, ended - max(started, reached))
        reached = max(reached, ended)
    return round(total * 1000, 3) if known else None
