"""The documents that a request retrieved: the spans that count, the attributes that hold lists, and the lists combined.

Instrumentations put lists of documents in several places on a span; the most reliable one is read first. Ids that are
missing on a document's own span are looked up on other spans of the request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from ragmon.core import constants, semconv
from ragmon.core.documents import (
    DOCUMENT_FIELDS,
    METADATA_ID_KEYS,
    Document,
    first_known,
    list_in,
    matched,
    note_ids,
    read_document,
)
from ragmon.core.record import MAX_DOCUMENTS_KEPT
from ragmon.core.shapes import document_hints, first_of
from ragmon.core.text import Path
from ragmon.core.written import JSON, REDACTED, as_text, decode, decode_container, is_json, mapping, number, too_long
from ragmon.ingest.spans.messages import tool_results
from ragmon.ingest.spans.span import (
    ATTRIBUTES_DROPPED,
    CONTENT_NOT_CAPTURED,
    HIT_EVENTS,
    NO_RETRIEVAL,
    NOT_UNDERSTOOD,
    OUTPUT,
    TOO_MANY_STEPS,
    Merge,
    Role,
    Span,
    Trace,
    unread,
)
from ragmon.ingest.spans.tools import LISTS, as_id, count, documents_in, flattened, returned_list, tool_output


class SpanDocuments(NamedTuple):
    """The documents on a span in rank order, or the reason why they, or their ids, are unknown."""

    documents: Sequence[Document] | None
    reason: str = ""


MEMBERS: Final = frozenset({"id", "content", "score", "metadata"})
"""The members of a document in the conventions; one without others is decoded without further search."""
_NODE: Final = re.compile(r"<NodeWithScore\(node=\w+\(id_=(?P<id>.*)\), score=(?P<score>[^)]*)\)>", re.DOTALL)
_HAYSTACK: Final = re.compile(r"Document\(id=(?P<id>.*?), (?:content|blob|meta|score|embedding)\b")


def document(entry: Any, id_from: Path | None = None) -> Document:
    """Decode an entry of a list of documents.

    >>> document({"node": {"id_": "n1", "text": "one", "metadata": {"chunk_id": "c1"}}, "score": 0.5})[:4]
    ('n1', 'one', 0.5, 'c1')
    """
    if id_from is None and type(entry) is dict and entry.keys() <= MEMBERS:
        metadata, name, score = mapping(entry.get("metadata")), as_id(entry.get("id")), number(entry.get("score"))
        text = as_text(entry.get("content"))
        if not metadata:
            return Document(name, text, score)
        if None not in (name, text, score):
            label = first_of(metadata, METADATA_ID_KEYS, as_id)
            return Document(name, text, score, label, as_text(metadata.get("title")))
    if isinstance(entry, str) and (match := _NODE.fullmatch(entry) or _HAYSTACK.match(entry)):
        entry = match.groupdict()
    return read_document(entry, JSON, id_from)


def _have_ids(documents: Iterable[Document]) -> bool:
    return None not in [document.id for document in documents]


DocumentList = Sequence[Any] | str | None
"""A whole list of documents; or the reason why it is unknown; or None where there is none."""
MAX_DOCUMENTS: Final = MAX_DOCUMENTS_KEPT + 1
"""The maximum number of documents of a list that are read: one more than a record keeps, so that a cut is noticed."""
_HITS: Final = "hits"
_RETRIEVED: Final = (
    *(semconv.DOCUMENTS, semconv.MEMORY_RECORDS, semconv.RETRIEVED, semconv.OUTPUT_VALUE, semconv.ENTITY_OUTPUT),
    *(_HITS, semconv.TRULENS_CONTEXTS, semconv.TRULENS_RETURNED),
)
_RERANKED: Final = (
    *(semconv.RERANKER_OUTPUT, semconv.DOCUMENTS, semconv.OUTPUT_VALUE, semconv.ENTITY_OUTPUT),
    semconv.TRULENS_RERANKED,
)
_INPUTS: Final = (semconv.INPUT_VALUE, semconv.ENTITY_INPUT)
_GIVEN: Final = (semconv.RERANKER_INPUT, *_INPUTS)
"""Where a span has a list, the surest place first: flattened lists and attributes by their names, events of hits."""


def _list_at(span: Span, place: str) -> DocumentList:
    if place == _HITS:
        return _hits(span)
    if place in LISTS:
        entries = flattened(span.attributes, place)
        if not entries.rows:
            return None
        return entries.rows[:MAX_DOCUMENTS] if entries.is_complete and not span.dropped else ATTRIBUTES_DROPPED
    # One attribute: a list, or an object that has one; either may be written as JSON.
    value = span.attributes.get(place)
    if value is None or value == REDACTED:
        return None
    decoded = decode_container(value)
    if place in _INPUTS:
        decoded = mapping(decoded).get("nodes")
    elif not isinstance(decoded, str):
        decoded = list_in(decoded, JSON)
    if isinstance(decoded, list):
        known = [entry for entry in decoded[:MAX_DOCUMENTS] if entry is not None]
        return None if REDACTED in decoded else known or decoded[:MAX_DOCUMENTS]
    if too_long(decoded):
        return constants.OVERSIZE
    return constants.MALFORMED_JSON if is_json(decoded) else None


def _hits(span: Span) -> DocumentList:
    events = [event for event in span.events if event.name in HIT_EVENTS]
    if not events:
        return None
    # OpenLLMetry's older Chroma instrumentation recorded only the first hit.
    if span.dropped_events or (len(events) == 1 and count(span.attributes.get(semconv.CHROMA_RESULTS)) > 1):
        return ATTRIBUTES_DROPPED
    hits: dict[Any, Mapping[str, Any]] = {}
    for index, event in enumerate(events):
        hit = {key.removeprefix(f"{event.name}."): value for key, value in event.attributes.items()}
        hit_id = hit.get("id")
        # Several queries may find the same document, which keeps its first place; hits without an id are all kept.
        key = (None, index) if hit_id is None else hit_id if isinstance(hit_id, str | int) else repr(hit_id)
        hits.setdefault(key, hit)
    return list(hits.values())[:MAX_DOCUMENTS]


def _is_captured(document: Document) -> bool:
    return bool(document.id or document.label or document.text)


_MAX_DEPTH: Final = 12
"""The maximum depth at which LangChain objects are searched in a value."""


def _renamed(documents: Iterable[Document], ids: Iterable[str | None]) -> SpanDocuments:
    return SpanDocuments([document._replace(id=name) for document, name in zip(documents, ids, strict=True)])


def _langchain_objects(value: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping) and value.get("lc") == 1:
        yield value
    if depth and isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _langchain_objects(inner, depth - 1)


RRF_K: Final = 60
"""The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher 2009)."""


def ids_of(documents: SpanDocuments | None) -> list[str] | None:
    """The ids of a list, in its order; None where one of them is unknown."""
    return _column(documents, "id")


def texts_of(documents: SpanDocuments) -> list[str] | None:
    """The texts of a list; None where one of them is unknown, or the list is empty."""
    return _column(documents, "text") or None


def scores_of(documents: SpanDocuments) -> list[float] | None:
    """The scores of a list; None where one of them is unknown, or the list is empty."""
    return _column(documents, "score") or None


def titles_of(documents: SpanDocuments) -> Iterator[tuple[str | None, str | None]]:
    """The id and the title of each document of a list."""
    return ((document.id, document.title) for document in documents.documents or ())


def _column(documents: SpanDocuments | None, member: str) -> list[Any] | None:
    if documents is None or documents.documents is None:
        return None
    column = [getattr(document, member) for document in documents.documents]
    return None if None in column else column


def _completed(reranked: SpanDocuments, pool: SpanDocuments) -> SpanDocuments:
    """A reranker's list with the ids and texts that it left out, from the list that it was given."""
    if not reranked.documents or not pool.documents or reranked.reason == ATTRIBUTES_DROPPED:
        return reranked
    documents = matched(reranked.documents, pool.documents)
    return SpanDocuments(documents, "" if _have_ids(documents) else reranked.reason)


def is_subset_or_reordering(documents: SpanDocuments, pool: SpanDocuments) -> bool:
    """Whether a list is a reordering or a selection of another one."""
    ids, others = ids_of(documents), ids_of(pool)
    return ids is not None and others is not None and ids != others and set(ids) <= set(others)


def merged(lists: Sequence[SpanDocuments], merge: Merge = "concat") -> SpanDocuments:
    """Merge several lists; unknown where one of them is, because its documents would be missing unnoticed.

    Args:
        lists: In the order of the retrievals.
        merge: `last` keeps the last one; `concat` joins them, a document at its first place; `rrf` ranks
            by the sum of 1 / (60 + rank).

    >>> one, two = (SpanDocuments(list(map(Document, ids))) for ids in ("ab", "cb"))
    >>> ids_of(merged([one, two])), ids_of(merged([one, two], "rrf")), ids_of(merged([one, two], "last"))
    (['a', 'b', 'c'], ['b', 'a', 'c'], ['c', 'b'])
    """
    if merge == "last" or len(lists) == 1:
        return lists[-1] if lists else SpanDocuments([])
    unknown = next((ranked for ranked in lists if ranked.documents is None), None)
    if unknown is not None:
        return unknown
    best: dict[Any, Document] = {}
    weight: dict[Any, float] = {}
    for ranked in lists:
        for rank, found in enumerate(ranked.documents or (), start=1):
            key = (found.id, found.text if found.id is None else None)
            # Scores of different retrievers are not comparable.
            best.setdefault(key, found._replace(score=None))
            weight[key] = weight.get(key, 0.0) + 1 / (RRF_K + rank)
    documents = [best[key] for key in (sorted(best, key=lambda key: -weight[key]) if merge == "rrf" else best)]
    reason = next((ranked.reason for ranked in lists if ranked.reason), "")
    return SpanDocuments(documents, reason)


MAX_STEPS: Final = 512
"""The maximum number of retrievals and rerankings of a request that are followed; the order of so many lists means
nothing."""


class Retrieved(NamedTuple):
    """The documents after reranking, and those of the retrievers where a reranker selected among them."""

    final: SpanDocuments
    candidates: SpanDocuments | None


class Retrievals:
    """Follows the retrievals and rerankings of a request in the order of their end times.

    A step inside another one is a part of it, where the outer one has documents.
    """

    def __init__(self, trace: Trace, id_from: Path | None) -> None:
        self._trace = trace
        self._id_from = id_from
        self._above = {span.span_id: trace.above(span) for span in trace.steps[:MAX_STEPS]}
        self._too_many_steps = len(trace.steps) > MAX_STEPS
        self._documents = {} if self._too_many_steps else {span.span_id: self._read(span) for span in trace.steps}
        for span in trace.steps:
            # A tool may return only the texts of documents: leave it to the retrievers inside it that name them.
            documents = self._documents.get(span.span_id)
            has_no_ids = trace.role(span) & Role.TOOL and documents is not None and documents.reason
            if has_no_ids and any(ids_of(inner) is not None for inner in self._inner_retrievals(span)):
                self._documents[span.span_id] = None
        self._current: list[SpanDocuments] = []
        self._candidates: list[SpanDocuments] = []

    def read(self, merge: Merge) -> Retrieved:
        """The documents that the request retrieved."""
        if self._too_many_steps:
            return Retrieved(SpanDocuments(None, TOO_MANY_STEPS), None)
        for span in self._trace.steps:
            if all(self._documents.get(span_id) is None for span_id in self._above[span.span_id]):
                (self._rerank if self._is_reranker(span) else self._retrieve)(span)
        if not self._current:
            # OpenTelemetry's conventions allow documents on the span of a whole request.
            tops = (span for span in self._trace.tops if semconv.DOCUMENTS in span.attributes)
            attached = list(filter(None, (self._listed(span, (semconv.DOCUMENTS,)) for span in tops)))
            if not attached and not self._documents:
                # Where no span is a retrieval: what tools returned to the last model call, or the request itself.
                results = (map(self._given, tool_results(call)) for call in reversed(self._trace.calls))
                given = (list(filter(None, lists)) for lists in results)
                attached = next(filter(None, given), []) or self._beside_answer(self._trace.tops)
                if not attached:  # the state of a graph that failed stands on its steps
                    attached = self._beside_answer(filter(self._is_node, reversed(self._trace.ended)))[:1]
            unknown = SpanDocuments(None, CONTENT_NOT_CAPTURED if self._documents else NO_RETRIEVAL)
            self._current = [self._complete(documents) for documents in attached] or [unknown]
        return Retrieved(merged(self._current, merge), merged(self._candidates) if self._candidates else None)

    def _is_reranker(self, span: Span) -> bool:
        return self._trace.role(span) == Role.RERANKING

    def _is_node(self, span: Span) -> bool:
        is_task = span.attributes.get(semconv.OPERATION) == semconv.EXECUTE_TASK
        return is_task or bool(self._trace.role(span) & Role.WORKFLOW)

    def _read(self, span: Span) -> SpanDocuments | None:
        if self._trace.role(span) & Role.TOOL:
            return self._returned(span)
        listed = self._listed(span, _RERANKED if self._is_reranker(span) else _RETRIEVED)
        is_known = listed is not None and listed.documents is not None
        return listed if is_known else self._given(tool_output(span.attributes)) or listed

    def _retrieve(self, span: Span) -> None:
        """Add the documents of a retriever; if it selected among those of inner retrievers, these are candidates."""
        inner_lists = self._inner_retrievals(span)
        documents = self._documents[span.span_id]
        if documents is not None:
            completed = self._complete(documents, inner_lists)
            candidates = [self._complete(inner_list) for inner_list in inner_lists]
            if candidates and is_subset_or_reordering(completed, merged(candidates)):
                self._candidates += candidates
                completed = _completed(completed, merged(candidates))
            self._current.append(completed)
        elif not inner_lists and not span.failed:
            self._current.append(SpanDocuments(None, unread([span], OUTPUT)))

    def _rerank(self, span: Span) -> None:
        """Replace the lists that share documents with a reranker, or all lists where none does."""
        reranked = self._complete(self._documents[span.span_id] or SpanDocuments(None, unread([span], OUTPUT)))
        given = self._complete(self._listed(span, _GIVEN) or SpanDocuments(None))
        ids = {*(ids_of(reranked) or ()), *(ids_of(given) or ())}
        inputs = [documents for documents in self._current if ids & set(ids_of(documents) or ())] or list(self._current)
        for pool in (given, *(inputs if len(inputs) == 1 or ids_of(reranked) is not None else ())):
            reranked = _completed(reranked, pool)
        candidates = inputs if ids_of(given) is None or ids_of(merged(inputs)) else [given]
        # The output of an earlier reranker is no candidate: its input is there already.
        self._candidates += [
            documents for documents in candidates if not is_subset_or_reordering(documents, merged(self._candidates))
        ]
        self._current = [
            documents for documents in self._current if not any(documents is replaced for replaced in inputs)
        ] + [reranked]

    def _beside_answer(self, spans: Iterable[Span]) -> list[SpanDocuments]:
        """The documents in the outputs of workflows, as the state of LangGraph holds them beside the answer."""
        outputs = (mapping(tool_output(span.attributes)) for span in spans)
        states = (mapping(output.get("outputs")) or output for output in outputs)  # of OpenLLMetry
        lists = (
            next(filter(None, (self._given(state[key]) for key in DOCUMENT_FIELDS if state.get(key))), None)
            for state in states
        )
        return list(filter(None, lists))

    def _inner_retrievals(self, span: Span) -> list[SpanDocuments]:
        inner = (other for other in self._trace.steps if span.span_id in self._above[other.span_id])
        lists = (self._documents[other.span_id] for other in inner if not self._is_reranker(other))
        return list(filter(None, lists))

    def _returned(self, span: Span) -> SpanDocuments | None:
        """The documents that a retrieving tool returned; None where the span does not hold its output.

        Documents without the usual shape may be texts; a text alone is one document.
        """
        output = tool_output(span.attributes)
        if output is None:
            return self._listed(span, _RETRIEVED)
        entries = documents_in(output, self._id_from, self._trace.literals)
        if entries is not None:
            return self._understood(entries)
        listed = returned_list(output, self._trace.literals)
        if listed is None:
            return SpanDocuments(None, constants.OVERSIZE if too_long(output) else NOT_UNDERSTOOD)
        return self._understood(self._decoded(([listed] if isinstance(listed, str) else listed)[:MAX_DOCUMENTS]))

    def _given(self, result: Any) -> SpanDocuments | None:
        """The documents in a tool's result that a model was given; None where the result has another shape."""
        entries = documents_in(result, self._id_from, self._trace.literals)
        return None if entries is None else self._understood(entries)

    def _decoded(self, entries: Iterable[Any]) -> list[Document]:
        return [document(entry, self._id_from) for entry in entries]

    def _understood(self, documents: Sequence[Document]) -> SpanDocuments:
        documents = documents[:MAX_DOCUMENTS]
        if _have_ids(documents):
            return SpanDocuments(documents)
        understood = any(map(_is_captured, documents))
        return SpanDocuments(documents, constants.NO_IDS) if understood else SpanDocuments(None, NOT_UNDERSTOOD)

    def _listed(self, span: Span, places: Sequence[str]) -> SpanDocuments | None:
        """The first list with all ids; its missing texts and scores come from other lists of the same length."""
        lists: list[list[Document]] = []
        reason = ATTRIBUTES_DROPPED if span.dropped else ""
        for place in places:
            entries = _list_at(span, place)
            if isinstance(entries, str):
                reason = reason or entries
            elif entries is not None:
                documents = self._decoded(entries)
                if document_hints.room > 0:
                    for entry, noted in zip(entries, documents, strict=True):
                        if noted.id is not None:
                            note_ids(noted, entry, JSON)
                if not lists and not any(None in known[:3] for known in documents):
                    return SpanDocuments(documents)
                lists.append(documents)
        if not lists:
            return SpanDocuments(None, reason) if reason else None
        best = next((documents for documents in lists if _have_ids(documents)), lists[0])
        aligned = [best, *(other for other in lists if other is not best and len(other) == len(best))]
        documents = [first_known(*row)._replace(id=row[0].id) for row in zip(*aligned, strict=True)]
        if _have_ids(documents):
            return SpanDocuments(documents)
        is_captured = any(map(_is_captured, documents))
        return SpanDocuments(documents, reason or (constants.NO_IDS if is_captured else CONTENT_NOT_CAPTURED))

    def _complete(self, documents: SpanDocuments, inner: Sequence[SpanDocuments] = ()) -> SpanDocuments:
        """A list of documents with its missing ids, where they can be found; otherwise unchanged.

        The span of a vector database's client inside the retriever has them. OpenLLMetry leaves them off LangChain's
        retriever span, but writes whole documents on the spans around it. Ids in the metadata are the last choice.
        """
        own = documents.documents
        if own is None or documents.reason != constants.NO_IDS:
            return documents  # if a limit cut the span, they had ids that others would not match
        for other in inner:
            # Take the ids of another list of the same length, unless a text shows that it holds other documents.
            names = other.documents
            if names is not None and len(names) == len(own) and _have_ids(names):
                texts = [(document.text, named.text) for document, named in zip(own, names, strict=True)]
                if all(text == other_text or None in (text, other_text) for text, other_text in texts):
                    return _renamed(own, [named.id for named in names])
        if self._id_from is None:
            ids = self._ids_by_content
            keys = [(document.text, document.label) for document in own]
            renamed = _renamed(own, map(ids.get, keys))
            if ids_of(renamed) is not None:
                return renamed
            if any(key in ids for key in keys):
                return documents  # they have ids of their own, which the ids in their metadata would not match
        renamed = _renamed(own, [document.id or document.label for document in own])
        return documents if ids_of(renamed) is None else renamed

    @cached_property
    def _ids_by_content(self) -> dict[tuple[str | None, str | None], str | None]:
        """The ids of documents that LangChain wrote to attributes, by text and label; None where they are ambiguous."""
        ids: dict[tuple[str | None, str | None], str | None] = {}
        for span in self._trace.spans:
            for key in (semconv.ENTITY_INPUT, semconv.ENTITY_OUTPUT):
                value = span.attributes.get(key)
                if isinstance(value, str) and '"page_content"' in value and '"lc"' in value:
                    for document in self._decoded(_langchain_objects(decode(value), _MAX_DEPTH)):
                        if document.id is not None and document.text is not None:
                            content = document.text, document.label
                            previous = ids.get(content, document.id)
                            ids[content] = document.id if previous == document.id else None
        return ids
