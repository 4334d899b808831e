"""Hints for a remedy that conversion to records has and a record does not carry, kept in this process alone.

A document has an id in its record, and may have another id in its metadata that gold names it by. A request without a
question may come from spans whose instrumentation hides it. Both are known only where the record is made. A few of them
are kept in memory for a while, so that the reader of the counts in the same process can say which setting would help.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from threading import Lock
from typing import Any, Final, Generic, TypeVar

ROOM: Final = 300
"""Documents that are read for other ids, at the start and each time somebody asks for more."""
KEPT: Final = 1000
"""Documents, and requests, that are remembered; the oldest are forgotten first."""
KEYS: Final = 16
"""Fields of a document that are looked at."""
LONGEST_KEY: Final = 64
LONGEST_ID: Final = 128
# Fields of a document that never hold its id, or that are looked at by themselves.
_NO_IDS: Final = frozenset(
    {"text", "page_content", "content", "score", "metadata", "meta", "embedding", "node", "type"}
)

T = TypeVar("T")


class BoundedMap(Generic[T]):
    """A mapping of text that holds the newest entries only; several threads may use it.

    Args:
        size: How many entries it holds.
    """

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
    """Other ids of sampled documents, by the id that their record has.

    Attributes:
        room: How many more documents are read.
        known: Whether a document was read in this process.
    """

    def __init__(self) -> None:
        self.room = ROOM
        self.known = False
        self._other_ids = BoundedMap[Mapping[str, str]](KEPT)

    def note(self, document_id: str | None, document: Any, metadata: Any) -> None:
        """Remember a document's other ids.

        Args:
            document_id: The id that its record has; None where it has none.
            document: The document; its fields are read where it is a mapping.
            metadata: Its metadata; read where it is a mapping.
        """
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

    Args:
        document_id: The id it has already.
        document: The document; its fields are read where it is a mapping.
        metadata: Its metadata; read where it is a mapping.

    >>> dict(other_ids("e1f7", {"id": "e1f7", "text": "a text"}, {"chunk_id": "heron#1", "title": "Grey herons"}))
    {'metadata.chunk_id': 'heron#1'}
    """
    for prefix, fields in (("metadata.", metadata), ("", document)):
        if not isinstance(fields, Mapping):
            continue
        for key, value in islice(fields.items(), KEYS):
            if not isinstance(key, str) or len(key) > LONGEST_KEY or (not prefix and key in _NO_IDS):
                continue
            if isinstance(value, int) and not isinstance(value, bool):
                value = str(value)  # noqa: PLW2901 - an id in its usual form
            looks_like_id = isinstance(value, str) and 0 < len(value) <= LONGEST_ID and not any(map(str.isspace, value))
            if looks_like_id and value != document_id and key.replace("-", "_").isidentifier():
                yield f"{prefix}{key}", value


documents: Final = DocumentHints()
instrumentations: Final = BoundedMap[str](KEPT)
"""The instrumentation whose spans lack question or answer, by the id of the trace."""
