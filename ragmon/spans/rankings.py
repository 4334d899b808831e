"""Lists of documents: their ids, and how several of them become one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar, cast

from ragmon.spans.documents import Document, Documents, Found
from ragmon.spans.model import Merge

RRF_K: Final = 60
"""The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher 2009)."""
T = TypeVar("T")


def ids_of(found: Found | None) -> list[str] | None:
    """The ids of a list, in its order; None where one of them is unknown."""
    return None if found is None or found.documents is None else _all(found.documents.ids)


def texts_of(found: Found) -> list[str] | None:
    """The texts of a list; None where one of them is unknown, or there are none."""
    return None if found.documents is None else _all(found.documents.texts) or None


def scores_of(found: Found) -> list[float] | None:
    """The scores of a list; None where one of them is unknown, or there are none."""
    return None if found.documents is None else _all(found.documents.scores) or None


def _all(column: Sequence[T | None]) -> list[T] | None:
    """A column; None where one of its entries is unknown."""
    return None if None in column else cast("list[T]", [*column])


def chosen_from(found: Found, pool: Found) -> bool:
    """Whether a list was ranked anew or selected from another one."""
    ids, others = ids_of(found), ids_of(pool)
    return ids is not None and others is not None and ids != others and set(ids) <= set(others)


def merged(lists: Sequence[Found], merge: Merge = "concat") -> Found:
    """Several lists as one; unknown where one of them is, for its documents would be missing silently.

    Args:
        lists: In the order they were found.
        merge: `last` keeps the last one; `concat` puts one after the other, a document at its first place; `rrf` ranks
            by the sum of 1 / (60 + rank).

    >>> one, two = (Found(Documents.of(map(Document, ids))) for ids in ("ab", "cb"))
    >>> ids_of(merged([one, two])), ids_of(merged([one, two], "rrf")), ids_of(merged([one, two], "last"))
    (['a', 'b', 'c'], ['b', 'a', 'c'], ['c', 'b'])
    """
    if merge == "last" or len(lists) == 1:
        return lists[-1] if lists else Found(Documents.of([]))
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
    return Found(Documents.of(documents), reason)
