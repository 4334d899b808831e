"""Records from the shapes other programs write: seeds 000 and 002, the WFGY live record, older logs.

One line of a trace log becomes a record, a totals line, or the reason it is neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ragmon.core import constants
from ragmon.core.bounds import LARGEST, SHORT, bounded, fits
from ragmon.core.errors import shorten
from ragmon.core.record import Answer, Latency, Line, Record, Sampling, TextFacts, Totals, parse_label
from ragmon.core.text import split_citations
from ragmon.ingest.fields import (
    OUT_OF_RANGE,
    Rejected,
    as_flag,
    as_id,
    as_ids,
    as_number,
    as_object,
    as_tags,
    as_text,
    as_time,
    as_type,
    as_verdicts,
    wrong_type,
)


class AnyShape(msgspec.Struct, gc=False, kw_only=True):
    """Every key that some shape knows, holding whatever was found there; what no shape knows is passed over."""

    v: Any = None
    kind: Any = None
    trace_id: Any = None
    ts: Any = None
    pipeline: Any = None
    source: Any = None
    probe: Any = None
    qid: Any = None
    q_id: Any = None
    q: Any = None
    question: Any = None
    retrieved_ids: Any = None
    candidate_ids: Any = None
    chunks: Any = None
    retrieval: Any = None
    scores: Any = None
    contexts: Any = None
    answer_json: Any = None
    answer: Any = None
    citations: Any = None
    error: Any = None
    ok: Any = None
    latency_ms: Any = None
    retrieval_ms: Any = None
    generation_ms: Any = None
    perf: Any = None
    index_hash: Any = None
    build: Any = None
    context: Any = None
    session: Any = None
    sampling: Any = None
    facts: Any = None
    partial: Any = None
    exported: Any = None
    tags: Any = None
    verdicts: Any = None
    measures: Any = None


def adapt(found: AnyShape) -> Record:
    """A record from a line of any known shape.

    Raises:
        Rejected: A field has a type or value no shape allows, or nothing in it is a trace's.
    """
    retrieval, context = as_object(found.retrieval), as_object(found.context)
    documents = found.chunks if found.chunks is not None else retrieval.get("topk")
    ids = found.retrieved_ids if found.retrieved_ids is not None else documents
    question = found.q if found.q is not None else found.question
    answer, told = _answer(found)
    record = Record(
        v=_version(found.v),
        trace_id=as_text(found.trace_id, "trace_id"),
        ts=as_time(found.ts, "ts"),
        pipeline=as_text(found.pipeline, "pipeline"),
        source=_source(found),
        qid=as_id(found.qid, "qid") if found.qid is not None else as_id(found.q_id, "q_id"),
        q=as_text(question, "the question"),
        retrieved_ids=as_ids(ids, "retrieved_ids"),
        candidate_ids=as_ids(found.candidate_ids, "candidate_ids"),
        scores=_scores(found.scores, documents),
        contexts=_contexts(found.contexts, documents),
        answer_json=answer,
        error=_error(found),
        latency_ms=_latency(found),
        index_hash=as_text(_either(found.index_hash, retrieval.get("index_hash")), "index_hash"),
        build=as_text(_either(found.build, context.get("build")), "build"),
        session=as_text(found.session, "session"),
        sampling=as_type(found.sampling, Sampling, "sampling"),
        facts=_either(as_type(found.facts, TextFacts, "facts"), told),
        partial=as_flag(found.partial, "partial") or False,
        exported=as_flag(found.exported, "exported"),
        tags=_tags(found.tags, context),
        verdicts=as_verdicts(found.verdicts),
        measures=as_type(found.measures, dict[str, float], "measures"),
    )
    if record.v is None and _says_nothing(record):
        raise Rejected(constants.INVALID_SCHEMA, "it has no question, no document, no answer and no error")
    return record


def _says_nothing(record: Record) -> bool:
    """Whether a line of another program is about something else altogether."""
    said = (record.qid, record.q, record.retrieved_ids, record.contexts, record.answer_json, record.error)
    return all(field is None for field in said) and record.verdicts is None


def _version(found: Any) -> int | None:
    if found is None or isinstance(found, str):  # other programs call their own version so, and write it as text
        return None
    if isinstance(found, bool) or found != constants.CONTRACT_VERSION:
        raise wrong_type(
            "v", f"{constants.CONTRACT_VERSION}, the version of the trace contract this ragmon reads", found
        )
    return constants.CONTRACT_VERSION


def _source(found: AnyShape) -> str | None:
    probe = as_flag(found.probe, "probe")
    if found.source is None and probe is not None:
        return constants.PROBE if probe else constants.LIVE
    if found.source is not None and found.source not in constants.SOURCES:
        raise wrong_type("source", f"one of {', '.join(constants.SOURCES)}", found.source)
    return as_text(found.source, "source")


def _answer(found: AnyShape) -> tuple[Answer | None, TextFacts | None]:
    """The answer, and what is known about it where its text was not logged."""
    if isinstance(found.answer_json, dict):
        claim = as_text(found.answer_json.get("claim"), "claim")
        return Answer(claim=claim, citations=_citations(found.answer_json.get("citations"))), None
    if found.answer_json is not None:
        raise wrong_type("answer_json", "an object", found.answer_json)
    if isinstance(found.answer, dict):
        return _live_answer(found.answer)
    text = as_text(found.answer, "answer")
    if text is None:
        return None, None
    claim, written = split_citations(text)
    listed = _citations(found.citations)
    return Answer(claim=claim, citations=listed if listed is not None else written), None


def _live_answer(answer: Mapping[str, Any]) -> tuple[Answer, TextFacts | None]:
    """The WFGY live record's answer has citations with offsets, and no text unless somebody added it."""
    citations = _citations(answer.get("citations"))
    if "claim" in answer:
        return Answer(claim=as_text(answer["claim"], "claim"), citations=citations), None
    # What cites was shipped; without citations nobody can tell whether it was an answer or a refusal.
    told = TextFacts(answered=True, refused=False) if citations else TextFacts()
    return Answer(citations=citations), told


def _citations(found: Any) -> list[str] | None:
    """A citation list; a string is not one, and neither is anything but a list."""
    return as_ids(found, "citations") if isinstance(found, list) else None


def _error(found: AnyShape) -> str | None:
    if found.error:
        return found.error if isinstance(found.error, str) else shorten(found.error)
    return "not ok" if found.ok is False else None


def _latency(found: AnyShape) -> Latency | None:
    perf = as_object(found.perf)
    total = found.latency_ms
    retrieve = _either(found.retrieval_ms, perf.get("t_retrieve_ms"))
    generate = _either(found.generation_ms, perf.get("t_reason_ms"))
    if isinstance(total, dict):
        retrieve, generate = _either(total.get("retrieve"), retrieve), _either(total.get("generate"), generate)
        total = total.get("total")
    if total is None and retrieve is None and generate is None:
        return None
    latency = Latency(
        as_number(total, "latency_ms"),
        as_number(retrieve, "the latency of retrieval"),
        as_number(generate, "the latency of generation"),
    )
    if latency.total is None and latency.retrieve is not None and latency.generate is not None and fits(latency):
        latency.total = latency.retrieve + latency.generate
    return latency


def _either(found: Any, other: Any) -> Any:
    """The first, or the other where there is none."""
    return found if found is not None else other


def _of_each(documents: Any, name: str) -> list[Any] | None:
    """One member of every document; None unless all of them have it."""
    if not isinstance(documents, list) or not documents:
        return None
    each = [as_object(entry).get(name) for entry in documents]
    return None if None in each else each


def _scores(found: Any, documents: Any) -> list[float] | None:
    scores: list[float] | None = as_type(_either(found, _of_each(documents, "score")), list[float], "scores")
    return scores


def _contexts(found: Any, documents: Any) -> list[str] | None:
    contexts: list[str] | None = as_type(_either(found, _of_each(documents, "text")), list[str], "contexts")
    return contexts


def _tags(found: Any, context: Mapping[str, Any]) -> dict[str, str] | None:
    tags = as_tags(found)
    for name in ("client", "region"):
        if isinstance(context.get(name), str):
            tags.setdefault(name, context[name])
    return tags or None


_record = msgspec.json.Decoder(Record).decode
_totals = msgspec.json.Decoder(Totals).decode
_object = msgspec.json.Decoder(dict[str, Any]).decode
_any_shape = msgspec.json.Decoder(AnyShape).decode

BOM: Final = b"\xef\xbb\xbf"
_SOURCES: Final = frozenset(constants.SOURCES)
_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_PLACE: Final = re.compile(r"\(byte (\d+)\)")
_LONE_SURROGATE: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")


Unknown = Callable[[str, str], None]
"""Told a field of a record that is unknown, or cut, and the reason."""


def decode(line: bytes, unknown: Unknown | None = None) -> Line:
    """Decode one line of any trace shape ragmon reads.

    The contract's own lines take one pass in C. Whatever does not fit it, or leaves out what other shapes call by
    another name, takes a second look.

    Args:
        line: One line; the newline does not matter.
        unknown: Told what of the record is out of range, and so is unknown.

    Raises:
        Rejected: With the reason.
    """
    try:
        record = _record(line)
    except msgspec.ValidationError:
        return _second_look(line, unknown)
    except _ERRORS as error:
        if line.startswith(BOM) and not line.startswith(BOM, len(BOM)):
            return decode(line[len(BOM) :], unknown)
        raise _rejection(line, error) from None
    if record.v is None:
        if (
            record.qid is None
            or record.q is None
            or record.retrieved_ids is None
            or record.answer_json is None
            or record.probe is not None
        ):
            return _second_look(line, unknown)
    elif record.v != constants.CONTRACT_VERSION:
        return _second_look(line, unknown)
    if record.kind is not None or (record.source is not None and record.source not in _SOURCES):
        return _second_look(line, unknown)
    latency = record.latency_ms
    return record if len(line) <= SHORT and (latency is None or fits(latency)) else _bounded(record, unknown)


def _bounded(record: Record, unknown: Unknown | None) -> Record:
    """A record without what is out of range."""
    kept, odd = bounded(record)
    if unknown is not None:
        for field, reason in odd.items():
            unknown(field, reason)
    return kept


def _second_look(line: bytes, unknown: Unknown | None) -> Line:
    try:
        found = _any_shape(line)
        if found.kind is None:
            return _bounded(adapt(found), unknown)
        if found.kind == "totals":
            return _counted(_totals(line))
        if found.kind == constants.LABEL:
            return parse_label(_object(line))
    except _ERRORS as error:
        raise _rejection(line, error) from None
    except ValueError as error:
        raise Rejected(constants.INVALID_SCHEMA, str(error)) from None
    raise Rejected(constants.INVALID_SCHEMA, f"a line's kind is totals or label, or it has none: {found.kind!r:.80}")


def _counted(line: Totals) -> Totals:
    """A totals line whose counts are such.

    Raises:
        Rejected: One of them would spoil every sum it is in.
    """
    for name, n in (("calls", line.calls), ("kept", line.kept), *line.dropped.items(), *line.latency_ms.items()):
        if n > LARGEST:
            raise wrong_type(f"the count of {name}", f"at most {LARGEST}", n)
    return line


def _rejection(line: bytes, error: Exception) -> Rejected:
    said = str(error)
    if isinstance(error, UnicodeDecodeError):
        return Rejected(constants.INVALID_UTF8, said)
    if isinstance(error, RecursionError):
        return Rejected(constants.DEPTH, "it is nested too deeply")
    if OUT_OF_RANGE in said or _not_json_number(line, said):
        return Rejected(constants.NON_FINITE, f"a number is not finite or has too many digits ({said})")
    if isinstance(error, msgspec.ValidationError):
        return Rejected(constants.INVALID_SCHEMA, said)
    if "surrogate" in said or _LONE_SURROGATE.search(line):
        return Rejected(constants.INVALID_UTF8, "half a surrogate pair is no character")
    return Rejected(constants.MALFORMED_JSON, said)


def _not_json_number(line: bytes, said: str) -> bool:
    """Whether decoding stopped at one of the numbers Python writes and JSON does not have."""
    place = _PLACE.search(said)
    return place is not None and line.startswith((b"NaN", b"Infinity"), int(place[1]))
