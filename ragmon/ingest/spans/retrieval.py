"""The documents that a request retrieved: the retrieval and reranking spans that count, and their lists combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar, cast

import msgspec

from ragmon.ingest.spans.documents import Document, DocumentReader, Documents, IdLookup, SpanDocuments
from ragmon.ingest.spans.messages import tool_results
from ragmon.ingest.spans.model import CONTENT_NOT_CAPTURED, NO_RETRIEVAL, TOO_MANY_STEPS, Merge, Role, Span, Trace
from ragmon.ingest.spans.reasons import OUTPUT, unread

RRF_K: Final = 60
"""The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher 2009)."""
T = TypeVar("T")


def ids_of(documents: SpanDocuments | None) -> list[str] | None:
    """The ids of a list, in its order; None where one of them is unknown."""
    return None if documents is None or documents.documents is None else _complete_or_none(documents.documents.ids)


def texts_of(documents: SpanDocuments) -> list[str] | None:
    """The texts of a list; None where one of them is unknown, or the list is empty."""
    return None if documents.documents is None else _complete_or_none(documents.documents.texts) or None


def scores_of(documents: SpanDocuments) -> list[float] | None:
    """The scores of a list; None where one of them is unknown, or the list is empty."""
    return None if documents.documents is None else _complete_or_none(documents.documents.scores) or None


def _complete_or_none(column: Sequence[T | None]) -> list[T] | None:
    """A column; None where one of its entries is unknown."""
    return None if None in column else cast("list[T]", [*column])


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

    >>> one, two = (SpanDocuments(Documents.of(map(Document, ids))) for ids in ("ab", "cb"))
    >>> ids_of(merged([one, two])), ids_of(merged([one, two], "rrf")), ids_of(merged([one, two], "last"))
    (['a', 'b', 'c'], ['b', 'a', 'c'], ['c', 'b'])
    """
    if merge == "last" or len(lists) == 1:
        return lists[-1] if lists else SpanDocuments(Documents.of([]))
    unknown = next((ranked for ranked in lists if ranked.documents is None), None)
    if unknown is not None:
        return unknown
    best: dict[Any, Document] = {}
    weight: dict[Any, float] = {}
    for ranked in lists:
        for rank, (name, text, _, label) in enumerate(ranked.rows(), start=1):
            key = (name, text if name is None else None)
            # Scores of different retrievers are not comparable.
            best.setdefault(key, Document(name, text, None, label))
            weight[key] = weight.get(key, 0.0) + 1 / (RRF_K + rank)
    documents = [best[key] for key in (sorted(best, key=lambda key: -weight[key]) if merge == "rrf" else best)]
    reason = next((ranked.reason for ranked in lists if ranked.reason), "")
    return SpanDocuments(Documents.of(documents), reason)


MAX_STEPS: Final = 512
"""The maximum number of retrievals and rerankings of a request that are followed; the order of so many lists means
nothing."""


class Retrieved(msgspec.Struct, frozen=True, gc=False):
    """The documents that a request retrieved.

    Attributes:
        final: The documents after reranking.
        candidates: The documents of the retrievers, where a reranker selected among them.
    """

    final: SpanDocuments
    candidates: SpanDocuments | None


class Retrievals:
    """Follows the retrievals and rerankings of a request in the order of their end times.

    A step inside another one is a part of it, where the outer one has documents.

    Args:
        trace: The request's spans.
        reader: Reads the documents of one span.
    """

    def __init__(self, trace: Trace, reader: DocumentReader) -> None:
        self._trace = trace
        self._reader = reader
        self._naming = IdLookup(trace, reader)
        self._too_many_steps = len(trace.steps) > MAX_STEPS
        self._documents = {} if self._too_many_steps else {span.span_id: self._read(span) for span in trace.steps}
        self._prefer_inner_ids()
        self._current: list[SpanDocuments] = []
        self._candidates: list[SpanDocuments] = []

    def read(self, merge: Merge) -> Retrieved:
        """The documents that the request retrieved.

        Args:
            merge: How several independent retrievals become one list.
        """
        if self._too_many_steps:
            return Retrieved(SpanDocuments(None, TOO_MANY_STEPS), None)
        for span in self._trace.steps:
            if all(self._documents.get(span_id) is None for span_id in self._trace.above(span)):
                (self._rerank if self._is_reranker(span) else self._retrieve)(span)
        if not self._current:
            attached = [
                documents for span in self._trace.tops if (documents := self._reader.attached(span)) is not None
            ]
            attached = attached or self._given_to_model()
            unknown = SpanDocuments(None, CONTENT_NOT_CAPTURED if self._documents else NO_RETRIEVAL)
            self._current = [self._naming.complete(documents) for documents in attached] or [unknown]
        return Retrieved(merged(self._current, merge), merged(self._candidates) if self._candidates else None)

    def _is_reranker(self, span: Span) -> bool:
        return self._trace.role(span) == Role.RERANKING

    def _read(self, span: Span) -> SpanDocuments | None:
        if self._trace.role(span) & Role.TOOL:
            return self._reader.returned(span, self._trace.literals)
        return self._reader.reranked(span) if self._is_reranker(span) else self._reader.retrieved(span)

    def _retrieve(self, span: Span) -> None:
        """Add the documents of a retriever; if it selected among those of inner retrievers, these are candidates."""
        inner_lists = self._inner_retrievals(span)
        documents = self._documents[span.span_id]
        if documents is not None:
            completed = self._naming.complete(documents, inner_lists)
            self._current.append(completed)
            candidates = [self._naming.complete(inner_list) for inner_list in inner_lists]
            if candidates and is_subset_or_reordering(completed, merged(candidates)):
                self._candidates += candidates
        elif not inner_lists and not span.failed:
            self._current.append(SpanDocuments(None, unread([span], OUTPUT)))

    def _rerank(self, span: Span) -> None:
        """Replace the lists that share documents with a reranker, or all lists where none does."""
        reranked = self._naming.complete(self._documents[span.span_id] or SpanDocuments(None, unread([span], OUTPUT)))
        given = self._naming.complete(self._reader.reranker_input(span) or SpanDocuments(None))
        ids = {*(ids_of(reranked) or ()), *(ids_of(given) or ())}
        inputs = [documents for documents in self._current if ids & set(ids_of(documents) or ())] or list(self._current)
        candidates = inputs if ids_of(given) is None or ids_of(merged(inputs)) else [given]
        # The output of an earlier reranker is no candidate: its input is there already.
        self._candidates += [
            documents for documents in candidates if not is_subset_or_reordering(documents, merged(self._candidates))
        ]
        self._current = [
            documents for documents in self._current if not any(documents is replaced for replaced in inputs)
        ] + [reranked]

    def _given_to_model(self) -> list[SpanDocuments]:
        """The documents that tools returned to the last model call, where no span is a retrieval."""
        if self._documents:
            return []
        for call in reversed(self._trace.calls):
            results = (self._reader.given(result, self._trace.literals) for result in tool_results(call))
            documents = [listed for listed in results if listed is not None]
            if documents:
                return documents
        return []

    def _prefer_inner_ids(self) -> None:
        """Leave it to the retrievers inside a tool where only they name the documents: it returned their texts."""
        for span in self._trace.steps:
            documents = self._documents.get(span.span_id)
            has_no_ids = self._trace.role(span) & Role.TOOL and documents is not None and documents.reason
            if has_no_ids and any(ids_of(inner) is not None for inner in self._inner_retrievals(span)):
                self._documents[span.span_id] = None

    def _inner_retrievals(self, span: Span) -> list[SpanDocuments]:
        """The documents of the retrievals inside a step."""
        lists = [
            self._documents[other.span_id]
            for other in self._trace.steps
            if span.span_id in self._trace.above(other) and not self._is_reranker(other)
        ]
        return [documents for documents in lists if documents is not None]
