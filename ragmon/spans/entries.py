"""One document as a framework or an instrumentation wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ragmon.spans.documents import Document
from ragmon.spans.model import Path
from ragmon.spans.values import as_id, mapping, number, opened, plain

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
        label = called(entry["metadata"]) if "metadata" in entry else None
        return Document(as_id(entry.get("id")), plain(entry.get("content")), number(entry.get("score")), label)
    view = _view(entry)
    text = next((text for name in _TEXT if (text := plain(view.get(name))) is not None), None)
    score = number(view.get("score"))
    if id_from is not None:
        return Document(as_id(_follow(view, id_from)), text, score)
    return Document(as_id(view["id"]), text, score, called(view["metadata"]))


def called(metadata: Any) -> str | None:
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
