"""The documents on one span, wherever its instrumentation put them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ragmon import attributes as keys
from ragmon import names
from ragmon.spans import sources
from ragmon.spans.model import ATTRIBUTES_DROPPED, CONTENT_NOT_CAPTURED, Path, Span
from ragmon.spans.values import as_id, mapping, number, opened, plain

HASH_DIGITS: Final = 16
_OWN_ID: Final = ("id", "node_id", "id_", "_id")
_IN_METADATA: Final = ("id", "chunk_id", "doc_id")
_TEXT: Final = ("text", "page_content", "content")
_FLAT: Final = frozenset({"id", "content", "score", "metadata"})
"""What conventions call the parts of a document; one that has no others needs no second look."""
_NODE: Final = re.compile(r"<NodeWithScore\(node=\w+\(id_=(?P<id>.*)\), score=(?P<score>[^)]*)\)>", re.DOTALL)
"""LlamaIndex's scored nodes as text."""
_HAYSTACK: Final = re.compile(r"Document\(id=(?P<id>.*?), (?:content|blob|meta|score|embedding)\b")
"""Haystack's documents as text."""


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

    @property
    def told(self) -> bool:
        """Whether no other list could add to it."""
        return None not in (self.id, self.text, self.score)


class Found(NamedTuple):
    """What a span says about documents.

    Attributes:
        documents: In rank order; None where that is unknown.
        reason: Why they are unknown, or why their ids are.
    """

    documents: list[Document] | None
    reason: str = ""

    @property
    def known(self) -> bool:
        """Whether all ids are."""
        return self.documents is not None and all(document.id is not None for document in self.documents)


class DocumentReader(NamedTuple):
    """Reads documents.

    Attributes:
        id_from: Where a document's id is; None tries the usual places.
        content_hash: A document without an id is called by the start of its text's SHA-256.
    """

    id_from: Path | None = None
    content_hash: bool = False

    def retrieved(self, span: Span) -> Found | None:
        """The documents a retrieval found; None where the span says nothing of any."""
        return self._read(span, sources.RETRIEVED)

    def reranked(self, span: Span) -> Found | None:
        """The documents a reranker left, in its order."""
        return self._read(span, sources.RERANKED)

    def given(self, span: Span) -> Found | None:
        """The documents a reranker was given."""
        return self._read(span, sources.GIVEN)

    def attached(self, span: Span) -> Found | None:
        """The documents on the span of a whole request, as OpenTelemetry's conventions allow."""
        return self._read(span, sources.ATTACHED) if keys.DOCUMENTS in span.attributes else None

    def _read(self, span: Span, places: Sequence[sources.Source]) -> Found | None:
        """The first list whose documents all have ids; texts and scores also from another one of its length."""
        lists: list[list[Document]] = []
        reason = ATTRIBUTES_DROPPED if span.dropped else ""
        for place in places:
            found = place(span)
            if isinstance(found, str):
                reason = reason or found
            elif found is not None:
                lists.append([self.document(entry) for entry in found])
                if len(lists) == 1 and all(document.told for document in lists[0]):
                    return Found(lists[0])
        if not lists:
            return Found(None, reason) if reason else None
        best = next((entries for entries in lists if all(entry.id is not None for entry in entries)), lists[0])
        like = [entries for entries in lists if len(entries) == len(best)]
        documents = best if len(like) == 1 else [_completed(versions) for versions in zip(best, *like, strict=True)]
        found = Found(documents)
        if found.known:
            return found
        hidden = not any(document.id or document.label or document.text for document in documents)
        return Found(documents, reason or (CONTENT_NOT_CAPTURED if hidden else names.NO_IDS))

    def named(self, documents: Sequence[Document]) -> Found | None:
        """Documents without ids of their own, by what their metadata call them, or by the hash of their texts."""
        for name in (_label, _digest) if self.content_hash else (_label,):
            whole = Found([document._replace(id=document.id or name(document)) for document in documents])
            if whole.known:
                return whole
        return None

    def document(self, entry: Any) -> Document:
        """A document as a framework or an instrumentation wrote it."""
        if self.id_from is None and type(entry) is dict and entry.keys() <= _FLAT:
            label = _called(mapping(entry["metadata"])) if "metadata" in entry else None
            return Document(as_id(entry.get("id")), plain(entry.get("content")), number(entry.get("score")), label)
        view = _view(entry)
        text = next((text for name in _TEXT if (text := plain(view.get(name))) is not None), None)
        score = number(view.get("score"))
        if self.id_from is not None:
            return Document(as_id(_follow(view, self.id_from)), text, score)
        return Document(as_id(view["id"]), text, score, _called(view["metadata"]))


def _completed(versions: Sequence[Document]) -> Document:
    """A document as several lists know it; the first one that knows a part holds, but the id is the first one's."""
    text, score, label = (
        next((part for version in versions if (part := getattr(version, name)) is not None), None)
        for name in ("text", "score", "label")
    )
    return Document(versions[0].id, text, score, label)


def _called(metadata: Mapping[str, Any]) -> str | None:
    """What its metadata call a document."""
    return next((found for name in _IN_METADATA if (found := as_id(metadata.get(name))) is not None), None)


def _label(document: Document) -> str | None:
    return document.label


def _digest(document: Document) -> str | None:
    return None if document.text is None else hashlib.sha256(document.text.encode()).hexdigest()[:HASH_DIGITS]


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
