"""Records from the shapes other programs write: seeds 000 and 002, the WFGY live record, older logs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from ragmon import names
from ragmon.contract import Answer, Latency, Record, Sampling, TextFacts
from ragmon.errors import shorten
from ragmon.text import split_citations

_YES = {"yes": True, "no": False, "true": True, "false": False, "1": True, "0": False}


class ShapeError(ValueError):
    """A field holds what no shape allows; the message names field and value."""


def adapt(value: Any) -> Record:
    """A record from plain JSON data of any known shape.

    Args:
        value: What the line decoded to.

    Raises:
        ShapeError: It is no object, or a field has a type no shape allows.
    """
    if not isinstance(value, dict):
        raise ShapeError(f"a record is a JSON object, not {shorten(value)}")
    retrieval = _mapping(value, "retrieval")
    context = _mapping(value, "context")
    documents = value.get("chunks") if "chunks" in value else retrieval.get("topk")
    ids = value.get("retrieved_ids")
    answer, told = _answer(value)
    return Record(
        v=value.get("v") if isinstance(value.get("v"), int) else None,
        trace_id=_text(value, "trace_id"),
        ts=_time(value.get("ts")),
        pipeline=_text(value, "pipeline"),
        source=_source(value),
        qid=_id(value.get("qid") or value.get("q_id"), "qid"),
        q=_text(value, "q") or _text(value, "question"),
        retrieved_ids=_ids(ids if ids is not None else documents, "retrieved_ids"),
        candidate_ids=_ids(value.get("candidate_ids"), "candidate_ids"),
        scores=_scores(value.get("scores"), documents),
        contexts=_contexts(value.get("contexts"), documents),
        answer_json=answer,
        error=_error(value),
        latency_ms=_latency(value),
        index_hash=_text(value, "index_hash") or _text(retrieval, "index_hash"),
        build=_text(value, "build") or _text(context, "build"),
        session=_text(value, "session"),
        sampling=_typed(value.get("sampling"), Sampling, "sampling"),
        facts=_typed(value.get("facts"), TextFacts, "facts") or told,
        partial=bool(value.get("partial", False)),
        exported=value.get("exported") if isinstance(value.get("exported"), bool) else None,
        tags=_tags(value, context),
        verdicts=_verdicts(value.get("verdicts")),
        measures=_typed(value.get("measures"), dict[str, float], "measures"),
    )


def _mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _text(value: Mapping[str, Any], name: str) -> str | None:
    found = value.get(name)
    if found is None or isinstance(found, str):
        return found
    if isinstance(found, bool | dict | list):
        raise ShapeError(f"{name} is text, not {shorten(found)}")
    return str(found)


def _id(found: Any, name: str) -> str | None:
    if found is None or isinstance(found, str):
        return found
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    raise ShapeError(f"{name} is a string or an integer, not {shorten(found)}")


def _ids(found: Any, name: str) -> list[str] | None:
    if found is None:
        return None
    if not isinstance(found, list):
        raise ShapeError(f"{name} is a list of ids, not {shorten(found)}")
    named = (_id(entry.get("id") if isinstance(entry, dict) else entry, name) for entry in found)
    ids = [entry for entry in named if entry is not None]
    if len(ids) != len(found):
        raise ShapeError(f"{name} holds an entry without an id: {shorten(found)}")
    return ids


def _number(found: Any, name: str) -> float | None:
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise ShapeError(f"{name} is a number, not {shorten(found)}")
    return float(found)


def _time(found: Any) -> float | None:
    if isinstance(found, str):
        try:
            return datetime.fromisoformat(found).timestamp()
        except ValueError:
            raise ShapeError(f"ts is seconds since the epoch or ISO 8601, not {shorten(found)}") from None
    return _number(found, "ts")


def _source(value: Mapping[str, Any]) -> str | None:
    source = _text(value, "source")
    if source is not None and source not in names.SOURCES:
        raise ShapeError(f"source is one of {', '.join(names.SOURCES)}, not {shorten(source)}")
    if source is None and isinstance(value.get("probe"), bool):
        return names.PROBE if value["probe"] else names.LIVE
    return source


def _answer(value: Mapping[str, Any]) -> tuple[Answer | None, TextFacts | None]:
    """The answer, and what is known about it where its text was not logged."""
    found = value.get("answer_json")
    if isinstance(found, dict):
        return Answer(claim=_text(found, "claim"), citations=_citations(found.get("citations"))), None
    if found is not None:
        raise ShapeError(f"answer_json is an object, not {shorten(found)}")
    answer = value.get("answer")
    if isinstance(answer, dict):  # the WFGY live record: citations with offsets, no text
        citations = _citations(answer.get("citations"))
        claim = _text(answer, "claim")
        told = TextFacts(answered=True, refused=False) if claim is None and citations else None
        return Answer(claim=claim, citations=citations), told
    text = _text(value, "answer")
    if text is None:
        return None, None
    claim, written = split_citations(text)
    field = _citations(value.get("citations"))
    return Answer(claim=claim, citations=field if field is not None else written), None


def _citations(found: Any) -> list[str] | None:
    """A citation list; a string is not one, and neither is anything but a list."""
    return _ids(found, "citations") if isinstance(found, list) else None


def _error(value: Mapping[str, Any]) -> str | None:
    error = value.get("error")
    if error:
        return error if isinstance(error, str) else shorten(error)
    return "not ok" if value.get("ok") is False else None


def _latency(value: Mapping[str, Any]) -> Latency | None:
    found = value.get("latency_ms")
    perf = _mapping(value, "perf")
    stages = found if isinstance(found, dict) else {}
    retrieve = _first(stages.get("retrieve"), value.get("retrieval_ms"), perf.get("t_retrieve_ms"))
    generate = _first(stages.get("generate"), value.get("generation_ms"), perf.get("t_reason_ms"))
    total = _number(stages.get("total") if isinstance(found, dict) else found, "latency_ms")
    if total is None and retrieve is not None and generate is not None:
        total = retrieve + generate
    if total is None and retrieve is None and generate is None:
        return None
    return Latency(total=total, retrieve=retrieve, generate=generate)


def _first(*found: Any) -> float | None:
    return next((_number(one, "latency_ms") for one in found if one is not None), None)


def _scores(found: Any, documents: Any) -> list[float] | None:
    if found is None and isinstance(documents, list):
        found = [entry.get("score") for entry in documents if isinstance(entry, dict)]
        if not found or None in found:
            return None
    return _typed(found, list[float], "scores")


def _contexts(found: Any, documents: Any) -> list[str] | None:
    if found is None and isinstance(documents, list) and documents:
        found = [entry.get("text") for entry in documents if isinstance(entry, dict)]
        if None in found or len(found) != len(documents):
            return None
    return _typed(found, list[str], "contexts")


def _tags(value: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, str] | None:
    tags: dict[str, str] = _typed(value.get("tags"), dict[str, str], "tags") or {}
    for name in ("client", "region"):
        if isinstance(context.get(name), str):
            tags.setdefault(name, context[name])
    return tags or None


def _verdicts(found: Any) -> list[bool] | None:
    if found is None:
        return None
    if not isinstance(found, list):
        raise ShapeError(f"verdicts is a list, not {shorten(found)}")
    return list(_relevance(found))


def _relevance(entries: Iterable[Any]) -> Iterable[bool]:
    for entry in entries:
        verdict = entry.get("verdict") if isinstance(entry, dict) else entry
        known = _YES.get(str(verdict).strip().lower())
        if known is None:
            raise ShapeError(f"a verdict is yes or no, not {shorten(verdict)}")
        yield known


def _typed(found: Any, kind: Any, name: str) -> Any:
    if found is None:
        return None
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise ShapeError(f"{name}: {error}") from None
