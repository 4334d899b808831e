"""A chunk that is larger than a message may be travels in pieces, and is put together again by whoever reads it.

A chunk stays the function of its stretch that it is: how it travels is none of its own. The pieces of a chunk carry its
hash, so pieces that come twice, from a producer that tried again or from two owners, are the same pieces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

HEADER: Final = "ragmon-piece"
"""The message header of a piece: its place, how many there are, and the hash of the whole."""
MESSAGE: Final = 1_000_000
"""Bytes of a message at most unless `message.max.bytes` says otherwise: librdkafka's default, just below Kafka's."""
BESIDE: Final = 800
"""Bytes of a message beside its body: the name of a part is 260 bytes long at most."""
MOST: Final = 1 << 11
"""Pieces of a chunk at most; a header that tells of more is damaged."""
APART: Final = 1 << 12
"""Offsets after which pieces no longer wait: whoever wrote them has ended, and the next owner wrote them again."""
_DIGEST: Final = 8

Headers = Sequence[tuple[str, bytes | str | None]]
"""Headers of a message, as a client gives them."""


def piece_size(settings: Mapping[str, object]) -> int:
    """Bytes of a piece at most.

    Args:
        settings: `[stream.kafka]`, whose `message.max.bytes` is what the topic of chunks takes.
    """
    given = settings.get("message.max.bytes", MESSAGE)
    return max(1, (int(given) if isinstance(given, str | int | float) else MESSAGE) - BESIDE)


def pieces(body: bytes, size: int) -> Iterator[tuple[list[tuple[str, bytes]], bytes]]:
    """The messages of a chunk: their headers and bodies.

    Args:
        body: The chunk, as it is sent.
        size: Bytes of a piece at most.

    >>> [(headers[0][1].decode()[:3], piece) for headers, piece in pieces(b"abcde", 2)]
    [('0/3', b'ab'), ('1/3', b'cd'), ('2/3', b'e')]
    >>> list(pieces(b"abcde", 5))
    [([], b'abcde')]
    """
    if len(body) <= size:
        yield [], body
        return
    hashed, total = hashlib.sha256(body).hexdigest()[: 2 * _DIGEST], -(-len(body) // size)
    for place in range(total):
        header = (HEADER, f"{place}/{total}/{hashed}".encode())
        yield [header], body[place * size : (place + 1) * size]


@dataclass(slots=True)
class _Pieces:
    """The pieces of a chunk that are there, and the offset of the first one."""

    first: int
    found: dict[int, bytes] = field(default_factory=dict)


class PieceJoiner:
    """Puts the chunks of one partition of the topic of chunks together."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[bytes, str], _Pieces] = {}

    def take(self, key: bytes, headers: Headers | None, body: bytes, offset: int) -> bytes | None:
        """The chunk that a message completes; None where pieces of it are missing.

        Args:
            key: The key of the message: which part the chunk is of.
            headers: Its headers.
            body: Its bytes.
            offset: Its offset.
        """
        place, total, whole = _place(headers)
        for old in [name for name, pieces in self._waiting.items() if pieces.first < offset - APART]:
            del self._waiting[old]
        if total == 1:
            return body
        waiting = self._waiting.setdefault((key, whole), _Pieces(offset))
        waiting.found[place] = body
        if len(waiting.found) < total:
            return None
        del self._waiting[key, whole]
        return b"".join(piece for _, piece in sorted(waiting.found.items()))

    def resume(self, following: int) -> int:
        """The offset from which whoever goes on reads: where the first piece lies that waits for others.

        Args:
            following: The offset of the message that comes next.
        """
        return min((pieces.first for pieces in self._waiting.values()), default=following)


def _place(headers: Headers | None) -> tuple[int, int, str]:
    """Which piece a message is, of how many, and of what; a message without a header is a whole chunk."""
    for name, value in headers or ():
        if name == HEADER and value is not None:
            text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
            place, _, whole = text.partition("/")
            total = whole.partition("/")[0]
            if place.isdecimal() and total.isdecimal() and int(place) < int(total) <= MOST:
                return int(place), int(total), whole
    return 0, 1, ""
