"""The documents on one span, wherever its instrumentation put them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from ragmon.core import constants, semconv
from ragmon.spans import sources
from ragmon.spans.documents import Document, Documents, Found
from ragmon.spans.entries import MEMBERS, called, document
from ragmon.spans.flattened import Table
from ragmon.spans.model import ATTRIBUTES_DROPPED, CONTENT_NOT_CAPTURED, Path, Span
from ragmon.spans.values import as_id, number, plain

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
        return self._read(span, sources.ATTACHED) if semconv.DOCUMENTS in span.attributes else None

    def _read(self, span: Span, places: Sequence[sources.Source]) -> Found | None:
        """The first list whose documents all have ids; texts and scores also from another one of its length."""
        lists: list[Documents] = []
        reason = ATTRIBUTES_DROPPED if span.dropped else ""
        for place in places:
            found = place(span)
            if isinstance(found, str):
                reason = reason or found
            elif found is not None:
                documents = self._flat(found) if isinstance(found, Table) else self._listed(found)
                if not lists and documents.whole:
                    return Found(documents)
                lists.append(documents)
        if not lists:
            return Found(None, reason) if reason else None
        documents = _completed(lists)
        if documents.known:
            return Found(documents)
        hidden = not any((*documents.ids, *documents.labels, *documents.texts))
        return Found(documents, reason or (CONTENT_NOT_CAPTURED if hidden else constants.NO_IDS))

    def _listed(self, entries: Iterable[Any]) -> Documents:
        return Documents.of([self.document(entry) for entry in entries])

    def _flat(self, table: Table) -> Documents:
        columns = {name: column[: sources.READ] for name, column in table.columns.items()}
        size = min(table.size, sources.READ)
        if self.id_from is not None or not columns.keys() <= MEMBERS:
            return self._listed(Table(size, table.whole, columns).rows())
        none: list[None] = [None] * size
        return Documents(
            list(map(as_id, columns.get("id", none))),
            list(map(plain, columns.get("content", none))),
            list(map(number, columns.get("score", none))),
            list(map(called, columns["metadata"])) if "metadata" in columns else [*none],
        )

    def document(self, entry: Any) -> Document:
        """One document, be it in a list or not."""
        return document(entry, self.id_from)

    def named(self, documents: Documents) -> Found | None:
        """Documents without ids of their own, by what their metadata call them, or by the hash of their texts."""
        others = [documents.labels]
        if self.content_hash:
            others.append(list(map(_digest, documents.texts)))
        for names_of in others:
            whole = documents.called([own or name for own, name in zip(documents.ids, names_of, strict=True)])
            if whole.known:
                return Found(whole)
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
