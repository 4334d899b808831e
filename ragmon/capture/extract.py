"""A finished call becomes a record of the contract. Runs in the worker, never on the request path."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragmon import names
from ragmon.capture.calls import Call, Site
from ragmon.contract import Answer, Latency, Record, Sampling
from ragmon.text import split_citations

_QUESTION = ("question", "query", "q")
_CLAIM = ("claim", "answer", "response", "result", "output", "text", "content")
_RETRIEVED = ("retrieved", "retrieved_ids", "contexts", "documents", "source_documents", "source_nodes", "context")
_IN_METADATA = ("id", "chunk_id", "doc_id")
_TEXT = ("text", "page_content", "content")


def to_record(call: Call, *, pipeline: str, build: str | None = None) -> Record:
    """The record of a call.

    Args:
        call: What was kept of it.
        pipeline: The name of pipelines that have none of their own.
        build: The application's version, unless the call said another.
    """
    site, said = call.site, dict(call.fields)
    if call.error is None:
        said = {**extract(call.result, site), **said}
    ids, contexts, scores = documents(said.get("retrieved"), site.id_from)
    candidates, _, _ = documents(said.get("candidates"), site.id_from)
    probe = call.probe is not None
    tags = said.get("tags")
    return Record(
        v=names.CONTRACT_VERSION,
        trace_id=call.trace_id,
        ts=call.ended,
        pipeline=site.name or pipeline,
        source=names.PROBE if probe else names.LIVE,
        qid=_text(said.get("qid", call.probe)),
        q=_text(said.get("question", question(site, call.args, call.kwargs))),
        retrieved_ids=ids,
        candidate_ids=candidates,
        scores=scores,
        contexts=contexts,
        answer_json=_answer(said) if call.error is None else None,
        error=None if call.error is None else type(call.error).__name__,
        latency_ms=_latency(call),
        index_hash=_text(said.get("index_hash")),
        build=_text(said.get("build", build)),
        session=_text(said.get("session")),
        sampling=Sampling(audit=True, stratum=call.stratum, p_audit=call.p, p=call.p),
        tags={str(key): str(value) for key, value in tags.items()} if isinstance(tags, Mapping) else None,
    )


def question(site: Site, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The question a call was asked, by the decorator's `question=` or by the usual names."""
    if callable(site.question):
        return site.question(*args, **kwargs)
    bound = _signature(site.function).bind_partial(*args, **kwargs)
    if site.question is not None:
        name, _, path = site.question.partition(".")
        return look_up(bound.arguments.get(name), path)
    for name in _QUESTION:
        if name in bound.arguments:
            return bound.arguments[name]
    return next((value for value in bound.arguments.values() if isinstance(value, str)), None)


@functools.cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def look_up(value: Any, path: str) -> Any:
    """Follow a dotted path, `messages[-1].content`, through mappings, sequences and attributes; None where it ends."""
    for part in path.replace("[", ".[").split("."):
        if not part or value is None:
            continue
        if part.startswith("["):
            index = int(part[1:-1])
            held = isinstance(value, Sequence) and -len(value) <= index < len(value)
            value = value[index] if held else None
        else:
            value = _get(value, part)
    return value


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def extract(result: Any, site: Site) -> dict[str, Any]:
    """What a result says about claim, citations and documents.

    Args:
        result: Anything a pipeline returns: text, mappings, dataclasses, pydantic models, framework responses.
        site: The decorator's `extract=`.
    """
    if callable(site.extract):
        return dict(site.extract(result))
    if site.extract is not None:
        return {field: look_up(result, path) for field, path in site.extract.items()}
    if result is None:
        return {}
    if isinstance(result, str):
        return {"claim": result}
    inner = _get(result, "answer_json")
    said = {"claim": _first(inner if inner is not None else result, _CLAIM)}
    said["citations"] = _get(inner if inner is not None else result, "citations")
    said["retrieved"] = _first(result, _RETRIEVED)
    for name in ("candidates", "index_hash", "build", "session", "qid"):
        said[name] = _get(result, name)
    return {field: value for field, value in said.items() if value is not None}


def _first(value: Any, wanted: Sequence[str]) -> Any:
    if not isinstance(value, Mapping) and not dataclasses.is_dataclass(value) and not hasattr(value, "__dict__"):
        return None
    return next((found for name in wanted if (found := _get(value, name)) is not None and not callable(found)), None)


def _answer(said: Mapping[str, Any]) -> Answer:
    claim, citations = said.get("claim"), said.get("citations")
    listed = [_text(_document_id(entry, None)) for entry in citations] if isinstance(citations, list | tuple) else None
    if listed is not None and None in listed:
        listed = None
    text = None if claim is None else str(claim)
    if text is not None and citations is None:
        text, listed_in_text = split_citations(text)
        return Answer(claim=text, citations=listed_in_text)
    return Answer(claim=text, citations=[name for name in listed if name is not None] if listed is not None else None)


def documents(found: Any, id_from: str | None) -> tuple[list[str] | None, list[str] | None, list[float] | None]:
    """Ids, texts and scores of retrieved documents, each None where not every document has one."""
    if not isinstance(found, list | tuple):
        return None, None, None
    ids = [_document_id(document, id_from) for document in found]
    texts = [_document_text(document) for document in found]
    scores = [score for document in found if isinstance(score := _get(document, "score"), int | float)]
    return (
        [str(name) for name in ids] if None not in ids else None,
        [text for text in texts if text is not None] if found and None not in texts else None,
        [float(score) for score in scores] if found and len(scores) == len(found) else None,
    )


def _document_id(document: Any, id_from: str | None) -> Any:
    if isinstance(document, bool | float):
        return None
    if document is None or isinstance(document, str | int):
        return document
    if id_from is not None:
        return look_up(document, id_from)
    node = _get(document, "node")
    if node is not None:
        return _get(node, "node_id")
    own = _get(document, "id")
    if own is not None:
        return own
    metadata = _get(document, "metadata")
    return None if metadata is None else next((m for n in _IN_METADATA if (m := _get(metadata, n)) is not None), None)


def _document_text(document: Any) -> str | None:
    if isinstance(document, str | int | float):
        return None
    node = _get(document, "node")
    return next((t for n in _TEXT if isinstance(t := _get(node if node is not None else document, n), str)), None)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _latency(call: Call) -> Latency:
    """Milliseconds of the call and of its stages; a stage that ran twice at once counts its union."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for name, started, ended in call.stages:
        spans.setdefault(name, []).append((started, ended))
    retrieve, generate = (_union(spans[name]) if name in spans else None for name in ("retrieve", "generate"))
    return Latency(total=round(call.seconds * 1000, 3), retrieve=retrieve, generate=generate)


def _union(spans: list[tuple[float, float]]) -> float:
    total, reached = 0.0, float("-inf")
    for started, ended in sorted(spans):
        total += max(0.0, ended - max(started, reached))
        reached = max(reached, ended)
    return round(total * 1000, 3)
