"""A chunk: a stretch of a log, counted. It holds what came of the stretch, and its place.

It has two parts, one after the other. The first one is what was counted, and holds no text. The second one, where there
is one, is lines for the journal of whoever adds up, in which they stand by themselves: so they can be found there, and
erased there.

A chunk is a function of its stretch, of what came shortly before it, and of the configuration. So who
counts a stretch again, after a crash or as its next owner, gets the same bits; and who adds up chunks adds each stretch
once, however often and from whomever it comes. What was counted and how far are one message: neither is there without
the other.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError
from ragmon.core.net import current_version
from ragmon.gold import GoldSet
from ragmon.metrics.facts import VERSION
from ragmon.monitor.partial_counts import PartialCounts
from ragmon.scoring.buckets import DIGEST
from ragmon.stream.accounts import BatchCounts

CHUNK_VERSION: Final = 1
"""The version of a chunk's format."""
TRACE_ID: Final = 16
"""Bytes of a trace id."""
PERIOD: Final = 10.0
"""Seconds of arrival that a chunk holds at most: the step of fresh rows."""
LARGEST: Final = 64 << 20
"""Bytes of a chunk that is not compressed; a larger one is damaged or no chunk."""
_BESIDE: Final = ("export", "judges", "labels", "links", "probes", "rules", "serve", "stream")
"""Tables of settings that do not decide how records are counted."""
_LEVEL: Final = 1
"""Higher levels of compression save a tenth, and take twice the time."""


class ChunkError(RagmonError):
    """Bytes that are no chunk, or a chunk that does not belong where it came."""


class Chunk(msgspec.Struct, kw_only=True):
    """A stretch of one partition of a log, counted.

    Attributes:
        part: The partition: its number, or the address of the server whose journal it is.
        base: The offset of its first message.
        upto: The offset after its last message.
        until: All that comes later in the partition came at this time or later, seconds since the epoch.
        now: When its last message came, on the same clock.
        low: The offset from which whoever goes on reads, to know what came shortly before.
        config: What it was counted by (`config_version`).
        counts: What its records add up to.
        arrived: What arrived and what became of it.
        waiting: The ids of traces that wait for more spans, 16 bytes each.
        log: What tells the offsets of this log from those of another one in its place; "" where that cannot be.
        lost: Messages of the stretch that nobody counted, because the log had deleted them.
        partitions: How many partitions the log has; 0 where they are told otherwise.
        labels: Where labels stand that wait for their answers: the offset, and the place among the labels there.
        lines: Lines for the journal of whoever adds up: labels, samples of records, traces that were erased.
        times: Offsets from `low` on, and the time of the log at each: what lies between them follows from the log.
        v: The version of the format.
    """

    part: str
    base: int
    upto: int
    until: float
    now: float
    low: int
    config: str
    counts: PartialCounts
    arrived: BatchCounts = msgspec.field(default_factory=BatchCounts)
    waiting: bytes = b""
    log: str = ""
    lost: int = 0
    partitions: int = 0
    labels: list[tuple[int, int]] = []
    lines: bytes = b""
    times: list[tuple[int, float]] = []
    v: int = CHUNK_VERSION

    def dump(self) -> bytes:
        """The chunk as it is sent: MessagePack, compressed, and after it the lines, compressed."""
        if not self.lines:
            return zlib.compress(_encode(self), _LEVEL)
        return zlib.compress(_encode(replace(self, lines=b"")), _LEVEL) + zlib.compress(self.lines, _LEVEL)

    @classmethod
    def load(cls, data: bytes) -> Chunk:
        """The chunk that `dump` wrote.

        Raises:
            ChunkError: The bytes are no chunk, or one of another version.
        """
        try:
            text, rest = _inflate(data)
            version = _decode_version(text).v
            if version != CHUNK_VERSION:
                message = f"a chunk of version {version}, and this ragmon reads and writes version {CHUNK_VERSION}"
                raise ChunkError(message, hint="let who counts and who adds up chunks be of one version")
            chunk = _decode(text)
            chunk.lines = _inflate(rest)[0] if rest else b""
        except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ChunkError(f"{len(data)} bytes are no chunk ({error})") from error
        return chunk


def _inflate(data: bytes) -> tuple[bytes, bytes]:
    """What the first compressed part is, and the bytes after it.

    Raises:
        ChunkError: It is cut off, or too large.
    """
    decompressor = zlib.decompressobj()
    text = decompressor.decompress(data, LARGEST)
    if decompressor.unconsumed_tail or not decompressor.eof:
        raise ChunkError(f"a chunk of {len(data)} bytes is cut off, or larger than {LARGEST} bytes")
    return text, decompressor.unused_data


class ChunkStretch(msgspec.Struct, frozen=True):
    """Which stretch of which log a chunk is of; the names are those of `Chunk`."""

    part: str
    base: int
    upto: int
    log: str = ""


class ChunkParts(NamedTuple):
    """A chunk as it is sent, taken apart.

    Attributes:
        stretch: What it is of.
        counts: The part that holds what was counted; it is a chunk without lines.
        lines: The lines for the journal.
    """

    stretch: ChunkStretch
    counts: bytes
    lines: bytes


def split(data: bytes) -> ChunkParts:
    """Take a chunk apart that `Chunk.dump` wrote.

    Raises:
        ChunkError: The bytes are no chunk.
    """
    try:
        text, rest = _inflate(data)
        return ChunkParts(_decode_stretch(text), data[: len(data) - len(rest)], _inflate(rest)[0] if rest else b"")
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ChunkError(f"{len(data)} bytes are no chunk ({error})") from error


def _decides(name: str) -> bool:
    """Whether a setting decides how records are counted; of gold the content decides, wherever it lies."""
    return name.split(".", maxsplit=1)[0] not in _BESIDE and not name.endswith(".path")


class _Version(msgspec.Struct):
    v: int


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Chunk).decode
_decode_version: Final = msgspec.msgpack.Decoder(_Version).decode
_decode_stretch: Final = msgspec.msgpack.Decoder(ChunkStretch).decode


def config_version(settings: Settings, gold: Sequence[GoldSet]) -> str:
    """What decides how records are counted, as 12 hexadecimal digits: workers with the same count alike.

    Args:
        settings: The configuration.
        gold: Its gold sets.
    """
    golds = sorted((gold_set.name, gold_set.version) for gold_set in gold)
    values = {name: repr(value) for name, value in settings.values.items() if _decides(name)}
    told = [current_version(), VERSION, DIGEST, golds, sorted(values.items())]
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:12]
