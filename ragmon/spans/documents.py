"""What is known of lists of documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

import msgspec


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


class Found(msgspec.Struct, frozen=True, gc=False):
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
