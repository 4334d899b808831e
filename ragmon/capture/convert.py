"""Ids, texts and scores of documents, whatever a retriever calls them: plain ids, dicts, LangChain, LlamaIndex.

What a call's arguments and result say: the question, the claim, the citations, the documents.

A finished call becomes a record of the contract. Runs in the worker, never on the request path.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from inspect import Parameter
from itertools import islice
from numbers import Integral, Real
from typing import Any, Final, NamedTuple, TypeGuard
from uuid import UUID

from ragmon.capture.call import Call, TracedFunction
from ragmon.core import constants
from ragmon.core.bounds import DOCUMENTS, KEPT
from ragmon.core.log import warn_once
from ragmon.core.paths import Path, look_up, member
from ragmon.core.record import Answer, Latency, Record, Sampling
from ragmon.core.text import clean, split_citations
from ragmon.ingest.spans import fill
from ragmon.ingest.spans.model import from_sdk_span

_OWN_ID: Final = ("id", "node_id")
_IN_METADATA: Final = ("id", "chunk_id", "doc_id")
_TEXT: Final = ("text", "page_content", "content")


class CapturedDocuments(NamedTuple):
    """What is known of some documents, in rank order; each part is None where not every document has it."""

    ids: list[str] | None = None
    texts: list[str] | None = None
    scores: list[float] | None = None


def read_documents(found: Any, id_from: Path | None, *, strings: str = "ids") -> CapturedDocuments:
    """What is known of documents.

    Args:
        found: A collection of them; anything else holds none.
        id_from: Path from a document to its id; None tries the usual places.
        strings: What a plain string among them is: `ids` or `texts`.
    """
    if not is_listed(found):
        return CapturedDocuments()
    scored = [_with_score(document) for document in _first_documents(found)]
    if strings == "texts":
        scored = [({"text": document} if isinstance(document, str) else document, score) for document, score in scored]
    ids = ids_of((document for document, _ in scored), id_from)
    texts = [_text_of(document) for document, _ in scored]
    scores = [score for _, score in scored]
    return CapturedDocuments(
        ids,
        [text for text in texts if text is not None] if texts and None not in texts else None,
        [score for score in scores if score is not None] if scores and None not in scores else None,
    )


def _first_documents(found: Collection[Any]) -> Iterable[Any]:
    """The documents that are sent; that others were left out is said once."""
    if len(found) <= KEPT:
        return found
    warn_once(
        f"a retrieval found more than {DOCUMENTS} documents: ranks end there, and metrics of whole lists are unassessed"
    )
    return islice(found, KEPT)


def is_listed(found: Any) -> TypeGuard[Collection[Any]]:
    """Whether something is a collection that may be read twice: reading an iterator would take it from its owner."""
    if found is None or type(found) is list:  # asking the abstract classes takes ten times as long
        return found is not None
    return isinstance(found, Collection) and not isinstance(found, str | bytes | Mapping | AbstractSet)


def ids_of(found: Iterable[Any], id_from: Path | None) -> list[str] | None:
    """The ids of documents or citations; None, said once, where one of them has none."""
    ids = [_id_of(document, id_from) for document in found]
    if None in ids:
        warn_once("a document or citation has no id: say where it is with id_from; metrics by ids stay unassessed")
        return None
    return [name for name in ids if name is not None]


def _id_of(document: Any, id_from: Path | None) -> str | None:
    if type(document) is not dict:
        own = as_id(document)
        if own is not None or isinstance(document, str | int | float):
            return own
    if id_from is not None:
        return as_id(look_up(document, id_from))
    node = member(document, "node")
    place = document if node is None else node
    for name in _OWN_ID:
        found = as_id(member(place, name))
        if found is not None:
            return found
    metadata = member(place, "metadata")
    for name in _IN_METADATA if metadata is not None else ():
        found = as_id(member(metadata, name))
        if found is not None:
            return found
    return None


def as_id(value: Any) -> str | None:
    """An id as text: a string, an integer or a UUID; nothing else is one.

    >>> as_id("a"), as_id(7), as_id(True), as_id(1.5)
    ('a', '7', None, None)
    """
    if value is None or isinstance(value, str):
        return None if value is None else clean(value)
    if isinstance(value, bool) or not isinstance(value, Integral | UUID):
        return None
    return str(value)


def _with_score(document: Any) -> tuple[Any, float | None]:
    """A document and its score, its own or the second of a pair."""
    if type(document) is tuple and len(document) == 2:
        return document[0], _number(document[1])
    if type(document) is not dict and isinstance(document, str | int | float):
        return document, None
    return document, _number(member(document, "score"))


def _number(value: Any) -> float | None:
    """A finite number; JSON has no others."""
    if value is None or isinstance(value, bool) or not isinstance(value, float | int | Real):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _text_of(document: Any) -> str | None:
    if type(document) is not dict and isinstance(document, str | int | float):
        return None
    node = member(document, "node")
    place = document if node is None else node
    for name in _TEXT:
        text = member(place, name)
        if isinstance(text, str):
            return clean(text)
    return None


_QUESTION: Final = ("question", "query", "q")
_ANSWER: Final = ("answer_json", "answer")
_CLAIM: Final = ("claim", "answer", "response", "result", "output", "text", "content")
_IDS: Final = ("retrieved", "retrieved_ids")
_DOCUMENTS: Final = ("documents", "source_documents", "source_nodes", "chunks", "contexts", "context")
_CANDIDATES: Final = ("candidates", "candidate_ids")
_NESTED: Final = 3
"""How deep an answer may lie: a message in a field of a result."""


def question(site: TracedFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The question a call was asked, by the decorator's `question=` or by the usual names; None where there is none.

    Raises:
        Exception: Whatever a callable `question=` raises.
    """
    if callable(site.question):
        return site.question(*args, **kwargs)
    if site.question is not None:
        return look_up(arguments(site, args, kwargs), site.question)
    given = arguments(site, args, kwargs, defaults=False)
    named = next((given[name] for name in _QUESTION if isinstance(given.get(name), str)), None)
    if named is not None:
        return named
    given = arguments(site, args, kwargs)
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    named = next((texts[name] for name in _QUESTION if name in texts), None)
    defaults = set(given) - set(arguments(site, args, kwargs, defaults=False))
    return named if named is not None else next((texts[name] for name in texts if name not in defaults), None)


def arguments(
    site: TracedFunction, args: Sequence[Any], kwargs: Mapping[str, Any], *, defaults: bool = True
) -> dict[str, Any]:
    """The arguments of a call by parameter; those a catch-all took stand under their own names and places.

    Args:
        site: The function.
        args: By place.
        kwargs: By name.
        defaults: Name those as well that nobody gave.
    """
    places = None if defaults else site.places
    if places is not None and len(args) <= len(places):
        triples = zip(places, args, site.defaults, strict=False)
        # A wrapper with the function's own parameters passes defaults on as if they had been given.
        return {**{name: value for name, value, default in triples if value is not default}, **kwargs}
    try:
        bound = site.signature.bind_partial(*args, **kwargs) if site.signature is not None else None
    except TypeError:  # a call that does not fit has raised already, for the caller to see
        bound = None
    if bound is None:
        return {**{str(place): value for place, value in enumerate(args)}, **kwargs}
    if defaults:
        bound.apply_defaults()
    given = {}
    for name, value in bound.arguments.items():
        parameter = bound.signature.parameters[name]
        if not defaults and value is parameter.default:
            continue
        kind = parameter.kind
        if kind is Parameter.VAR_POSITIONAL:
            given.update({f"{name}[{place}]": entry for place, entry in enumerate(value)})
        elif kind is Parameter.VAR_KEYWORD:
            given.update(value)
        else:
            given[name] = value
    return given


def extract(result: Any, site: TracedFunction) -> dict[str, Any]:
    """What a result says, by field of `ragmon.record`; documents that came without an id list stand under `documents`.

    Args:
        result: Anything a pipeline returns: text, mappings, dataclasses, pydantic models, framework responses.
        site: The decorator's `extract=`.

    Raises:
        Exception: Whatever a callable `extract=` or a property of the result raises.
    """
    if callable(site.extract):
        return dict(site.extract(result))
    if site.extract is not None:
        return {field: look_up(result, path) for field, path in site.extract.items()}
    if isinstance(result, str):
        return {"claim": result}
    inner = next((held for name in _ANSWER if _has_parts(held := member(result, name))), result)
    citations = member(inner, "citations")
    documents = _first_member(result, _DOCUMENTS)
    said = {
        "claim": _first_member(inner, _CLAIM),
        "citations": citations if citations is not None else member(result, "citations"),
        "retrieved": _first_member(result, _IDS),
        "documents": documents if documents is not None else look_up(result, ("retrieval", "topk")),
        "candidates": _first_member(result, _CANDIDATES),
        **{name: as_id(member(result, name)) for name in ("qid", "index_hash", "build", "session")},
    }
    return {field: value for field, value in said.items() if value is not None}


def _has_parts(value: Any) -> bool:
    """Whether an answer is an object with members, not a text."""
    return value is not None and not isinstance(value, str | int | float | list | tuple)


def _first_member(value: Any, wanted: Sequence[str]) -> Any:
    for name in wanted:
        found = member(value, name)
        if found is not None:
            return found
    return None


def answer(said: Mapping[str, Any], id_from: Path | None) -> Answer:
    """The answer among what was said; citations written into its text are taken out of it where no others are known.

    Args:
        said: Fields of `ragmon.record`.
        id_from: Path from a citation that is an object to the document's id.
    """
    citations = said.get("citations")
    claim = text_of(said.get("claim"))
    if claim is not None and citations is None:
        claim, written = split_citations(claim)
        return Answer(claim=claim, citations=written)
    if is_listed(citations) or isinstance(citations, set | frozenset):
        return Answer(claim=claim, citations=ids_of(citations, id_from))
    return Answer(claim=claim)


def text_of(found: Any, depth: int = _NESTED) -> str | None:
    """The text of an answer or a question: itself, a number written out, or what a message or its parts hold."""
    if isinstance(found, str):
        return clean(found)
    if found is None or isinstance(found, bool) or not depth:
        return None
    if isinstance(found, int | float):
        return str(found)
    if isinstance(found, list | tuple):
        texts = [text_of(part, depth - 1) for part in found]
        return "".join(text for text in texts if text is not None) if any(text is not None for text in texts) else None
    return text_of(_first_member(found, _CLAIM), depth - 1)


def to_record(call: Call, *, build: str | None = None) -> Record:
    """The record of a call; what it does not know, spans of the application's tracer inside it may.

    Args:
        call: What was kept of it.
        build: The application's version, unless the call said another.

    Raises:
        Exception: Whatever the decorator's callables and the result's own code raise.
    """
    id_from = call.site.id_from or call.plan.id_from
    said = _fields(call)
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
    return fill(record, map(from_sdk_span, call.spans), id_from=id_from) if call.spans else record


def _fields(call: Call) -> dict[str, Any]:
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


def _documents(said: Mapping[str, Any], id_from: tuple[str | int, ...] | None) -> CapturedDocuments:
    """The documents that were retrieved: what one field does not tell of them, the other may."""
    told = read_documents(said.get("retrieved"), id_from)
    more = read_documents(said.get("documents"), id_from, strings="texts")
    if told.ids is not None and more.texts is not None and len(told.ids) != len(more.texts):
        return told
    return CapturedDocuments(
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
