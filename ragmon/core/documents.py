"""Documents as vector stores, retrievers, rerankers and tables give them: the names of their parts, and where they lie.

Objects of Python, JSON, cells and spans are opened in ways of their own (`View`) and read by this one table, so the
same documents are one record, whoever reads them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple, TypeVar

from ragmon.core.record import MAX_DOCUMENTS_KEPT
from ragmon.core.shapes import document_hints
from ragmon.core.text import Path

ID_KEYS: Final = ("id", "node_id", "id_")
METADATA_ID_KEYS: Final = ("id", "chunk_id", "doc_id")
OTHER_ID_KEYS: Final = (
    *("_id", "chunk_id", "passage_id", "doc_id", "document_id", "chunkId", "docId", "documentId"),
    *("docid", "pid", "pk", "uuid", "file_id"),
)
"""Where a document has its id if its metadata has none of the usual names; at last its metadata may have these."""
METADATA_KEYS: Final = ("metadata", "meta", "payload", "_source", "fields", "properties", "entity")
"""Of LangChain and Pinecone, Haystack, Qdrant, Elasticsearch, Vespa, Weaviate, Milvus."""
_OF_RETRIEVERS: Final = METADATA_KEYS[:2]
"""Where a score is the retriever's: the others hold what the user stored."""
NODE_KEYS: Final = ("node", "document", "doc", "chunk")
"""The objects in a hit that are the document: of LlamaIndex, Typesense, Cohere, Vertex."""
TEXT_KEYS: Final = (
    *("text", "page_content", "pageContent", "content", "document"),
    *("chunk", "chunk_text", "passage", "snippet", "excerpt", "long_text", "text_resource"),
)
SCORE_KEYS: Final = (
    *("score", "_score", "similarity", "similarity_score", "relevance", "relevance_score", "_relevance_score"),
    *("@search.score", "certainty", "text_match", "_rankingScore"),
)
DISTANCE_KEYS: Final = ("distance", "_distance")
"""Say as much as a score, but the smallest is best; they are no scores of a record."""
_PLACE_KEYS: Final = ("index", "corpus_id")
"""The place of a reranker's document among those that it was given, from 0."""
LOCATION: Final = "location"
_LOCATION_KEYS: Final = ("uri", "url", "id")
"""Of Bedrock: `{"location": {"s3Location": {"uri": …}}}`."""
LIST_KEYS: Final = (
    *("documents", "results", "hits", "chunks", "matches", "sources", "nodes", "artifact"),
    *("docs", "passages", "contexts", "context", "points", "source_documents", "value"),
    *("objects", "children", "retrievalResults"),
)
"""Where a result has its list of documents."""
DOCUMENT_FIELDS: Final = (
    *("documents", "source_documents", "source_nodes", "chunks", "contexts", "context", "docs", "retrieved_documents"),
    *("retrieved_docs", "retrieved_contexts", "retrieval_context", "passages"),
)
"""Where an answer has the documents that it was made from."""
_RESULT_KEYS: Final = (*LIST_KEYS, "root", "data")
_COLUMNS: Final = {
    **{name: name for name in (*ID_KEYS, *OTHER_ID_KEYS, *TEXT_KEYS, *SCORE_KEYS, *METADATA_KEYS, "title")},
    **{f"{name}s": name for name in ("id", "document", "text", "content", "score", "distance", "metadata", "title")},
}
"""The names of columns, and the member of a row that each of them holds."""
_LIST_DEPTH: Final = 3
_MOST: Final = MAX_DOCUMENTS_KEPT + 1
"""Of a list; one more than a record keeps, so that a cut is noticed."""
_ID: Final = re.compile(r"\S{1,200}")
_LARGEST_FLOAT: Final = 2.0**53
T = TypeVar("T")


class View(NamedTuple):
    """How a reader looks into its values.

    Attributes:
        fields: The members of an object, by name; empty for other values.
        entries: The entries of a list or of a table; None for other values.
        scalar: A text or a number as JSON has it, also of an id of a database; None for other values.
        attempt: Calls a function for a field; None where it raises what must not cost the other fields.
    """

    fields: Callable[[Any], dict[str, Any]]
    entries: Callable[[Any], Sequence[Any] | None]
    scalar: Callable[[Any], str | int | float | None]
    attempt: Callable[..., Any]


class Document(NamedTuple):
    """One document; its label is the id in its metadata, used where it has no id of its own."""

    id: str | None = None
    text: str | None = None
    score: float | None = None
    label: str | None = None
    title: str | None = None
    place: int | None = None


class Parts(NamedTuple):
    """The objects that a document consists of: the hit and the document in it, and the metadata of both."""

    own: list[dict[str, Any]]
    metadata: list[dict[str, Any]]


def as_id(value: Any) -> str | None:
    """An id as text: of a text, or of a whole number; pandas writes 7.0 for 7.

    >>> as_id("a"), as_id(7), as_id(7.0), as_id(1.5), as_id(True), as_id("")
    ('a', '7', '7', None, None, None)
    """
    if isinstance(value, str):
        return value or None
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_FLOAT:
        return str(int(value))
    is_id = isinstance(value, int) and not isinstance(value, bool) and finite(value) is not None
    return str(value) if is_id else None


def finite(value: Any) -> float | None:
    """A finite number, which may be written as text; None for anything else.

    >>> finite("0.5"), finite(True), finite("nan")
    (0.5, None, None)
    """
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, (float, int, str)):
        return None
    try:
        converted = float(value)
    except (ValueError, OverflowError):
        return None
    return converted if math.isfinite(converted) else None


def list_in(value: Any, view: View, depth: int = _LIST_DEPTH) -> Sequence[Any] | None:
    """The documents in a result in rank order: a list, a table, columns, or an object around one; None for others.

    The lists that answer several queries are joined.
    """
    entries = view.entries(value)
    if entries is not None:
        for entry in entries[:_MOST]:
            if not issubclass(type(entry), list) or _is_row(entry, view):
                return entries
        batches = ((view.entries(entry) or ())[:_MOST] for entry in entries[:_MOST])
        return list(islice(chain.from_iterable(batches), _MOST))
    fields = view.fields(value)
    if not dict.__len__(fields) or not depth:
        return None
    rows = rows_of_columns(fields, view)
    if rows is not None:
        return rows
    inner = (list_in(found, view, depth - 1) for key in _RESULT_KEYS if (found := dict.get(fields, key)) is not None)
    return next((found for found in inner if found is not None), None)


def may_list(value: Any, view: View) -> bool:
    """Whether `list_in` is worth its time."""
    if view.entries(value) is not None:
        return True
    fields = view.fields(value)
    return any(view.entries(dict.get(fields, key)) is not None for key in (*_RESULT_KEYS, *ID_KEYS, "ids")) or any(
        dict.__len__(view.fields(found)) for key in _RESULT_KEYS if (found := dict.get(fields, key)) is not None
    )


def _is_row(entry: Any, view: View) -> bool:
    # A document and its score, or an id and a text: no list of ids.
    found = view.entries(entry)
    if found is None:  # a list whose fields have names
        return True
    values = [view.scalar(value) for value in found[:4]] or [None]
    is_text = [isinstance(value, str) and not _ID.fullmatch(value) for value in values]
    scored = isinstance(values[-1], float) or (isinstance(values[-1], int) and isinstance(values[0], str))
    return len(values) > 1 and (scored or any(is_text))


def rows_of_columns(fields: dict[str, Any], view: View) -> list[dict[str, Any]] | None:
    """The documents of a result in columns, as Chroma's client returns it; None where it is none."""
    columns: dict[str, Sequence[Any]] = {}
    for key, name in _COLUMNS.items():
        column = None if (found := dict.get(fields, key)) is None else view.entries(found)
        if column is not None:
            batches = [view.entries(entry) for entry in column[:_MOST]]
            whole = [entry for batch in batches for entry in (batch or ())[:_MOST]]
            columns.setdefault(name, column if None in batches or not batches else whole)
    of_ids = next((name for name in (*ID_KEYS, *OTHER_ID_KEYS) if name in columns), None)
    if of_ids is None or len(columns) == 1:
        return None
    ids = columns.pop(of_ids)
    rows: dict[str | int, dict[str, Any]] = {}
    for rank, name in enumerate(ids[:_MOST]):
        row = {member: column[rank] for member, column in columns.items() if len(column) == len(ids)}
        # Several queries may find the same document, which keeps its first place.
        rows.setdefault(as_id(view.scalar(name)) or rank, {of_ids: name, **row})
    return list(rows.values())


def parts_of(entry: Any, view: View) -> Parts:
    """The objects that a document consists of; none where it is a text, an id or a row without names."""
    outer = unwrapped(view.fields(entry), view)
    own = [outer] if dict.__len__(outer) else []
    for key in NODE_KEYS:
        node = dict.get(outer, key)
        if (
            node is not None
            and (view.scalar(node) is None or key == "node")
            and dict.__len__(node := view.fields(node))
        ):
            own.append(unwrapped(node, view))
            break
    values = [value for fields in own for key in METADATA_KEYS if (value := dict.get(fields, key)) is not None]
    return Parts(own, [fields for value in values if dict.__len__(fields := view.fields(value))])


def unwrapped(fields: dict[str, Any], view: View) -> dict[str, Any]:
    """The members of an object of LangChain, out of its serialised form."""
    return view.fields(dict.get(fields, "kwargs")) if dict.get(fields, "lc") == 1 else fields


def read_document(entry: Any, view: View, id_from: Path | None = None, *, are_ids: bool = False) -> Document:
    """Read a document: an object, an id, a text, or a row without names.

    Args:
        entry: The document.
        view: How to look into it.
        id_from: The location of its id, where the usual names do not hold it.
        are_ids: Whether texts in place of documents are ids.
    """
    value = view.scalar(entry)
    parts = Parts([], []) if value is not None and not _is_object(value) else parts_of(entry, view)
    if parts.own:
        return _read(entry, parts, view, id_from)
    if value is None:
        row = view.entries(entry)
        return _row(row, view, id_from, are_ids=are_ids) if row else Document()
    if isinstance(value, str) and not are_ids and issubclass(type(entry), str | bytes | bytearray):
        return Document(text=value)
    return Document(value if isinstance(value, str) else as_id(value))


def _is_object(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip()[:1] == "{"


def _row(row: Sequence[Any], view: View, id_from: Path | None, *, are_ids: bool) -> Document:
    # A document and its score, or an id, a text and a score as a query of SQL returns them.
    values = [view.scalar(entry) for entry in row[:8]]
    texts = [value for value in values if isinstance(value, str)]
    score = next((finite(value) for value in values[1:] if isinstance(value, int | float)), None)
    if values[0] is None or len(texts) + isinstance(values[0], int | float) < 2:
        read = Document() if view.entries(row[0]) else read_document(row[0], view, id_from, are_ids=are_ids)
        return read if score is None else read._replace(score=score)
    name = as_id(values[0]) if not isinstance(values[0], str) else next(filter(_ID.fullmatch, texts), texts[0])
    return Document(name, next((text for text in texts if text is not name), None), score)


def _read(entry: Any, parts: Parts, view: View, id_from: Path | None) -> Document:
    name, label = view.attempt("ids", _names, entry, parts, view, id_from) or (None, None)
    return Document(
        name,
        view.attempt("contexts", _text_of, parts, view),
        view.attempt("scores", _score, parts, view),
        label,
        _first([*parts.own, *parts.metadata], ("title",), _text, view),
        _first(parts.own[:1], _PLACE_KEYS, _place, view),
    )


def _first(
    holders: list[dict[str, Any]], keys: Sequence[str], convert: Callable[[Any, View], T | None], view: View
) -> T | None:
    for fields in holders:
        for key in keys:
            if (value := dict.get(fields, key)) is not None and (found := convert(value, view)) is not None:
                return found
    return None


def _id(value: Any, view: View) -> str | None:
    found = view.scalar(value)
    return as_id(view.scalar(dict.get(view.fields(value), "$oid")) if found is None else found)  # MongoDB's JSON


def _number(value: Any, view: View) -> float | None:
    return finite(view.scalar(value))


def _place(value: Any, view: View) -> int | None:
    found = view.scalar(value)
    return found if type(found) is int else None


def _text(value: Any, view: View) -> str | None:
    # A text, the text in an object of Bedrock, or the texts of parts.
    found = view.scalar(value)
    if found is not None:
        return found if isinstance(found, str) else None
    parts = view.entries(value)
    inner = [view.scalar(dict.get(view.fields(part), "text")) for part in ([value] if parts is None else parts)]
    texts = [text for text in inner if isinstance(text, str)]
    return "".join(texts) if texts and len(texts) == len(inner) else None


def _text_of(parts: Parts, view: View) -> str | None:
    text = _first(parts.own, TEXT_KEYS, _text, view)
    return text or _first(parts.metadata, TEXT_KEYS, _text, view) or text


def _score(parts: Parts, view: View) -> float | None:
    score = _first(parts.own, SCORE_KEYS, _number, view)
    if score is not None or not parts.metadata:
        return score
    inner = [view.fields(dict.get(fields, key)) for fields in parts.own for key in _OF_RETRIEVERS]
    return _first(inner, SCORE_KEYS, _number, view)


def _names(entry: Any, parts: Parts, view: View, id_from: Path | None) -> tuple[str | None, str | None]:
    # The id of a document, and that in its metadata.
    own, metadata = parts
    name = _first(own, ID_KEYS, _id, view)
    if id_from is not None:
        configured = _configured(entry, parts, view, id_from)
        is_own = len(id_from) == 1 and id_from[0] in ID_KEYS  # each name of it stands for all
        return name if configured is None and is_own else configured, None
    label = _first(metadata, METADATA_ID_KEYS, _id, view)
    if name is None and label is None:
        name = _first(own, OTHER_ID_KEYS, _id, view) or _location(own, view)
        name = name or _first(metadata, OTHER_ID_KEYS, _id, view)
    return name, label


def _location(own: list[dict[str, Any]], view: View) -> str | None:
    places = [place for fields in own for place in dict.values(view.fields(dict.get(fields, LOCATION)))]
    return _first([view.fields(place) for place in places], _LOCATION_KEYS, _id, view)


def _configured(entry: Any, parts: Parts, view: View, path: Path) -> str | None:
    # Where `id_from` says: in the entry, or in the document in it; `metadata` stands for each name of it.
    inner = parts.metadata if path[:1] in (("metadata",), ("meta",)) else parts.own if path[:1] == ("node",) else []
    starts = [(entry, path), *((fields, path) for fields in parts.own), *((fields, path[1:]) for fields in inner)]
    names = (_id(_at(start, steps, view), view) for start, steps in starts if steps)
    return next(filter(None, names), None)


def _at(value: Any, path: Path, view: View) -> Any:
    for step in path:
        if isinstance(step, str):
            value = dict.get(view.fields(value), step)
        else:
            entries = view.entries(value) or ()
            value = entries[step] if -len(entries) <= step < len(entries) else None
        if value is None:
            return None
    return value


def note_ids(found: Document, entry: Any, view: View) -> None:
    """Remember the other ids of a document, for hints."""
    own, metadata = parts_of(entry, view)
    if own:
        document_hints.note(found.id or found.label, own[-1], metadata[0] if metadata else None)


def first_known(*documents: Document) -> Document:
    """One document out of what several lists say of it, the surest first."""
    return Document(
        *(next((part for part in parts if part is not None), None) for parts in zip(*documents, strict=True))
    )


def matched(documents: Sequence[Document], pool: Sequence[Document]) -> list[Document]:
    """Documents of a reranker with what it left out, from the documents that it was given.

    They are the same by their id, else by their text; rerankers that return neither say the place of each document.

    >>> matched([Document("b"), Document("a")], [Document("a", "one"), Document("b", "two")])
    [Document(id='b', text='two', score=None, label=None, title=None, place=None), \
Document(id='a', text='one', score=None, label=None, title=None, place=None)]
    """
    by_id = {found.id or found.label: found for found in reversed(pool)}
    by_text: dict[str | None, Document | None] = {}
    for found in pool:
        by_text[found.text] = found if found.text not in by_text else None
    places = [each.place for each in documents]
    are_places = len({*places}) == len(places) and all(place is not None and 0 <= place < len(pool) for place in places)
    completed = []
    for each in documents:
        name = each.id or each.label
        given = by_id.get(name) if name is not None else None if each.text is None else by_text.get(each.text)
        if given is None and name is None and are_places:
            given = pool[each.place or 0]
            given = given if None in (each.text, given.text) or each.text == given.text else None
        if given is not None:
            text = given.text if each.text is None else each.text
            each = each._replace(id=name or given.id or given.label, text=text, title=each.title or given.title)  # noqa: PLW2901
        completed.append(each)
    return completed
