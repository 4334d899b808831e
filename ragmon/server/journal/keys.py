"""Deduplication: the keys of the records that were accepted, kept as long as a record may be sent again.

New keys are random, so inserting them one by one would change one page of the table for each. Therefore each call of
`claim` writes its new keys as one blob (a claim) and keeps them in memory. Later, the keys of many claims are sorted
into the table together, where keys of one time step are adjacent.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

Key = tuple[int, bytes]
"""The time step of the event, and an id that is unique in the step."""

FRESH: Final = 1 << 16
"""Keys in a generation; fewer than three times as many are in memory, about 20 MB."""
_MERGED_AT_ONCE: Final = 1 << 13
_DELETED_AT_ONCE: Final = 1 << 13
_LOOKUP_BATCH: Final = 256
_FIND: Final = f"SELECT key FROM keys WHERE key IN ({', '.join('?' * _LOOKUP_BATCH)})"  # noqa: S608 - no user input
_PREFIX: Final = 5
"""Bytes of the time step before the id; for steps of ten seconds, four are enough until the year 10000."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[bytes]).decode


def _prefix(step: int) -> bytes:
    return step.to_bytes(_PREFIX, "big")


class Keys:
    """The keys of one journal.

    Keys are grouped in generations: while one grows, the previous one is sorted into the table. Changes made inside a
    transaction become valid with `committed` (after the commit), and are dropped with `rolled_back` (after a rollback).

    Args:
        connection: The journal.
        fresh: Keys in a generation.

    Raises:
        sqlite3.Error: They cannot be read.
    """

    def __init__(self, connection: sqlite3.Connection, fresh: int = FRESH) -> None:
        self._connection = connection
        self._most = fresh
        self._steps = set(self._all_steps())
        self._growing: set[bytes] = set()
        last = 0
        for seq, blob in connection.execute("SELECT seq, keys FROM claims ORDER BY seq"):
            self._growing.update(_decode(blob))
            last = seq
        self._begin_generation(last)
        self.rolled_back()

    def _begin_generation(self, last: int) -> None:
        """End the growing generation; it is sorted into the table next. `last` is the number of its last claim."""
        self._merging, self._growing = self._growing, set()
        self._queue = sorted(self._merging)
        self._position = 0
        self._last = last

    def rolled_back(self) -> None:
        """Drop the changes of a transaction that was rolled back."""
        self._new: set[bytes] = set()
        self._merged = 0
        self._merged_steps: set[bytes] = set()
        self._is_complete = False

    def _all_steps(self) -> Iterator[int]:
        """The time steps in the table; steps are few and keys are many, so one index seek finds each next step."""
        step = -1
        select = "SELECT min(key) FROM keys WHERE key >= ?"
        while (key := self._connection.execute(select, (_prefix(step + 1),)).fetchone()[0]) is not None:
            step = int.from_bytes(key[:_PREFIX], "big")
            yield step

    def claim(self, keys: Sequence[Key]) -> set[int]:
        """Claim keys, inside a transaction.

        Args:
            keys: The keys.

        Returns:
            The positions of duplicates: keys claimed before, or twice in the list.
        """
        prefixes = {step: _prefix(step) for step in {step for step, _ in keys}}
        packed = [prefixes[step] + unique for step, unique in keys]
        new, duplicates = set(packed), set[int]()
        seen = new & self._new | new & self._growing | new & self._merging
        stored_prefixes = {prefixes[step] for step in self._steps.intersection(prefixes)}
        if stored_prefixes:
            seen |= self._in_table([key for key in new if key[:_PREFIX] in stored_prefixes])
        if seen or len(new) < len(packed):
            new = set()
            for position, key in enumerate(packed):
                if key in seen or key in new:
                    duplicates.add(position)
                else:
                    new.add(key)
        if new:
            self._connection.execute("INSERT INTO claims (keys) VALUES (?)", (_encode(list(new)),))
            self._new |= new
            if len(self._growing) + len(self._new) >= self._most and not self._is_complete:
                self._merge(max(_MERGED_AT_ONCE, 4 * len(new)))
        return duplicates

    def _in_table(self, keys: Sequence[bytes]) -> set[bytes]:
        """The subset of the keys that is in the table."""
        stored: set[bytes] = set()
        for start in range(0, len(keys), _LOOKUP_BATCH):
            batch = keys[start : start + _LOOKUP_BATCH]
            # Padded, so that the same statement serves any number of keys.
            parameters = (*batch, *[b""] * (_LOOKUP_BATCH - len(batch)))
            stored.update(key for (key,) in self._connection.execute(_FIND, parameters))
        return stored

    def _merge(self, limit: int) -> None:
        """Put the next keys of the previous generation into the table; delete its claims when all keys are there."""
        begin = self._position + self._merged
        keys = self._queue[begin : begin + limit]
        self._connection.executemany("INSERT OR IGNORE INTO keys VALUES (?)", zip(keys, strict=True))
        self._merged += len(keys)
        self._merged_steps.update(key[:_PREFIX] for key in keys)
        if begin + len(keys) == len(self._queue):
            self._connection.execute("DELETE FROM claims WHERE seq <= ?", (self._last,))
            self._is_complete = True

    def committed(self) -> None:
        """Apply the changes of a transaction that was committed."""
        self._growing |= self._new
        self._position += self._merged
        self._steps |= {int.from_bytes(prefix, "big") for prefix in self._merged_steps}
        if self._is_complete:
            (last,) = self._connection.execute("SELECT coalesce(max(seq), 0) FROM claims").fetchone()
            self._begin_generation(last)
        self.rolled_back()

    def in_memory(self) -> set[bytes]:
        """The most recent keys, those in memory."""
        return self._growing | self._merging

    def take_over(self, keys: set[bytes]) -> None:
        """Claim keys carried over from another journal, inside a transaction."""
        if keys:
            self._connection.execute("INSERT INTO claims (keys) VALUES (?)", (_encode(list(keys)),))
            self._new |= keys

    def recent(self) -> Iterator[bytes]:
        """The unique parts of the most recent keys, in no order: those in memory."""
        return (key[_PREFIX:] for key in self._growing | self._merging)

    def expire(self, before: int) -> bool:
        """Delete some keys of steps before `before`, inside a transaction; returns whether any were deleted."""
        select = "SELECT key FROM keys WHERE key < ? ORDER BY key LIMIT 1 OFFSET ?"
        end = _prefix(max(0, before))
        last = self._connection.execute(select, (end, _DELETED_AT_ONCE)).fetchone()
        n_deleted = self._connection.execute("DELETE FROM keys WHERE key < ?", last or (end,)).rowcount
        if not n_deleted:
            self._steps = {step for step in self._steps if step >= before}
        return n_deleted > 0
