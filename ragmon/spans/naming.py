"""The ids of documents whose own span leaves them out, as other spans of the request give them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from ragmon.core import constants, semconv
from ragmon.spans.documents import Document, Documents, Found
from ragmon.spans.reading import DocumentReader
from ragmon.spans.trace import Trace
from ragmon.spans.values import decode

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

    def complete(self, found: Found, inner: Sequence[Found] = ()) -> Found:
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
                return Found(same)
        if self._reader.id_from is None:
            asked = list(zip(found.documents.texts, found.documents.labels, strict=True))
            written = found.documents.called([self._written.get(key) for key in asked])
            if written.known:
                return Found(written)
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


def _same(documents: Documents, other: Found) -> Documents | None:
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
