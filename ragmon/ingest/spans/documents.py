"""What is known of lists of documents.

One document as a framework or an instrumentation wrote it.

The places on a span where instrumentations put lists of documents, the most trustworthy first.

The documents on one span, wherever its instrumentation put them.

The ids of documents whose own span leaves them out, as other spans of the request give them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, Final, NamedTuple, Self, TypeVar

import msgspec

from ragmon.core import constants, semconv
from ragmon.core.bounds import KEPT
from ragmon.ingest.spans.model import ATTRIBUTES_DROPPED, CONTENT_NOT_CAPTURED, Path, Span, Trace
from ragmon.ingest.spans.values import (
    REDACTED,
    FlattenedList,
    as_id,
    count,
    decode,
    flattened,
    is_json,
    mapping,
    number,
    opened,
    plain,
    too_long,
)


class Document(NamedTuple):
    """What is known of one document.

    Attributes:
        id: Its own id, or what `id_from` names.
        text: What it says.
        score: The retriever's score.
        label: What its metadata call it, in case it has no id of its own.
    """

    id: str | None = None
    text: str | None = None
    score: float | None = None
    label: str | None = None


class Documents(msgspec.Struct, frozen=True, gc=False):
    """A list of documents in rank order: a column for each part of them, with None where that is unknown.

    Attributes:
        ids: As in `Document`.
        texts: As in `Document`.
        scores: As in `Document`.
        labels: As in `Document`.
    """

    ids: list[str | None]
    texts: list[str | None]
    scores: list[float | None]
    labels: list[str | None]

    @classmethod
    def of(cls, rows: Iterable[Document]) -> Self:
        """The documents as columns.

        >>> Documents.of([Document("a", "one"), Document("b", None, 0.5)]).texts
        ['one', None]
        """
        ids, texts, scores, labels = map(list, zip(*rows, strict=True)) if (rows := list(rows)) else ([], [], [], [])
        return cls(ids, texts, scores, labels)

    @property
    def known(self) -> bool:
        """Whether all ids are."""
        return None not in self.ids

    @property
    def whole(self) -> bool:
        """Whether no other list could add to these."""
        return None not in self.ids and None not in self.texts and None not in self.scores

    def called(self, ids: list[str | None]) -> Documents:
        """The same documents by other ids."""
        return Documents(ids, self.texts, self.scores, self.labels)


class SpanDocuments(msgspec.Struct, frozen=True, gc=False):
    """What a span says about documents.

    Attributes:
        documents: In rank order; None where that is unknown.
        reason: Why they are unknown, or why their ids are.
    """

    documents: Documents | None
    reason: str = ""

    def rows(self) -> Iterator[Document]:
        """The documents one by one; none where they are unknown."""
        held = self.documents
        return iter(()) if held is None else map(Document, held.ids, held.texts, held.scores, held.labels)


MEMBERS: Final = frozenset({"id", "content", "score", "metadata"})
"""What conventions call the parts of a document; one that has no others needs no second look."""
_OWN_ID: Final = ("id", "node_id", "id_", "_id")
_IN_METADATA: Final = ("id", "chunk_id", "doc_id")
_TEXT: Final = ("text", "page_content", "content")
_NODE: Final = re.compile(r"<NodeWithScore\(node=\w+\(id_=(?P<id>.*)\), score=(?P<score>[^)]*)\)>", re.DOTALL)
"""LlamaIndex's scored nodes as text."""
_HAYSTACK: Final = re.compile(r"Document\(id=(?P<id>.*?), (?:content|blob|meta|score|embedding)\b")
"""Haystack's documents as text."""


def document(entry: Any, id_from: Path | None = None) -> Document:
    """What an entry of a list says of a document.

    Args:
        entry: A mapping, an object of LangChain's, a scored node, text.
        id_from: Where its id is; None tries the usual places.

    >>> document({"node": {"id_": "n1", "text": "one", "metadata": {"chunk_id": "c1"}}, "score": 0.5})
    Document(id='n1', text='one', score=0.5, label='c1')
    """
    if id_from is None and type(entry) is dict and entry.keys() <= MEMBERS:
        label = document_id(entry["metadata"]) if "metadata" in entry else None
        return Document(as_id(entry.get("id")), plain(entry.get("content")), number(entry.get("score")), label)
    view = _view(entry)
    text = next((text for name in _TEXT if (text := plain(view.get(name))) is not None), None)
    score = number(view.get("score"))
    if id_from is not None:
        return Document(as_id(_follow(view, id_from)), text, score)
    return Document(as_id(view["id"]), text, score, document_id(view["metadata"]))


def document_id(metadata: Any) -> str | None:
    """What its metadata call a document, be they written as JSON."""
    held = mapping(metadata)
    return next((found for name in _IN_METADATA if (found := as_id(held.get(name))) is not None), None)


def _follow(view: Any, path: Path) -> Any:
    """What lies at the end of a path; None where it breaks off."""
    for step in path:
        if isinstance(step, str):
            view = view.get(step) if isinstance(view, Mapping) else None
        else:
            view = view[step] if isinstance(view, list) and -len(view) <= step < len(view) else None
    return view


def _view(entry: Any) -> Mapping[str, Any]:
    """A document as a mapping that answers to what frameworks call its parts."""
    entry = opened(entry)
    outer = _from_text(entry) if isinstance(entry, str) else mapping(entry)
    inner = mapping(outer.get("node")) or outer
    if inner.get("lc") == 1:  # LangChain's way of writing its objects
        inner = mapping(inner.get("kwargs"))
    metadata = mapping(inner.get("metadata", inner.get("meta")))
    own = next((inner[name] for name in _OWN_ID if inner.get(name) is not None), None)
    view = {**inner, "id": own, "node_id": own, "metadata": metadata, "meta": metadata}
    return {**view, "score": outer.get("score", inner.get("score")), "node": view}


def _from_text(entry: str) -> Mapping[str, Any]:
    """A document a framework wrote out; what looks like none is a document's text."""
    found = _NODE.fullmatch(entry) or _HAYSTACK.match(entry)
    return found.groupdict() if found else {"content": entry}


Told = Sequence[Any] | FlattenedList | str | None
"""A whole list of documents, or why it cannot be had, or None where there is none."""
Source = Callable[[Span], Told]
"""Reads a list of documents off a span."""
READ: Final = KEPT + 1
"""Documents of a list that are read, the first ones: one more than a record holds, so that it shows that it was cut."""
_LISTS: Final = ("documents", "nodes", "results", "chunks")


def _flattened(name: str) -> Source:
    def read(span: Span) -> Told:
        entries = flattened(span.attributes, name)
        if not entries.size:
            return None
        return entries if entries.whole and not span.dropped else ATTRIBUTES_DROPPED

    return read


def _listed(key: str, member: str | None = None) -> Source:
    """Documents in one attribute: a list, or an object that has one, be it written as JSON."""

    def read(span: Span) -> Told:
        value = span.attributes.get(key)
        if value is None or value == REDACTED:
            return None
        found = opened(value)
        if isinstance(found, Mapping):
            wanted = _LISTS if member is None else (member,)
            found = next((entries for name in wanted if isinstance(entries := found.get(name), list)), None)
        elif member is not None:
            found = None
        if isinstance(found, list):
            return None if REDACTED in found else found[:READ]
        if too_long(found):
            return constants.OVERSIZE
        return constants.MALFORMED_JSON if is_json(found) else None

    return read


def _hits(span: Span) -> Told:
    """What a vector database's client found: one event a hit."""
    events = [event for event in span.events if event.name in (semconv.QUERY_RESULT, semconv.SEARCH_RESULT)]
    if not events:
        return None
    # OpenLLMetry's older Chroma instrumentation recorded the first hit alone.
    if span.dropped_events or (len(events) == 1 and count(span.attributes.get(semconv.CHROMA_RESULTS)) > 1):
        return ATTRIBUTES_DROPPED
    hits = [{key.removeprefix(f"{event.name}."): event.attributes[key] for key in event.attributes} for event in events]
    return list(islice(_once({**hit, "content": hit.get("document")} for hit in hits), READ))


def _once(hits: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Hits of several queries at once, each document at its first place."""
    seen: set[Any] = set()
    for hit in hits:
        found = hit.get("id")
        found = found if isinstance(found, str | int) else repr(found)
        if hit.get("id") is None or found not in seen:
            seen.add(found)
            yield hit


RETRIEVED: Final = (
    _listed(semconv.DOCUMENTS),
    _flattened(semconv.RETRIEVED),
    _listed(semconv.OUTPUT_VALUE),
    _listed(semconv.ENTITY_OUTPUT),
    _hits,
    _listed(semconv.TRULENS_CONTEXTS),
)
ATTACHED: Final = (_listed(semconv.DOCUMENTS),)
RERANKED: Final = (
    _flattened(semconv.RERANKER_OUTPUT),
    _listed(semconv.DOCUMENTS),
    _listed(semconv.OUTPUT_VALUE),
    _listed(semconv.ENTITY_OUTPUT),
    _listed(semconv.TRULENS_RERANKED),
)
GIVEN: Final = (
    _flattened(semconv.RERANKER_INPUT),
    _listed(semconv.INPUT_VALUE, "nodes"),
    _listed(semconv.ENTITY_INPUT, "nodes"),
)


HASH_DIGITS: Final = 16
T = TypeVar("T")


class DocumentReader(msgspec.Struct, frozen=True):
    """Reads documents.

    Attributes:
        id_from: Where a document's id is; None tries the usual places.
        content_hash: A document without an id is called by the start of its text's SHA-256.
    """

    id_from: Path | None = None
    content_hash: bool = False

    def retrieved(self, span: Span) -> SpanDocuments | None:
        """The documents a retrieval found; None where the span says nothing of any."""
        return self._read(span, RETRIEVED)

    def reranked(self, span: Span) -> SpanDocuments | None:
        """The documents a reranker left, in its order."""
        return self._read(span, RERANKED)

    def given(self, span: Span) -> SpanDocuments | None:
        """The documents a reranker was given."""
        return self._read(span, GIVEN)

    def attached(self, span: Span) -> SpanDocuments | None:
        """The documents on the span of a whole request, as OpenTelemetry's conventions allow."""
        return self._read(span, ATTACHED) if semconv.DOCUMENTS in span.attributes else None

    def _read(self, span: Span, places: Sequence[Source]) -> SpanDocuments | None:
        """The first list whose documents all have ids; texts and scores also from another one of its length."""
        lists: list[Documents] = []
        reason = ATTRIBUTES_DROPPED if span.dropped else ""
        for place in places:
            found = place(span)
            if isinstance(found, str):
                reason = reason or found
            elif found is not None:
                documents = self._flat(found) if isinstance(found, FlattenedList) else self._listed(found)
                if not lists and documents.whole:
                    return SpanDocuments(documents)
                lists.append(documents)
        if not lists:
            return SpanDocuments(None, reason) if reason else None
        documents = _completed(lists)
        if documents.known:
            return SpanDocuments(documents)
        hidden = not any((*documents.ids, *documents.labels, *documents.texts))
        return SpanDocuments(documents, reason or (CONTENT_NOT_CAPTURED if hidden else constants.NO_IDS))

    def _listed(self, entries: Iterable[Any]) -> Documents:
        return Documents.of([self.document(entry) for entry in entries])

    def _flat(self, table: FlattenedList) -> Documents:
        columns = {name: column[:READ] for name, column in table.columns.items()}
        size = min(table.size, READ)
        if self.id_from is not None or not columns.keys() <= MEMBERS:
            return self._listed(FlattenedList(size, table.whole, columns).rows())
        none: list[None] = [None] * size
        return Documents(
            list(map(as_id, columns.get("id", none))),
            list(map(plain, columns.get("content", none))),
            list(map(number, columns.get("score", none))),
            list(map(document_id, columns["metadata"])) if "metadata" in columns else [*none],
        )

    def document(self, entry: Any) -> Document:
        """One document, be it in a list or not."""
        return document(entry, self.id_from)

    def named(self, documents: Documents) -> SpanDocuments | None:
        """Documents without ids of their own, by what their metadata call them, or by the hash of their texts."""
        others = [documents.labels]
        if self.content_hash:
            others.append(list(map(_digest, documents.texts)))
        for names_of in others:
            whole = documents.called([own or name for own, name in zip(documents.ids, names_of, strict=True)])
            if whole.known:
                return SpanDocuments(whole)
        return None


def _completed(lists: Sequence[Documents]) -> Documents:
    """The best list, with what those know that are as long as it; the first one that knows a part holds."""
    best = next((documents for documents in lists if documents.known), lists[0])
    like = [best, *(documents for documents in lists if documents is not best and len(documents.ids) == len(best.ids))]
    return Documents(
        best.ids,
        _known([documents.texts for documents in like]),
        _known([documents.scores for documents in like]),
        _known([documents.labels for documents in like]),
    )


def _known(columns: Sequence[Sequence[T | None]]) -> list[T | None]:
    return [next((part for part in parts if part is not None), None) for parts in zip(*columns, strict=True)]


def _digest(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]


_DEEPEST: Final = 12
"""How deep LangChain's objects are looked for in each other."""
_Key = tuple[str | None, str | None]


class Naming:
    """Finds ids that are missing.

    A vector database's client inside the retriever knows them; OpenLLMetry leaves them off LangChain's retriever but
    writes whole documents on the steps around it. What metadata call a document comes after both.

    Args:
        trace: The request's spans.
        reader: Reads documents.
    """

    def __init__(self, trace: Trace, reader: DocumentReader) -> None:
        self._trace = trace
        self._reader = reader

    def complete(self, found: SpanDocuments, inner: Sequence[SpanDocuments] = ()) -> SpanDocuments:
        """A list with ids, where those can be had; else as it was.

        Args:
            found: What a step tells.
            inner: What the steps inside it tell.
        """
        if found.documents is None or found.reason != constants.NO_IDS:
            return found  # where a limit took something off the span they had ids that other names would not match
        for other in inner:
            same = _same(found.documents, other)
            if same is not None:
                return SpanDocuments(same)
        if self._reader.id_from is None:
            asked = list(zip(found.documents.texts, found.documents.labels, strict=True))
            written = found.documents.called([self._written.get(key) for key in asked])
            if written.known:
                return SpanDocuments(written)
            if any(key in self._written for key in asked):
                return found  # they have ids of their own, and what their metadata call them would match none of those
        return self._reader.named(found.documents) or found

    @cached_property
    def _written(self) -> dict[_Key, str | None]:
        """The ids of documents that LangChain wrote out, by text and label; None where those have several."""
        ids: dict[_Key, str | None] = {}
        for span in self._trace.spans:
            for key in (semconv.ENTITY_INPUT, semconv.ENTITY_OUTPUT):
                value = span.attributes.get(key)
                if isinstance(value, str) and '"page_content"' in value and '"lc"' in value:
                    for document in map(self._reader.document, _objects(decode(value), _DEEPEST)):
                        if document.id is not None and document.text is not None:
                            known = ids.get(_key(document), document.id)
                            ids[_key(document)] = document.id if known == document.id else None
        return ids


def _key(document: Document) -> _Key:
    return document.text, document.label


def _same(documents: Documents, other: SpanDocuments) -> Documents | None:
    """Documents with the ids of another list; None where that may hold other documents."""
    found = other.documents
    if found is None or not found.known or len(found.ids) != len(documents.ids):
        return None
    pairs = zip(documents.texts, found.texts, strict=True)
    alike = all(ours == theirs or None in (ours, theirs) for ours, theirs in pairs)
    return documents.called(found.ids) if alike else None


def _objects(value: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """Every object LangChain wrote into a structure."""
    if isinstance(value, Mapping) and value.get("lc") == 1:
        yield value
    if depth and isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _objects(inner, depth - 1)
