"""Lists of documents: their ids, and how several of them become one.

What a request retrieved: which of its spans count, and what reranking made of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar, cast

import msgspec

from ragmon.ingest.spans.documents import Document, DocumentReader, Documents, Naming, SpanDocuments
from ragmon.ingest.spans.model import CONTENT_NOT_CAPTURED, NO_RETRIEVAL, TOO_MANY_STEPS, Merge, Role, Span, Trace

RRF_K: Final = 60
"""The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher 2009)."""
T = TypeVar("T")


def ids_of(found: SpanDocuments | None) -> list[str] | None:
    """The ids of a list, in its order; None where one of them is unknown."""
    return None if found is None or found.documents is None else _all(found.documents.ids)


def texts_of(found: SpanDocuments) -> list[str] | None:
    """The texts of a list; None where one of them is unknown, or there are none."""
    return None if found.documents is None else _all(found.documents.texts) or None


def scores_of(found: SpanDocuments) -> list[float] | None:
    """The scores of a list; None where one of them is unknown, or there are none."""
    return None if found.documents is None else _all(found.documents.scores) or None


def _all(column: Sequence[T | None]) -> list[T] | None:
    """A column; None where one of its entries is unknown."""
    return None if None in column else cast("list[T]", [*column])


def chosen_from(found: SpanDocuments, pool: SpanDocuments) -> bool:
    """Whether a list was ranked anew or selected from another one."""
    ids, others = ids_of(found), ids_of(pool)
    return ids is not None and others is not None and ids != others and set(ids) <= set(others)


def merged(lists: Sequence[SpanDocuments], merge: Merge = "concat") -> SpanDocuments:
    """Several lists as one; unknown where one of them is, for its documents would be missing silently.

    Args:
        lists: In the order they were found.
        merge: `last` keeps the last one; `concat` puts one after the other, a document at its first place; `rrf` ranks
            by the sum of 1 / (60 + rank).

    >>> one, two = (SpanDocuments(Documents.of(map(Document, ids))) for ids in ("ab", "cb"))
    >>> ids_of(merged([one, two])), ids_of(merged([one, two], "rrf")), ids_of(merged([one, two], "last"))
    (['a', 'b', 'c'], ['b', 'a', 'c'], ['c', 'b'])
    """
    if merge == "last" or len(lists) == 1:
        return lists[-1] if lists else SpanDocuments(Documents.of([]))
    unknown = next((found for found in lists if found.documents is None), None)
    if unknown is not None:
        return unknown
    best: dict[Any, Document] = {}
    weight: dict[Any, float] = {}
    for found in lists:
        for rank, (name, text, _, label) in enumerate(found.rows(), start=1):
            key = (name, text if name is None else None)
            # Scores of different retrievers do not compare.
            best.setdefault(key, Document(name, text, None, label))
            weight[key] = weight.get(key, 0.0) + 1 / (RRF_K + rank)
    documents = [best[key] for key in (sorted(best, key=lambda key: -weight[key]) if merge == "rrf" else best)]
    reason = next((found.reason for found in lists if found.reason), "")
    return SpanDocuments(Documents.of(documents), reason)


STEPS: Final = 512
"""Retrievals and rerankings of a request that are followed; what so many of them brought together nobody ranked."""


class Retrieved(msgspec.Struct, frozen=True, gc=False):
    """What a request retrieved.

    Attributes:
        final: What was left after reranking.
        candidates: What the retrievers had found, where a reranker chose among it.
    """

    final: SpanDocuments
    candidates: SpanDocuments | None


class Retrievals:
    """Follows the retrievals and rerankers of a request in the order they ended.

    A step inside another one is part of it, where the outer one tells of its documents.

    Args:
        trace: The request's spans.
        reader: Reads the documents of one span.
    """

    def __init__(self, trace: Trace, reader: DocumentReader) -> None:
        self._trace = trace
        self._reader = reader
        self._naming = Naming(trace, reader)
        self._crowded = len(trace.steps) > STEPS
        self._told = {} if self._crowded else {span.span_id: self._read(span) for span in trace.steps}
        self._final: list[SpanDocuments] = []
        self._candidates: list[SpanDocuments] = []

    def read(self, merge: Merge) -> Retrieved:
        """What the request retrieved.

        Args:
            merge: What several independent retrievals make.
        """
        if self._crowded:
            return Retrieved(SpanDocuments(None, TOO_MANY_STEPS), None)
        for span in self._trace.steps:
            if all(self._told.get(span_id) is None for span_id in self._trace.above(span)):
                (self._rerank if self._reranks(span) else self._retrieve)(span)
        if not self._final:
            attached = [found for span in self._trace.tops if (found := self._reader.attached(span)) is not None]
            unknown = SpanDocuments(None, CONTENT_NOT_CAPTURED if self._told else NO_RETRIEVAL)
            self._final = [self._naming.complete(found) for found in attached] or [unknown]
        return Retrieved(merged(self._final, merge), merged(self._candidates) if self._candidates else None)

    def _reranks(self, span: Span) -> bool:
        return self._trace.role(span) == Role.RERANKING

    def _read(self, span: Span) -> SpanDocuments | None:
        return self._reader.reranked(span) if self._reranks(span) else self._reader.retrieved(span)

    def _retrieve(self, span: Span) -> None:
        """A retriever that reranks or fuses what others inside it found has candidates of its own."""
        inner = self._inside(span)
        told = self._told[span.span_id]
        if told is not None:
            found = self._naming.complete(told, inner)
            self._final.append(found)
            pool = [self._naming.complete(other) for other in inner]
            if pool and chosen_from(found, merged(pool)):
                self._candidates += pool
        elif not inner and not span.failed:
            self._final.append(SpanDocuments(None, CONTENT_NOT_CAPTURED))

    def _rerank(self, span: Span) -> None:
        """A reranker replaces the lists it shares documents with; all of them where that cannot be told."""
        found = self._naming.complete(self._told[span.span_id] or SpanDocuments(None, CONTENT_NOT_CAPTURED))
        given = self._naming.complete(self._reader.given(span) or SpanDocuments(None))
        seen = {*(ids_of(found) or ()), *(ids_of(given) or ())}
        replaced = [before for before in self._final if seen & set(ids_of(before) or ())] or list(self._final)
        pool = replaced if ids_of(given) is None or ids_of(merged(replaced)) else [given]
        # What an earlier reranker left is no candidate: what it chose from stands there already.
        self._candidates += [before for before in pool if not chosen_from(before, merged(self._candidates))]
        self._final = [before for before in self._final if not any(before is other for other in replaced)] + [found]

    def _inside(self, span: Span) -> list[SpanDocuments]:
        """What the retrievals inside a step tell."""
        inner = [
            self._told[other.span_id]
            for other in self._trace.steps
            if span.span_id in self._trace.above(other) and not self._reranks(other)
        ]
        return [found for found in inner if found is not None]
