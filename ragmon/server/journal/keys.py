"""Which records came already: their keys, found again for as long as one of them may come a second time.

New keys are random, and each would change a page of its own. So they are written as they come, one blob for a claim,
and held in memory; many claims together are then sorted into the table, where keys of one time lie side by side.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

Key = tuple[int, bytes]
"""The step of the event time, and an id that is unique in it."""

FRESH: Final = 1 << 16
"""Keys after which a generation ends; in memory are fewer than three times as many, about 20 MB."""
_SETTLED_AT_ONCE: Final = 1 << 13
_DELETED_AT_ONCE: Final = 1 << 13
_ASKED_AT_ONCE: Final = 256
_FIND: Final = f"SELECT key FROM keys WHERE key IN ({', '.join('?' * _ASKED_AT_ONCE)})"  # noqa: S608 - ours
_PREFIX: Final = 5
"""Bytes of a step before the id; until the year 10000 four would do for the steps of ten seconds."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[bytes]).decode


def _prefix(step: int) -> bytes:
    return step.to_bytes(_PREFIX, "big")


class Keys:
    """The keys of one journal.

    They come in generations: while one grows, the one before it is sorted into the table. What a transaction changes
    here counts when it is kept, and is undone when it is not.

    Args:
        connection: The journal.
        fresh: How many keys a generation has.

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
        self.undone()

    def _begin_generation(self, last: int) -> None:
        """Let the generation that grew be the one that is put into the table; its claims end with this one."""
        self._settling, self._growing = self._growing, set()
        self._queue = sorted(self._settling)
        self._place = 0
        self._last = last

    def undone(self) -> None:
        """The transaction is not on disk: what it would have changed is put by."""
        self._new: set[bytes] = set()
        self._settled = 0
        self._settled_steps: set[bytes] = set()
        self._done = False

    def _all_steps(self) -> Iterator[int]:
        """The steps in the table: they are few, and keys are many, so from each step one jump leads to the next."""
        step = -1
        next_one = "SELECT min(key) FROM keys WHERE key >= ?"
        while (found := self._connection.execute(next_one, (_prefix(step + 1),)).fetchone()[0]) is not None:
            step = int.from_bytes(found[:_PREFIX], "big")
            yield step

    def claim(self, keys: Sequence[Key]) -> set[int]:
        """Take keys inside a transaction.

        Args:
            keys: The keys.

        Returns:
            The places of those that were there already or stand twice in the list.
        """
        prefixes = {step: _prefix(step) for step in {step for step, _ in keys}}
        packed = [prefixes[step] + unique for step, unique in keys]
        new, taken = set(packed), set[int]()
        seen = new & self._new | new & self._growing | new & self._settling
        known = {prefixes[step] for step in self._steps.intersection(prefixes)}
        if known:
            seen |= self._in_table([key for key in new if key[:_PREFIX] in known])
        if seen or len(new) < len(packed):
            new = set()
            for place, key in enumerate(packed):
                if key in seen or key in new:
                    taken.add(place)
                else:
                    new.add(key)
        if new:
            self._connection.execute("INSERT INTO claims (keys) VALUES (?)", (_encode(list(new)),))
            self._new |= new
            if len(self._growing) + len(self._new) >= self._most and not self._done:
                self._settle(max(_SETTLED_AT_ONCE, 4 * len(new)))
        return taken

    def _in_table(self, keys: Sequence[bytes]) -> set[bytes]:
        """Those of some keys that are in the table."""
        found: set[bytes] = set()
        for start in range(0, len(keys), _ASKED_AT_ONCE):
            asked = keys[start : start + _ASKED_AT_ONCE]
            filled = (*asked, *[b""] * (_ASKED_AT_ONCE - len(asked)))  # one statement, whatever their number
            found.update(key for (key,) in self._connection.execute(_FIND, filled))
        return found

    def _settle(self, most: int) -> None:
        """Put the next keys of the generation before into the table; its claims go when all of them are there."""
        begin = self._place + self._settled
        keys = self._queue[begin : begin + most]
        self._connection.executemany("INSERT OR IGNORE INTO keys VALUES (?)", zip(keys, strict=True))
        self._settled += len(keys)
        self._settled_steps.update(key[:_PREFIX] for key in keys)
        if begin + len(keys) == len(self._queue):
            self._connection.execute("DELETE FROM claims WHERE seq <= ?", (self._last,))
            self._done = True

    def kept(self) -> None:
        """The transaction is on disk."""
        self._growing |= self._new
        self._place += self._settled
        self._steps |= {int.from_bytes(prefix, "big") for prefix in self._settled_steps}
        if self._done:
            (last,) = self._connection.execute("SELECT coalesce(max(seq), 0) FROM claims").fetchone()
            self._begin_generation(last)
        self.undone()

    def held(self) -> set[bytes]:
        """The keys that came last, those that are in memory."""
        return self._growing | self._settling

    def take_over(self, keys: set[bytes]) -> None:
        """Take the keys another journal held, inside a transaction."""
        if keys:
            self._connection.execute("INSERT INTO claims (keys) VALUES (?)", (_encode(list(keys)),))
            self._new |= keys

    def recent(self) -> Iterator[bytes]:
        """What is unique in the keys that came last, in no order: those not in the table yet."""
        return (key[_PREFIX:] for key in self._growing | self._settling)

    def expire(self, before: int) -> bool:
        """Delete some keys of steps before one, inside a transaction; returns whether there were any."""
        some = "SELECT key FROM keys WHERE key < ? ORDER BY key LIMIT 1 OFFSET ?"
        end = _prefix(max(0, before))
        last = self._connection.execute(some, (end, _DELETED_AT_ONCE)).fetchone()
        gone = self._connection.execute("DELETE FROM keys WHERE key < ?", last or (end,)).rowcount
        if not gone:
            self._steps = {step for step in self._steps if step >= before}
        return gone > 0
