"""Fuzzes OTLP in protobuf, native core against plain Python: `python -m tests.support.otlp_fuzz [SECONDS [SEED]]`.

The bodies are what real instrumentations and agents sent, and what ragmon sends. They are damaged from a seed: bytes,
lengths, tags, whole stretches, and fields in places where they do not belong.
"""

from __future__ import annotations

import random
import sys
import time
from contextlib import contextmanager
from functools import cache
from unittest.mock import patch

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragmon.capture.exporters.otlp import SpanWriter, add_scope
from ragmon.core.constants import CONTRACT_VERSION
from ragmon.core.record import encode_entry
from ragmon.ingest.otlp import batch
from ragmon.ingest.otlp.batch import LOGS, POINTS, SPANS
from ragmon.monitor.http.requests import RejectedError
from ragmon.server.pipeline.decode import decode_traces
from ragmon.server.receiver.interface import Encoding
from tests.support import instrumentation_table, recorded_agents
from tests.support.both_paths import core
from tests.support.oracle.draw import Draw
from tests.support.otlp_requests import carried, export, field
from tests.support.random_records import record

ROUND = 200
"""Bodies between two looks at the clock."""
NOT_CLOSED, CLOSED = b"\x0b", b"\x0b\x0c"
PIECES = (
    b"",
    b"\x00",
    b"\x07",
    b"\x0a\x00",
    b"\x12\x00",
    b"\x4a\x00",
    NOT_CLOSED,
    CLOSED,
    b"\x08\x01",
    b"\x19" + bytes(8),
    b"\x7d" + bytes(4),
    b"\x8a\x00\x00",  # a tag of two bytes where one is enough
    b"\xff" * 9 + b"\x7f",  # a varint of 70 bits
    b"\xff" * 11,
    b"\x0a" + b"\xff" * 9 + b"\x01",  # a length of 64 bits
    b"\x0a\xff\xff\xff\xff\x0f",
    b"\x80",
    b"\xc3\x28",  # no UTF-8
    b"\xed\xa0\x80",  # half of a surrogate pair
    CLOSED * 60,
    NOT_CLOSED * 120 + b"\x0c" * 120,
)


@cache
def bodies():
    """Bodies as programs send them."""
    names = sorted(path.stem for path in instrumentation_table.RECORDINGS.glob("*.json"))
    traces = [instrumentation_table.load(name).spans for name in names]
    traces += [asked.spans for name in recorded_agents.NAMES for asked in recorded_agents.questions(name)[:1]]
    sent = [export(map(carried, spans), **{batch.SERVICE: "shop", batch.BUILD: "7"}) for spans in traces]
    return tuple(request.SerializeToString() for request in [*sent, own_records(stages=True), own_records()])


def own_records(*, stages=False):
    """What ragmon's own exporter sends."""
    draw, request, writer = (
        Draw(random.Random(1).randbytes(4096)),
        ExportTraceServiceRequest(),
        SpanWriter(stages=stages),
    )
    held = add_scope(request, "spans", {batch.SERVICE: "shop"})
    for place in range(8):
        made = record(draw)
        made.v, made.source = CONTRACT_VERSION, "live"
        made.trace_id = format(place + 1, "032x")
        writer.write(held.spans, made)
    return request


def nested(rng):
    """A body of messages in messages, deeper than any parser follows now and then."""
    body = rng.choice(PIECES)
    for _ in range(rng.choice((3, 10, 99, 101, 130))):
        body = field(rng.choice((1, 2, 2, 5, 6, 9, 11)), body) + rng.choice(PIECES[:6])
    return body


def damaged(body, rng):
    """A body after some accidents."""
    for _ in range(rng.randint(1, 4)):
        at, other = rng.randrange(len(body) + 1), rng.randrange(len(body) + 1)
        match rng.randrange(6):
            case 0:
                body = body[:at] + rng.choice(PIECES) + body[at:]
            case 1:
                body = body[:at] + bytes([rng.randrange(256)]) + body[at + 1 :]
            case 2:
                body = body[:at]
            case 3:
                body = body[:at] + body[other : other + rng.randrange(200)] + body[at:]
            case 4:
                body = body[:at] + body[at + rng.randrange(1, 20) :]
            case _:
                body += body[at:] if rng.random() < 0.2 else field(1, field(2, field(2, rng.choice(PIECES))))
    return body


def damaged_inside(body, rng):
    """A body with a damaged span in whole messages around it."""
    request = ExportTraceServiceRequest.FromString(body)
    process = rng.choice(request.resource_spans)
    scope = rng.choice(process.scope_spans)
    at = rng.randrange(len(scope.spans))
    span = damaged(scope.spans[at].SerializeToString(), rng)
    del scope.spans[at], process.scope_spans[:]
    return body + field(1, process.SerializeToString() + field(2, scope.SerializeToString() + field(2, span)))


def body_of(seed):
    """The body of a seed; one in eight is whole."""
    rng = random.Random(seed)
    if rng.random() < 0.1:
        return nested(rng)
    body = rng.choice(bodies())
    if rng.random() < 0.125:
        return body
    return (damaged if rng.random() < 0.5 else damaged_inside)(body, rng)


@contextmanager
def limit(messages):
    """Requests of any size are checked, and hold at most so many messages."""
    with patch.object(batch, "MAX_MESSAGES", messages), patch.object(batch, "_WALKED", 0):
        yield


def extents(body):
    """How much a body is said to hold, whatever it is taken for."""
    return [(batch.exceeds_limits(body, layout, json=False), batch.spans_in(body)) for layout in (SPANS, LOGS, POINTS)]


def decoded(body):
    """Everything that a request says: its records, its spans, what was left out, and why."""
    try:
        request = decode_traces(body, Encoding.PROTOBUF)
    except RejectedError as error:
        return error.status, error.reason, str(error), error.counts
    native = [(one.key, one.ended, one.trace_id, one.line, encode_entry(one.record)) for one in request.native]
    external = [
        (one.trace_id, one.span_id, one.is_root, one.end_ns, one.failed, one.service, one.build, one.scope, one.span())
        for one in request.external
    ]
    return native, repr(external), request.counts, request.result, request.size, request.body


def differs(body):
    """What the two paths say about a body, where that is not the same."""
    for messages in (3, 20, 50_000):
        with limit(messages):
            said = []
            for on in (False, True):
                with core(on=on):
                    said.append((extents(body), decoded(body)))
        if said[0] != said[1]:
            return said
    return None


def fuzz(seconds, seed):
    """Read bodies until the time is up; returns how many there were, and the seed of one that differs, if any does."""
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(ROUND):
            if differs(body_of(seed + count)):
                return count, seed + count
            count += 1
    return count, None


def main(seconds=60.0, seed=None):
    """Fuzz and print what was found; the exit code is 1 where the paths differ."""
    seed = int(time.time()) * 1000 if seed is None else int(seed)
    print(f"seed {seed}, {seconds} seconds", flush=True)  # noqa: T201
    count, found = fuzz(float(seconds), seed)
    print(f"{count} bodies")  # noqa: T201
    if found is not None:
        print(f"seed {found}: {body_of(found)!r}\n{differs(body_of(found))}")  # noqa: T201
    return 0 if found is None else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
