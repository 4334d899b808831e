"""The lines that come with a chunk: labels and samples of records. They stand in the journal themselves.

They follow their chunk in its row, and count if it does. So an erasure finds them, and so does whoever looks for single
requests; the chunk itself holds no text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ragmon.core.record import ChunkEntry, Entry
from ragmon.server.pipeline.recovery import entries
from ragmon.stream.chunk import ChunkAdder, ChunkError, ChunkStretch, split


@dataclass
class ChunkLines:
    """The lines of a chunk that is to be written.

    Attributes:
        stretch: What the chunk is of.
        entries: The lines.
    """

    stretch: ChunkStretch
    entries: list[Entry]


class TakenApart(NamedTuple):
    """A chunk as it is journalled, and its lines; None where the chunk cannot be read, which is accounted for later."""

    entry: ChunkEntry
    lines: ChunkLines | None


def take_apart(entry: ChunkEntry) -> TakenApart:
    """Take the lines off a chunk."""
    try:
        parts = split(entry.body)
        lines = entries(parts.lines)
    except (ChunkError, msgspec.MsgspecError, UnicodeDecodeError):
        return TakenApart(entry, None)
    return TakenApart(replace(entry, body=parts.counts), ChunkLines(parts.stretch, lines))


def drop_repeated(chunks: list[ChunkLines], adder: ChunkAdder | None) -> None:
    """Drop the lines of chunks that will not be added, because they came before.

    Args:
        chunks: The chunks of a row, in order.
        adder: What has been added; None where chunks are not.
    """
    upto: dict[tuple[str, str], int] = {}
    for chunk in chunks:
        key = (chunk.stretch.part, chunk.stretch.log)
        if adder is not None and adder.expects(chunk.stretch, upto.get(key)):
            upto[key] = chunk.stretch.upto
        else:
            chunk.entries.clear()
