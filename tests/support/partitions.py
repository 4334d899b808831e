"""Logs of partitions, and who counts and adds them: what tests of the stream share."""

from __future__ import annotations

import random
from zlib import crc32

from ragmon.alarms.pipelines import as_alert_line
from ragmon.core.record import Label, encode
from ragmon.ingest.gold import load_gold
from ragmon.ingest.lines import decode
from ragmon.monitor.engine import Engine
from ragmon.server.state import entries
from ragmon.stream.chunk import BatchCounts, Chunk, ChunkAdder
from ragmon.stream.worker import CountingLimits, PartitionCounter


def partitions_of(records, number):
    """The logs of some partitions: `(arrival, bytes)`, records keyed by their traces, each arriving at its time."""
    logs = [[] for _ in range(number)]
    for place, record in enumerate(records):
        key = record.trace_id or str(place)
        logs[crc32(key.encode()) % number].append((record.ts, encode(record)))
    return logs


def counted_at_once(settings, records):
    """An engine that counted the records one after the other, each when it came."""
    engine = Engine(settings, max_transitions=None)
    for record in records:
        engine.observe(decode(encode(record)), record.ts)
    return engine


class Worker:
    """Counts one partition of a log that lies in memory, from where the last chunk ended.

    Args:
        settings: The configuration.
        part: The number of the partition.
        log: Its messages, `(arrival, bytes)`.
        last: The last chunk that was handed on; None at the beginning.
    """

    def __init__(self, settings, part, log, last=None, limits=None):
        self.log = log
        self.offset = 0 if last is None else last.upto
        gold, limits = load_gold(settings.gold), limits or CountingLimits()
        self.counter = PartitionCounter(
            f"log/{part}",
            self.offset,
            settings,
            gold,
            limits,
            last=last,
            read=lambda found: [log[n][1] for n in found],
        )
        if last is not None:
            self.counter.warm_up((number, *log[number]) for number in range(last.low, last.upto))

    def step(self):
        """Count the next message; returns the chunks that ended."""
        arrival, message = self.log[self.offset]
        lines = [decode(line) for line in message.splitlines()]
        chunks = list(self.counter.take(self.offset, arrival, message, lines))
        self.offset += 1
        return chunks

    @property
    def done(self):
        """Whether everything is counted."""
        return self.offset == len(self.log)


class Head:
    """Adds chunks up and judges their sum.

    Args:
        settings: The configuration.
        parts: The partitions that it knows of before their chunks tell.
    """

    def __init__(self, settings, parts, patience=None):
        self.engine = Engine(settings, max_transitions=None)
        self.adder = ChunkAdder(patience)
        self.adder.state.partitions["log"] = len(parts or ())
        self.books = BatchCounts()
        self.samples = []

    def take(self, data):
        """Add a chunk in the form in which it is sent; returns whether it was new."""
        chunk = Chunk.load(data)
        is_new = self.adder.take(chunk)
        if is_new:
            self.engine.add(chunk.counts, chunk.now)
            for line in entries(chunk.lines):
                if isinstance(line, Label):
                    self.engine.add_label(line)
                else:
                    self.samples.append(line)
            self.engine.advance(self.adder.watermark(0.0))
        return is_new


def result(engine):
    """What two engines that counted the same have in common."""
    scorer = engine.scorer
    return {
        "digest": scorer.state.digest(),
        "edges": [as_alert_line(edge) for edge in engine.transitions],
        "scored": (scorer.scored, scorer.state.unmatched, scorer.dropped),
        "errors": dict(engine.errors),
        "last": engine.last_scored,
        "late": engine.alarms.steps.state.late,
    }


def last_chunk(worker, until):
    """The open chunk of a worker, as if a message had come at a time."""
    return list(worker.counter.until(worker.offset, until))


def shuffled_logs(records, number, seed):
    """As `partitions_of`, with some messages sent twice and some that only tell the time."""
    chance = random.Random(seed)
    logs = partitions_of(records, number)
    for log in logs:
        for arrival, message in chance.sample(log, len(log) // 20):
            log.append((arrival + chance.random() * 300, message))
        for arrival, _ in chance.sample(log, len(log) // 50):
            log.append((arrival, b""))
        log.sort(key=lambda entry: entry[0])
    return logs
