"""Chat messages, documents and citations as libraries write them: which keys hold what, the surest first.

Capture reads these keys in objects, ingest in JSON.

A document has an id in its record, and may have another id in its metadata that gold names it by. That is known only
where the record is made: hints to some of them are kept in memory for a while, so that the reader of the counts in the
same process can say which setting would help.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from threading import Lock
from typing import Any, Final, Generic, TypeVar

import msgspec

from ragmon.core.text import Path, fold, look_up

T = TypeVar("T")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NOT_WORD: Final = re.compile(r"[\W_]+")


@lru_cache(4096)  # every row of a file has the same few names
def normalised(name: str) -> str:
    """The key by which names are compared.

    >>> normalised("User Input"), normalised("actualOutput"), normalised("attributes.input.value")
    ('user_input', 'actual_output', 'attributes_input_value')
    """
    return _NOT_WORD.sub("_", _CAMEL.sub("_", name)).strip("_").lower()


def first_of(fields: Mapping[str, Any], keys: Iterable[str], convert: Callable[[Any], T | None]) -> T | None:
    """The first of some fields that converts to a value; None where there is none."""
    for key in keys:
        if (value := convert(fields.get(key))) is not None:
            return value
    return None


# Messages.
USER: Final = "user"
ASSISTANT: Final = "assistant"
ROLES: Final = {
    "human": USER,
    "HumanMessageChunk": USER,
    "ai": ASSISTANT,
    "AIMessageChunk": ASSISTANT,
    "model": ASSISTANT,
}
"""LangChain's and Google's names of the roles."""
OTHER_ROLES: Final = frozenset({"system", "developer", "tool"})
ROLE_KEYS: Final = ("role", "type", "_role")
CONTENT_KEYS: Final = ("content", "parts", "blocks", "_content")
PART_TEXT_KEYS: Final = ("text", "content", "parts", "value", "refusal")
"""Where a part of a content has its text."""
TEXT_PARTS: Final = ("text", "output_text")
"""The types of parts that are surely text."""
_NOT_TEXT: Final = ("reasoning", "thinking", "redacted_thinking", "tool_use", "tool_result", "blob", "file", "uri")
_NOT_TEXT_ENDINGS: Final = ("_call", "_call_output", "_call_response")


def is_text_kind(kind: str) -> bool:
    """Whether a part of a message with this type is text, and no step of the model on its way.

    >>> is_text_kind("output_text"), is_text_kind("function_call")
    (True, False)
    """
    return kind not in _NOT_TEXT and not kind.endswith(_NOT_TEXT_ENDINGS)


# Questions and answers in arguments, inputs, results and outputs.
QUESTION_KEYS: Final = (
    *("question", "query", "q", "user_question", "user_query", "user_input", "user_message", "query_str", "query_text"),
)
ANSWER_KEYS: Final = (
    *("claim", "answer", "final_answer", "response", "response_txt", "result"),
    *("output_text", "output", "outputs", "generation"),
    *("text", "content", "completion", "message", "reply", "refusal"),
)
ALTERNATIVES: Final = ("choices", "generations", "replies", "answers")
"""Lists of which the first entry is the answer."""

CITATION_LIST_KEYS: Final = ("citations", "cited_ids", "cited_documents", "sources", "references")
ID_LIST_KEYS: Final = ("retrieved", "retrieved_ids")

# The conversation and its user, by normalised names, in arguments, bodies, results, columns and metadata of spans.
SESSION_KEYS: Final = (
    *("session", "session_id", "conversation_id", "thread_id", "chat_id", "dialog_id", "dialogue_id", "conv_id"),
    *("chat_session_id", "session_uuid", "conversation_uuid", "thread_uuid", "chat_uuid"),
)
USER_KEYS: Final = ("user_id", "user", "end_user_id", "user_uuid", "userid")
SESSION_OBJECTS: Final = ("session", "conversation", "thread", "chat")
USER_OBJECTS: Final = ("user", "current_user")
"""Objects whose id is that of the conversation or the user."""

# Citations, by normalised names: `documentId` is `document_id`.
COUNTED_FROM_ZERO: Final = ("document_index", "doc_index", "search_result_index")
"""The rank of a document among those of the request, by the definition of Anthropic's citations."""
CITED_KEYS: Final = (
    *("id", "node_id", "chunk_id", "passage_id", "doc_id", "document_id", "source_id"),
    *("chunk_ids", "doc_ids", "document_ids", "source_ids", "ids"),
    *("sources", "documents", "references", "retrieved_references"),
    *COUNTED_FROM_ZERO,
    *("file_id", "url", "uri", "source", "link", "path", "file_path", "filename", "file_name"),
    *("index", "rank", "number", "citation", "reference", "ref", "document_title", "title"),
)
"""Where a citation names its document. Those of the plural may hold a list: Cohere's `document_ids` and `sources`."""
_SURENESS: Final = {key: place for place, key in enumerate(CITED_KEYS)}
CITED_INNER: Final = frozenset(
    {
        *("metadata", "meta", "payload", "fields", "properties", "entity", "kwargs"),
        *("node", "document", "doc", "chunk", "source", "reference"),
        *("url_citation", "file_citation", "location", "s3_location"),
    }
)
"""Objects in a citation that name its document; `kwargs` are of LangChain's serialised objects."""
CITATION_LISTS: Final = ("citations", "annotations")
"""Where an answer, or a part of its content, lists what it cites."""
_NAMES_SOURCE: Final = ("url_citation", "file_citation", "citation")
"""The types of annotations that do; others are files that the model made."""
_HOLDS_ANSWER: Final = (
    *(*CONTENT_KEYS, "message", "messages", *ALTERNATIVES, "output", "response", "result", "answer", "kwargs", "data"),
)
_ANSWER_DEPTH: Final = 10
_ANSWER_PARTS: Final = 256
CITED_DEPTH: Final = 6
_CITED_MEMBERS: Final = 64
_LARGEST_FLOAT: Final = 2.0**53
_LARGEST_BITS: Final = 1024


def cited_names(
    citations: Any, retrieved_ids: Sequence[str] | None = None, id_from: Path | None = None
) -> list[str] | None:
    """The documents that citations name, in the form in which they are written.

    Args:
        citations: A value of JSON: a list, or one citation. A citation is an id, a number, a mark, a title, or an
            object that names documents. Of the names in an object that is the document's which was retrieved, else the
            one under the surest key. Entries that are null are left out.
        retrieved_ids: The retrieved ids in rank order, for ranks that count from 0 by their definition.
        id_from: The location of a document's id, where the usual keys do not hold it.

    Returns:
        The names; None where there is no list, or what an entry cites cannot be told.

    >>> cited_names([{"document_index": 1}, {"documentIds": ["d1"]}, 3, "[2]"], ["d1", "d2"])
    ['d2', 'd1', '3', '[2]']
    >>> cited_names([{"quote": "at nine"}]) is None
    True
    """
    if citations is None:
        return None
    entries = citations if isinstance(citations, list | tuple) else [citations]
    if all(type(entry) is str and entry[:1] != "{" for entry in entries):  # as most lists are
        return list(entries)
    ids = retrieved_ids or ()
    names = _cited(entries, ids, frozenset(ids), id_from, CITED_DEPTH)
    return names or (None if entries else [])


def _fields_of(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _entries_of(value: Any) -> Sequence[Any] | None:
    return value if isinstance(value, list | tuple) else None


def citations_in(
    answer: Any,
    fields_of: Callable[[Any], dict[Any, Any]] = _fields_of,
    entries_of: Callable[[Any], Sequence[Any] | None] = _entries_of,
    depth: int = _ANSWER_DEPTH,
) -> list[Any] | None:
    """The citations beside the parts of an answer, as Anthropic, Cohere, OpenAI and LangChain give them; None without.

    Args:
        answer: The reply of a model's API, a message, or its content.
        fields_of: The members of a value by name; none where it is no object.
        entries_of: The entries of a value; None where it is no list.
        depth: How deep they may lie.

    >>> citations_in({"content": [{"type": "text", "text": "At nine.", "citations": [{"document_index": 1}]}]})
    [{'document_index': 1}]
    >>> citations_in({"annotations": [{"type": "url_citation", "url": "https://a.example"}, {"type": "file_path"}]})
    [{'type': 'url_citation', 'url': 'https://a.example'}]
    """
    if not depth:
        return None
    listed = entries_of(answer)
    if listed is not None:
        if listed and dict.get(fields_of(listed[-1]), "role") is not None:  # the messages of a conversation
            listed = listed[-1:]
        parts = (citations_in(part, fields_of, entries_of, depth - 1) for part in listed[:_ANSWER_PARTS])
        return [cited for part in parts for cited in part or ()] or None
    fields = fields_of(answer)
    for key in CITATION_LISTS:
        found = list(entries_of(dict.get(fields, key)) or ())
        if key == "annotations":
            kinds = (dict.get(fields_of(entry), "type") for entry in found)
            found = [
                entry for entry, kind in zip(found, kinds, strict=True) if type(kind) is str and kind in _NAMES_SOURCE
            ]
        if found:
            return found
    for key in _HOLDS_ANSWER:
        inner = dict.get(fields, key)
        if inner is None or type(inner) is str:
            continue
        listed = entries_of(inner) or ()
        inner = listed[:1] if key in ALTERNATIVES and listed else listed[-1:] if key == "messages" else inner
        if cited := citations_in(inner, fields_of, entries_of, depth - 1):
            return cited
    return None


def named_by_title(names: list[str], titles: Iterable[tuple[Any, Any]]) -> list[str]:
    """Cited names with the titles of retrieved documents replaced by their ids.

    Args:
        names: What is cited.
        titles: The id and the title of each retrieved document.

    >>> named_by_title(["Bus plan", "d2"], [("d1", "Bus plan"), ("d2", None)])
    ['d1', 'd2']
    """
    titled: dict[str, list[str]] = {}
    for document_id, title in titles:
        if isinstance(document_id, str) and isinstance(title, str) and title.strip():
            titled.setdefault(fold(title), []).append(document_id)
    if not titled or any(document_id in names for ids in titled.values() for document_id in ids):
        return names
    return [name for cited in names for name in titled.get(fold(cited), [cited])]


def _cited(entry: Any, ids: Sequence[str], known: frozenset[str], id_from: Path | None, depth: int) -> list[str] | None:
    if entry is None or (isinstance(entry, float) and math.isnan(entry)):
        return []
    if entry == "":  # a name that nobody retrieved
        return [""]
    if isinstance(entry, str) and entry[:1] == "{":  # attributes of spans hold no objects
        entry = _decoded(entry)
    configured = None if id_from is None else _cited_name(look_up(entry, id_from))
    if configured is not None:
        return [configured]
    if isinstance(entry, list | tuple):
        parts = [_cited(part, ids, known, id_from, depth - 1) for part in entry] if depth else [None]
        return None if None in parts else [name for part in parts for name in part or ()]
    if not isinstance(entry, Mapping):
        name = _cited_name(entry)
        return None if name is None else [name]
    surest = None
    for key, value in sorted(_members(entry, depth), key=lambda member: _SURENESS[member[0]]):
        if isinstance(value, list | tuple):
            names = _cited(value, ids, known, id_from, depth - 1) if depth and key.endswith("s") else None
        else:
            names = None if (name := _cited_name(value)) is None else [name]
        if not names:
            continue
        if key in COUNTED_FROM_ZERO:
            if surest is None and names[0].isdecimal():
                rank = int(names[0])
                surest = [ids[rank] if rank < len(ids) else f"[{rank + 1}]"]
        elif not known.isdisjoint(names):
            return names
        else:
            surest = surest or names
    return surest


def _members(entry: Mapping[Any, Any], depth: int) -> Iterator[tuple[str, Any]]:
    # The members of a citation that may name its document, then those of the objects in it.
    inner = []
    for key, value in islice(entry.items(), _CITED_MEMBERS):
        if not isinstance(key, str) or value is None:
            continue
        name = normalised(key)
        if name in _SURENESS:
            yield name, value
        if name in CITED_INNER:
            inner.append(_decoded(value) if isinstance(value, str) else value)
    for value in inner if depth else ():
        if isinstance(value, Mapping):
            yield from _members(value, depth - 1)


def _cited_name(value: Any) -> str | None:
    # An id, a rank or a title; ids of a column of pandas may be 12.0.
    if isinstance(value, str):
        return value if value.strip() else None
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_FLOAT:
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < _LARGEST_BITS
    return str(value) if is_number else None


def _decoded(text: str) -> Any:
    if text[:1] != "{":
        return text
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text


# Hints.
ROOM: Final = 300
"""Documents that are read for other ids, at the start and each time somebody asks for more."""
KEPT: Final = 1000
"""Documents, and requests, that are remembered; the oldest are forgotten first."""
HINT_KEYS: Final = 16
"""Fields of a document that are looked at."""
LONGEST_KEY: Final = 64
LONGEST_ID: Final = 128
# Fields of a document that never hold its id, or that are looked at by themselves.
_NO_IDS: Final = frozenset(
    {"text", "page_content", "content", "score", "metadata", "meta", "embedding", "node", "type"}
)


class BoundedMap(Generic[T]):
    """A mapping of text that holds the newest entries only; several threads may use it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = Lock()
        self._entries: dict[str, T] = {}

    def put(self, key: str, value: T) -> None:
        """Add an entry, as the newest."""
        with self._lock:
            self._entries.pop(key, None)
            if len(self._entries) >= self._size:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = value

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> T | None:
        """The entry of a key; None where there is none."""
        return self._entries.get(key)


class DocumentHints:
    """Other ids of sampled documents, by the id that their record has."""

    def __init__(self) -> None:
        self.room = ROOM
        self.known = False
        self._other_ids = BoundedMap[Mapping[str, str]](KEPT)

    def note(self, document_id: str | None, document: Any, metadata: Any) -> None:
        """Remember a document's other ids."""
        self.room -= 1
        self.known = True
        if document_id is not None:
            self._other_ids.put(document_id, dict(other_ids(document_id, document, metadata)))

    def other_ids(self, document_id: str) -> Mapping[str, str] | None:
        """The other ids of a document by path, such as `metadata.chunk_id`; None where it was not sampled."""
        return self._other_ids.get(document_id)

    def ask(self) -> None:
        """Have further documents read: somebody counts records whose ids do not fit."""
        self.room = ROOM


def other_ids(document_id: str, document: Any, metadata: Any) -> Iterator[tuple[str, str]]:
    """The values of a document that look like ids, by their paths.

    >>> dict(other_ids("e1f7", {"id": "e1f7", "text": "a text"}, {"chunk_id": "heron#1", "title": "Grey herons"}))
    {'metadata.chunk_id': 'heron#1'}
    """
    for prefix, fields in (("metadata.", metadata), ("", document)):
        if not issubclass(type(fields), dict):
            continue
        for key, value in islice(dict.items(fields), HINT_KEYS):
            if type(key) is not str or len(key) > LONGEST_KEY or (not prefix and key in _NO_IDS):
                continue
            if type(value) is int:
                value = str(value)  # noqa: PLW2901 - an id in its usual form
            looks_like_id = type(value) is str and 0 < len(value) <= LONGEST_ID and not any(map(str.isspace, value))
            if looks_like_id and value != document_id and key.replace("-", "_").isidentifier():
                yield f"{prefix}{key}", value


document_hints: Final = DocumentHints()
path_hints: Final = BoundedMap[str](KEPT)
"""Where decorated calls of a pipeline hold what may be the field that their records lack, by `PIPELINE FIELD`."""
