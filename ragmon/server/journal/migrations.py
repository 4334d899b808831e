"""Journals of version 1: three builds before the first release wrote it, each with other columns.

The layout of 31fab96 has no checksums, that of fa9e83b does not say which traces wait. 7694258 wrote the last one,
which every later version begins with. Both older ones become that one, with nothing lost.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from ragmon.ingest.fields import Rejected
from ragmon.server.journal.reader import TRACE_ID, checksum

_PREFIX: Final = 5
"""Bytes of a key before what is unique in it; that of a foreign trace's record is the trace's id."""
_OLD: Final = "old_"
_NO_NAMES: Final = [0.0, 0.0, []]
"""No names of records were looked at lately: what is remembered of them only saves time."""

Create = Callable[[str], None]
"""Makes a table of the last layout, and its indexes, by its name."""


def complete(connection: sqlite3.Connection, create: Create) -> None:
    """Bring a journal of version 1 to the layout all later versions begin with, inside a transaction.

    Args:
        connection: The journal.
        create: Makes a table.

    Raises:
        sqlite3.Error: It cannot be read or written.
        ValueError: What it holds is no journal's.
    """
    if "sum" not in _columns(connection, "rows"):
        _replace(connection, create, "rows", _rows(connection))
    if "recorded" not in _columns(connection, "assembled"):
        (last,) = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'bodies'").fetchone() or (0,)
        _replace(connection, create, "bodies", _bodies(connection))
        connection.execute("DELETE FROM sqlite_sequence WHERE name IN ('bodies', 'old_bodies')")
        connection.execute("INSERT INTO sqlite_sequence VALUES ('bodies', ?)", (last,))
        connection.execute("DROP INDEX assembled_arrival")
        _replace(connection, create, "assembled", _assembled(connection))
        _saved(connection)


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}


def _replace(connection: sqlite3.Connection, create: Create, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """Make a table anew; the rows are read from the old one, which is called `old_...` by then."""
    connection.execute(f"ALTER TABLE {table} RENAME TO {_OLD}{table}")
    create(table)
    for row in rows:
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608 - ours
    connection.execute(f"DROP TABLE {_OLD}{table}")


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    for seq, arrival, n, upto, told, lines in connection.execute(
        "SELECT seq, arrival, n, upto, counts, lines FROM old_rows ORDER BY seq"
    ):
        books = msgspec.json.decode(told)
        counts = msgspec.json.encode(books) if _add_up(books) else told
        yield seq, arrival, n, upto, checksum(seq, arrival, n, counts, lines), counts, lines


def _add_up(counts: dict[str, Any]) -> bool:
    """Whole records were counted by pipeline once; returns whether they were."""
    own = counts.get("own")
    if not isinstance(own, dict):
        return False
    counts["own"] = sum(own.values())
    return True


def _saved(connection: sqlite3.Connection) -> None:
    """The same in saved states, and what they did not say of names; one that cannot be read is passed over, as ever."""
    for seq, data in connection.execute("SELECT seq, data FROM checkpoints").fetchall():
        try:
            state = msgspec.json.decode(zlib.decompress(data))
        except (zlib.error, msgspec.DecodeError):
            continue
        _add_up(state["counts"])
        state["live"]["admission"].setdefault("fresh", _NO_NAMES)
        told = zlib.compress(msgspec.json.encode(state), 1)
        connection.execute("UPDATE checkpoints SET data = ? WHERE seq = ?", (told, seq))


def _bodies(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    done = "SELECT 1 FROM assembled WHERE trace_id = ?"
    lowest = "lowest" if "lowest" in _columns(connection, "old_bodies") else "0"
    query = f"SELECT seq, arrival, form, {lowest}, body FROM old_bodies ORDER BY seq"  # noqa: S608 - ours
    for seq, arrival, form, least, body in connection.execute(query):
        there = (one for one in _foreign(form, body) if _draw(one) >= least)
        waits = b"".join(one for one in sorted(there) if not connection.execute(done, (one,)).fetchone())
        yield seq, arrival, form, least, checksum(arrival, form, body, least, waits), waits, body


def _foreign(form: str, body: bytes) -> set[bytes]:
    """The traces of a request whose spans may wait; none of one that cannot be read any more."""
    from ragmon.ingest.otlp.request import read  # noqa: PLC0415 - heavy, and needed once in a journal's life

    try:
        return {one.trace_id for one in read(body, json=form == "json").foreign}
    except Rejected:
        return set()


def _draw(trace_id: bytes) -> int:
    from ragmon.capture.call import SPAN  # noqa: PLC0415 - as above

    return int.from_bytes(trace_id, "big") % SPAN


def _assembled(connection: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """Traces that are done; those that became records have a key."""
    recorded = {key[_PREFIX:] for key in _keys(connection) if len(key) == _PREFIX + TRACE_ID}
    for trace_id, arrival in connection.execute("SELECT trace_id, arrival FROM old_assembled"):
        yield trace_id, arrival, trace_id in recorded


def _keys(connection: sqlite3.Connection) -> Iterator[bytes]:
    for (blob,) in connection.execute("SELECT keys FROM claims"):
        yield from msgspec.msgpack.decode(blob, type=list[bytes])
    for (key,) in connection.execute("SELECT key FROM keys"):
        yield key
