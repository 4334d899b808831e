"""Ids, texts and scores of documents, whatever a retriever calls them: plain ids, dicts, LangChain, LlamaIndex."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from numbers import Integral, Real
from typing import Any, Final, NamedTuple, TypeGuard
from uuid import UUID

from ragmon.core.bounds import DOCUMENTS, KEPT
from ragmon.core.log import warn_once
from ragmon.core.paths import Path, look_up, member
from ragmon.core.text import clean

_OWN_ID: Final = ("id", "node_id")
_IN_METADATA: Final = ("id", "chunk_id", "doc_id")
_TEXT: Final = ("text", "page_content", "content")


class Documents(NamedTuple):
    """What is known of some documents, in rank order; each part is None where not every document has it."""

    ids: list[str] | None = None
    texts: list[str] | None = None
    scores: list[float] | None = None


def read_documents(found: Any, id_from: Path | None, *, strings: str = "ids") -> Documents:
    """What is known of documents.

    Args:
        found: A collection of them; anything else holds none.
        id_from: Path from a document to its id; None tries the usual places.
        strings: What a plain string among them is: `ids` or `texts`.
    """
    if not is_listed(found):
        return Documents()
    scored = [_with_score(document) for document in _first(found)]
    if strings == "texts":
        scored = [({"text": document} if isinstance(document, str) else document, score) for document, score in scored]
    ids = ids_of((document for document, _ in scored), id_from)
    texts = [_text_of(document) for document, _ in scored]
    scores = [score for _, score in scored]
    return Documents(
        ids,
        [text for text in texts if text is not None] if texts and None not in texts else None,
        [score for score in scores if score is not None] if scores and None not in scores else None,
    )


def _first(found: Collection[Any]) -> Iterable[Any]:
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
