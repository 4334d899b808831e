"""Chunks: stretches of a log, counted; how they travel in pieces, and how they are added up, each stretch once.

A chunk has two parts: what was counted, which holds no text, and lines for the journal of the server that adds up,
where they can be found and erased. A chunk is a function of its stretch, of the messages shortly before it, and of the
configuration: a worker that counts a stretch again, after a crash or as its next owner, gets the same
bits. Counts and position are one message: neither is there without the other.

A chunk that is larger than a message travels in pieces that carry its hash, so pieces that come twice are the same.

Chunks that come again are dropped by their offsets. A chunk that overlaps what was added is refused, and what lies
between two chunks is lost, and accounted for. So neither transactions nor an election are needed.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError, shorten
from ragmon.core.process import current_version
from ragmon.core.record import Ack
from ragmon.ingest.gold import GoldSet
from ragmon.ingest.spans.span import count_scope
from ragmon.metrics.facts import VERSION
from ragmon.monitor.partial_counts import PartialCounts
from ragmon.scoring.buckets import DIGEST
from ragmon.stats.histograms import add_counts

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
_encode: Final = msgspec.msgpack.Encoder().encode
HEADER: Final = "ragmon-piece"
"""The message header of a piece: its number, how many there are, and the hash of the whole."""
MESSAGE: Final = 1_000_000
"""Bytes of a message at most unless `message.max.bytes` says otherwise: librdkafka's default, just below Kafka's."""
BESIDE: Final = 800
"""Bytes of a message beside its body: the name of a part is 260 bytes long at most."""
MOST: Final = 1 << 11
"""Pieces of a chunk at most; a header that tells of more is damaged."""
APART: Final = 1 << 12
"""Offsets after which pieces no longer wait: their writer has ended, and the next owner wrote them again."""
_DIGEST: Final = 8
Headers = Sequence[tuple[str, bytes | str | None]]
"""Headers of a message, as a client gives them."""
ADDED, RETURNED, REPEATED, OVERLAPPING, MISSING, UNKNOWN, DAMAGED = (
    "added",
    "returned",
    "repeated",
    "overlapping",
    "missing",
    "unknown",
    "damaged",
)
"""What became of a chunk: counted; counted, of a log whose place another one had taken; counted before; partly counted
before, so refused; counted, after a gap; of a log that is forgotten; not readable."""
RESULTS: Final = (ADDED, RETURNED, REPEATED, OVERLAPPING, MISSING, UNKNOWN, DAMAGED)
LOGS: Final = 8
"""Logs of a partition whose positions are remembered: one is begun anew when a disk is lost, or a folder emptied."""
ACKS: Final = 100
"""Acknowledgements that are remembered, so that an acknowledgement that is read again is known."""
RETIRED: Final = 1_000
"""Names of still older logs that are remembered: what comes of them is refused, because it may be counted."""
ERASED: Final = "forgotten"
"""Reason why a request is not scored: it was erased on request."""


class BatchCounts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Counts of one batch.

    Attributes:
        received: User requests that arrived: a native record, or the first span of a trace.
        ignored: Requests that are not RAG, by reason.
        dropped: Requests that were lost, by reason.
        spans: Spans that belong to no record, by reason.
        unknown: Fields that are missing in a request's spans, by `field|reason`.
        probed: Applications' own records of probes of this server, by result.
        native: Native records that producers sent; compared with the totals that producers report.
        scopes: Requests whose convention is not known, by the name of their instrumentation, of a bounded number.
        tools: Requests without a retrieval, by the names of the tools called in them, of a bounded number.
    """

    received: int = 0
    duplicate: int = 0
    ignored: dict[str, int] = {}
    dropped: dict[str, int] = {}
    spans: dict[str, int] = {}
    unknown: dict[str, int] = {}
    labels: dict[str, int] = {}
    probed: dict[str, int] = {}
    native: int = 0
    scopes: dict[str, int] = {}
    tools: dict[str, int] = {}

    def add(self, other: BatchCounts) -> None:
        """Add other counts."""
        self.received += other.received
        self.duplicate += other.duplicate
        self.native += other.native
        for counts, other_counts in zip(self._parts(), other._parts(), strict=True):
            add_counts(counts, other_counts)
        for names, other_names in ((self.scopes, other.scopes), (self.tools, other.tools)):
            for name, n in other_names.items():
                count_scope(names, name, n)

    def _parts(self) -> tuple[dict[str, int], ...]:
        return self.ignored, self.dropped, self.spans, self.unknown, self.labels, self.probed

    def __bool__(self) -> bool:
        return bool(self.received or self.duplicate or any(self._parts()))

    def dump(self) -> bytes:
        """The counts as JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def load(cls, data: bytes) -> BatchCounts:
        """The counts that `dump` wrote."""
        return msgspec.json.decode(data, type=cls)


def count(into: dict[str, int], key: str, n: int = 1) -> None:
    """Add to a counter in a dictionary.

    >>> found = {"late": 1}; count(found, "late"); found
    {'late': 2}
    """
    if n:
        into[key] = into.get(key, 0) + n


class ChunkError(RagmonError):
    """Bytes that are no chunk, or a chunk that does not belong where it came."""


class Chunk(msgspec.Struct, kw_only=True):
    """A stretch of one partition of a log, counted.

    Attributes:
        part: The partition: its number, or the address of the server whose journal it is.
        until: All that comes later in the partition came at this time or later, seconds since the epoch.
        now: When its last message came, on the same clock.
        low: The offset from which the next owner reads, to know the messages shortly before.
        config: What it was counted by (`config_version`).
        waiting: The ids of traces that wait for more spans, 16 bytes each.
        after: For each of these, when what is done of it had ended, in nanoseconds.
        log: Tells the offsets of this log from the offsets of another log in its place; "" where it is not known.
        lost: Messages of the stretch that were not counted, because the log had deleted them.
        partitions: How many partitions the log has; 0 where they are told otherwise.
        labels: Where labels stand that wait for their answers: the offset, and its number among the labels there.
        lines: Lines for the journal of the server that adds up: labels, samples of records, erased traces.
        lowest: The lowest probability with which a sampler in front kept requests, by pipeline.
        times: Offsets from `low` on, and the time of the log at each: what lies between them follows from the log.
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
    after: list[int] = []
    log: str = ""
    lost: int = 0
    partitions: int = 0
    labels: list[tuple[int, int]] = []
    lines: bytes = b""
    times: list[tuple[int, float]] = []
    lowest: dict[str, float] = {}
    v: int = CHUNK_VERSION

    def dump(self) -> bytes:
        """The chunk as it is sent: MessagePack, compressed, and after it the lines, compressed."""
        if not self.lines:
            return zlib.compress(_encode(self), _LEVEL)
        return zlib.compress(_encode(replace(self, lines=b"")), _LEVEL) + zlib.compress(self.lines, _LEVEL)

    @classmethod
    def load(cls, data: bytes) -> Chunk:
        """The chunk that `dump` wrote."""
        try:
            text, rest = _inflate(data)
            version = _decode_version(text).v
            if version != CHUNK_VERSION:
                message = f"a chunk of version {version}, and this ragmon reads and writes version {CHUNK_VERSION}"
                raise ChunkError(message, hint="run one version of ragmon on workers and servers")
            chunk = _decode(text)
            chunk.lines = _inflate(rest)[0] if rest else b""
        except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ChunkError(f"{len(data)} bytes are not a chunk ({error})") from error
        return chunk


def _inflate(data: bytes) -> tuple[bytes, bytes]:
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


def split(data: bytes) -> tuple[ChunkStretch, bytes, bytes]:
    """The stretch of a chunk that `Chunk.dump` wrote, its counts as they are sent, and its lines."""
    try:
        text, rest = _inflate(data)
        return _decode_stretch(text), data[: len(data) - len(rest)], _inflate(rest)[0] if rest else b""
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ChunkError(f"{len(data)} bytes are not a chunk ({error})") from error


class _Version(msgspec.Struct):
    v: int


_decode: Final = msgspec.msgpack.Decoder(Chunk).decode
_decode_version: Final = msgspec.msgpack.Decoder(_Version).decode
_decode_stretch: Final = msgspec.msgpack.Decoder(ChunkStretch).decode


def config_version(settings: Settings, gold: Sequence[GoldSet]) -> str:
    """What decides how records are counted, as 12 hexadecimal digits: workers with the same count alike."""
    golds = sorted((gold_set.name, gold_set.version) for gold_set in gold)
    # Of gold the content decides, wherever it lies.
    values = {
        name: repr(value)
        for name, value in settings.values.items()
        if name.split(".", maxsplit=1)[0] not in _BESIDE and not name.endswith(".path")
    }
    parts = [current_version(), VERSION, DIGEST, golds, sorted(values.items())]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:12]


def piece_size(settings: Mapping[str, object]) -> int:
    """Bytes of a piece at most."""
    given = settings.get("message.max.bytes", MESSAGE)
    return max(1, (int(given) if isinstance(given, str | int | float) else MESSAGE) - BESIDE)


def pieces(body: bytes, size: int) -> Iterator[tuple[list[tuple[str, bytes]], bytes]]:
    """The messages of a chunk: their headers and bodies.

    >>> [(headers[0][1].decode()[:3], piece) for headers, piece in pieces(b"abcde", 2)]
    [('0/3', b'ab'), ('1/3', b'cd'), ('2/3', b'e')]
    >>> list(pieces(b"abcde", 5))
    [([], b'abcde')]
    """
    if len(body) <= size:
        yield [], body
        return
    hashed, total = hashlib.sha256(body).hexdigest()[: 2 * _DIGEST], -(-len(body) // size)
    for number in range(total):
        header = (HEADER, f"{number}/{total}/{hashed}".encode())
        yield [header], body[number * size : (number + 1) * size]


class PieceJoiner:
    """Puts the chunks of one partition of the topic of chunks together."""

    def __init__(self) -> None:
        # By key and hash, the offset of the first piece that came, and the pieces by their numbers.
        self._waiting: dict[tuple[bytes, str], tuple[int, dict[int, bytes]]] = {}

    def take(self, key: bytes, headers: Headers | None, body: bytes, offset: int) -> bytes | None:
        """The chunk that a message completes; None where pieces of it are missing."""
        number, total, hashed = _piece(headers)
        for old in [name for name, (first, _) in self._waiting.items() if first < offset - APART]:
            del self._waiting[old]
        if total == 1:
            return body
        _, found = self._waiting.setdefault((key, hashed), (offset, {}))
        found[number] = body
        if len(found) < total:
            return None
        del self._waiting[key, hashed]
        return b"".join(piece for _, piece in sorted(found.items()))

    def resume(self, following: int) -> int:
        """The offset from which the next owner reads: that of the first piece that waits for others."""
        return min((first for first, _ in self._waiting.values()), default=following)


def _piece(headers: Headers | None) -> tuple[int, int, str]:
    """The number of a piece, how many there are, and the hash of the whole; of a whole chunk (0, 1, "")."""
    for name, value in headers or ():
        if name == HEADER and value is not None:
            text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
            number, _, rest = text.partition("/")
            total, _, _ = rest.partition("/")
            if number.isdecimal() and total.isdecimal() and int(number) < int(total) <= MOST:
                return int(number), int(total), rest
    return 0, 1, ""


class PartitionPosition(msgspec.Struct):
    """How far a partition was added.

    Attributes:
        low: The offset from which the next owner reads.
        until: All that comes later came at this time or later, seconds since the epoch.
        log: Which log it is; the offsets of another one are its own.
        lost: Messages that were never counted, because the log had deleted them.
    """

    upto: int
    low: int = 0
    until: float = 0.0
    config: str = ""
    log: str = ""
    lost: int = 0


class AdderState(msgspec.Struct):
    """What a `ChunkAdder` knows of partitions, logs and acknowledgements.

    Attributes:
        positions: How far each partition was added, in the log that was added last.
        partitions: How many partitions each log has, as far as chunks say so.
        logs: Which log each of them was, when its partitions were told last.
        offsets: By partition of the topic of chunks, the offset of the chunk that comes next.
        replaced: By partition, how far its other logs were added; the one that was added last is the last.
        retired: By partition, its logs whose positions are forgotten.
        returned: By partition, until when it had spoken when a log came back whose place another one had taken.
        acks: Acknowledgements that came in the topic of chunks, the newest ones.
        waiting: The acknowledgements whose time not every partition has reached.
        log: Which topic of chunks these offsets are of; "" where that is not known.
    """

    positions: dict[str, PartitionPosition] = {}
    results: dict[str, int] = {}
    partitions: dict[str, int] = {}
    logs: dict[str, str] = {}
    offsets: dict[int, int] = {}
    replaced: dict[str, list[PartitionPosition]] = {}
    retired: dict[str, list[str]] = {}
    returned: dict[str, float] = {}
    acks: list[Ack] = []
    waiting: list[Ack] = []
    log: str = ""


class ChunkAdder:
    """Decides which chunks are added, and knows how far the partitions are.

    Args:
        patience: Seconds of silence after which the others no longer wait for a partition; None: they wait. Its records
            count in a later minute of the alarms then.
        logs: The logs whose partitions are waited for; chunks say how many there are, and a partition is called
            LOG/NUMBER. Chunks of other logs, as of a topic that was renamed, are added, and not waited for.
    """

    def __init__(self, patience: float | None = None, logs: Iterable[str] | None = None) -> None:
        self.state = AdderState()
        self.refusal = ""
        self._patience = patience
        self._logs = None if logs is None else frozenset(logs)

    @property
    def parts(self) -> tuple[str, ...]:
        """The partitions that are waited for, as far as they are known."""
        known = sorted(self.state.partitions.items())
        awaited = [(log, number) for log, number in known if self._logs is None or log in self._logs]
        return tuple(f"{log}/{n}" for log, number in awaited for n in range(number))

    def position(self, part: str, log: str | None = None) -> PartitionPosition | None:
        """How far a log of a partition was added; None where nothing of it was."""
        last = self.state.positions.get(part)
        if last is None or not log or not last.log or last.log == log:
            return last
        return next((found for found in self.state.replaced.get(part, ()) if found.log == log), None)

    def take(self, chunk: Chunk) -> bool:
        """Whether a chunk is to be added now; its position is remembered then.

        The topic of chunks was read without a gap: what is missing before a chunk never comes. It is lost, and
        accounted for.
        """
        if chunk.partitions:
            # A log may get more partitions, and another log in its place may have fewer.
            topic, _, number = chunk.part.rpartition("/")
            if self.state.logs.get(topic, "") != chunk.log:
                self.state.logs[topic], self.state.partitions[topic] = chunk.log, 0
            self.state.partitions[topic] = max(self.state.partitions.get(topic, 0), chunk.partitions, int(number) + 1)
        position, lost = self.position(chunk.part, chunk.log), chunk.lost
        log = chunk.log or ("" if position is None else position.log)
        name = f"chunk {chunk.base}-{chunk.upto} of partition {shorten(chunk.part)}"
        if chunk.log in self.state.retired.get(chunk.part, ()):
            message = f"{name} is of a log, {shorten(chunk.log)}, that {LOGS} others have replaced"
            raise self._refused(UNKNOWN, message, "use one topic for it")
        # A chunk without messages has only its time to tell by whether it comes again.
        if position is not None and (
            chunk.base < position.upto or (chunk.base == chunk.upto == position.upto and chunk.until <= position.until)
        ):
            if chunk.upto > position.upto:
                message = f"{name} overlaps what was added up to {position.upto}"
                raise self._refused(OVERLAPPING, message, "two versions of ragmon count this log")
            self._note(REPEATED)
            return False
        if position is not None and chunk.base > position.upto:
            self._note(MISSING)
            lost += chunk.base - position.upto
        until = chunk.until if position is None else max(chunk.until, position.until)
        self._put(chunk.part, PartitionPosition(chunk.upto, chunk.low, until, chunk.config, log, lost))
        return True

    def _put(self, part: str, position: PartitionPosition) -> None:
        last = self.state.positions.get(part)
        self.state.positions[part] = position
        position.lost += 0 if last is None else last.lost
        if last is None or not last.log or last.log == position.log:
            self._note(ADDED)
            return
        others = self.state.replaced.get(part, [])
        kept = [other for other in others if other.log != position.log]
        is_back = len(kept) < len(others)
        last.lost = 0
        kept.append(last)
        if len(kept) >= LOGS:
            self.state.retired[part] = [*self.state.retired.get(part, ()), kept.pop(0).log][-RETIRED:]
        self.state.replaced[part] = kept
        if is_back:
            self.state.returned[part] = self._until(part)
        self._note(RETURNED if is_back else ADDED)

    def hear(self, ack: Ack) -> None:
        """Let an acknowledgement of the topic of chunks wait for its time; one that is read again is known."""
        if ack not in self.state.acks:
            self.state.acks = [*self.state.acks, ack][-ACKS:]
            self.state.waiting.append(ack)

    def due_acks(self, watermark: float) -> list[Ack]:
        """The acknowledgements whose time has come, by their times; they wait no longer."""
        due = [ack for ack in self.state.waiting if (ack.at or 0.0) <= watermark]
        if due:
            self.state.waiting = [ack for ack in self.state.waiting if ack not in due]
        return sorted(due, key=lambda ack: ack.at or 0.0)

    def expects(self, stretch: ChunkStretch, upto: int | None) -> bool:
        """Whether `take` will add a chunk."""
        position = self.position(stretch.part, stretch.log)
        if upto is None:
            upto = None if position is None else position.upto
        is_known = stretch.log not in self.state.retired.get(stretch.part, ())
        return is_known and (upto is None or stretch.base >= upto)

    def read(self, log: str, partition: int, offset: int) -> None:
        """Note that a chunk was read."""
        if log and self.state.log and log != self.state.log:
            self.state.offsets.clear()
        self.state.log = log or self.state.log
        self.state.offsets[partition] = offset

    def damaged(self, why: str) -> None:
        """Account for bytes that are no chunk."""
        self.refusal = why
        self._note(DAMAGED)

    def _note(self, result: str) -> None:
        self.state.results[result] = self.state.results.get(result, 0) + 1

    def _refused(self, result: str, message: str, hint: str) -> ChunkError:
        self._note(result)
        self.refusal = message
        return ChunkError(message, hint=hint)

    def watermark(self, now: float) -> float:
        """Until when every partition has spoken, seconds since the epoch; 0 as long as one has said nothing."""
        untils = [self._until(part) for part in self.parts]
        if self._patience is not None:
            untils = [max(until, now - self._patience) for until in untils]
        return min(untils, default=0.0)

    def _until(self, part: str) -> float:
        if part not in self.state.positions:
            return 0.0
        others = self.state.replaced.get(part, [])
        return max([self.state.positions[part].until, *(position.until for position in others)])

    def behind(self, now: float) -> dict[str, float]:
        """By partition, how many seconds ago it spoke last; if its time lies ahead, how far ahead."""
        return {part: abs(now - self._until(part)) for part in self.parts}

    @property
    def lost(self) -> int:
        """Messages that were not counted, because the log had deleted them."""
        return sum(position.lost for position in self.state.positions.values())

    @property
    def configs(self) -> frozenset[str]:
        """What the last chunks of the partitions were counted by: several while a change is rolled out."""
        awaited = set(self.parts)
        return frozenset(position.config for part, position in self.state.positions.items() if part in awaited)
