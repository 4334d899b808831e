"""What saved states hold of people: the words of raters, which are taken out where somebody asks for that."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Collection, Iterable

import msgspec

from ragmon.gold.labels.ratings import Book
from ragmon.journal.checkpoints import LEVEL

_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_LIVE, _LABELS = "live", "labels"


def places(connection: sqlite3.Connection) -> list[int]:
    """The saved states, by the last rows they know of."""
    return [seq for (seq,) in connection.execute("SELECT seq FROM checkpoints ORDER BY seq")]


def forget(connection: sqlite3.Connection, seq: int, trace_ids: Collection[str]) -> bool:
    """Take what people said of traces out of a saved state, inside a transaction; all else in it stays to the byte.

    A state that cannot be read is deleted: nobody can begin with it, and what it holds is not known.

    Args:
        connection: The journal.
        seq: The last row the state knows of.
        trace_ids: In lower case.

    Returns:
        Whether anything was in it.
    """
    found = connection.execute("SELECT data FROM checkpoints WHERE seq = ?", (seq,)).fetchone()
    if found is None:
        return False
    try:
        left = _without(zlib.decompress(found[0]), trace_ids)
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError):
        return connection.execute("DELETE FROM checkpoints WHERE seq = ?", (seq,)).rowcount > 0
    if left is None:
        return False
    connection.execute("UPDATE checkpoints SET data = ? WHERE seq = ?", (zlib.compress(left, LEVEL), seq))
    return True


def _without(data: bytes, trace_ids: Collection[str]) -> bytes | None:
    """A state without what people said of traces; None where they said nothing."""
    state = _parts(data)
    live = _parts(state[_LIVE])
    if _LABELS not in live:
        return None
    book = Book()
    book.load(msgspec.json.decode(live[_LABELS]))
    if not book.forget(trace_ids):
        return None
    live[_LABELS] = msgspec.Raw(msgspec.json.encode(book.dump()))
    state[_LIVE] = msgspec.Raw(msgspec.json.encode(live))
    return msgspec.json.encode(state)


def tell(connection: sqlite3.Connection, trace_ids: Iterable[str]) -> None:
    """Leave word, inside a transaction, which traces are forgotten: a server holds in memory what it saves next."""
    told = ((trace_id,) for trace_id in trace_ids)
    connection.executemany("INSERT OR IGNORE INTO forgotten VALUES (?)", told)


def told(connection: sqlite3.Connection) -> list[str]:
    """The traces that were forgotten since this was asked last, inside a transaction."""
    found = [trace_id for (trace_id,) in connection.execute("SELECT trace_id FROM forgotten").fetchall()]
    if found:
        connection.execute("DELETE FROM forgotten")
    return found
