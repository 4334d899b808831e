"""OTLP intake: CPU microseconds a span, from the body of a request to records."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from statistics import median
from time import process_time
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.groundedness import texts
from bench.otlp import BATCH, records, request
from ragmon.core import semconv
from ragmon.ingest.lines import decode
from ragmon.ingest.otlp import ExternalSpan, read
from ragmon.ingest.spans.mapper import to_record
from ragmon.ingest.spans.span import Span

ROUNDS = 31
DOCUMENTS = 10
CHARACTERS = 480


def openinference(rng: random.Random, *, alike: bool = True) -> bytes:
    """Traces of a chain with eight attributes and a retriever with 38, ten documents among them.

    Args:
        rng: Where texts and ids come from.
        alike: All chains and all retrievers have their attributes in the same order, as those of one program do.
    """
    sent = ExportTraceServiceRequest()
    process = sent.resource_spans.add()
    process.resource.attributes.add(key="service.name").value.string_value = "shop"
    held = process.scope_spans.add()
    held.scope.name = "openinference.instrumentation.langchain"
    chunks, claims = texts(rng, 200, CHARACTERS), texts(rng, BATCH, 200)
    shared = {semconv.SESSION: "s-1", semconv.METADATA: json.dumps({"thread_id": "s-1"}), "user.id": "u-1"}
    for claim in claims[: BATCH // 2]:
        trace, root = rng.randbytes(16), rng.randbytes(8)
        asked = {semconv.INPUT_VALUE: claim[:60], "input.mime_type": "text/plain", **shared}
        said = {semconv.OUTPUT_VALUE: claim, "output.mime_type": "text/plain"}
        chain = {semconv.SPAN_KIND: semconv.CHAIN, **asked, **said}
        found: dict[str, Any] = {semconv.SPAN_KIND: semconv.RETRIEVER, **asked, "tag.tags": "[]", "llm.framework": "x"}
        for place, chunk in enumerate(rng.sample(chunks, DOCUMENTS)):
            start = f"{semconv.RETRIEVED}.{place}.{semconv.DOCUMENT}"
            found |= {f"{start}.id": f"handbook#{place}", f"{start}.content": chunk, f"{start}.score": rng.random()}
        if not alike:
            chain, found = (dict(rng.sample([*told.items()], len(told))) for told in (chain, found))
        _add(held.spans, chain, trace_id=trace, span_id=root)
        _add(held.spans, found, trace_id=trace, span_id=rng.randbytes(8), parent_span_id=root)
    return bytes(sent.SerializeToString())


def _add(spans: Any, attributes: dict[str, Any], **ids: bytes) -> None:
    span = spans.add(name="step", start_time_unix_nano=1_700_000_000 * 10**9, **ids)
    span.end_time_unix_nano = span.start_time_unix_nano + 10**8
    for key, value in attributes.items():
        told = span.attributes.add(key=key).value
        if isinstance(value, str):
            told.string_value = value
        else:
            told.double_value = value


def ragmon(rng: random.Random, *, content: bool) -> bytes:
    """What ragmon's own exporter sends: roots that hold whole records, and a retrieval and a generation in each."""
    return request(records(rng, content=content), "shop")


def spans(body: bytes) -> list[Span]:
    """The request's foreign spans with their attributes."""
    return [one.span() for one in read(body, json=False).external]


def mapped(body: bytes) -> None:
    """All records of a request."""
    batch = read(body, json=False)
    for own in batch.native:
        decode(own.line.encode())
    traces: dict[bytes, list[ExternalSpan]] = {}
    for one in batch.external:
        traces.setdefault(one.trace_id, []).append(one)
    for trace in traces.values():
        to_record([one.span() for one in trace], service=trace[0].service, build=trace[0].build)


def microseconds(run: Callable[[], object], of: int) -> float:
    """CPU microseconds a span."""
    started = process_time()
    run()
    return (process_time() - started) / of * 1e6


def main() -> None:
    """Print the figures, measured in turns."""
    rng = random.Random(7)
    bodies = {
        "openinference": openinference(rng),
        "openinference, no two spans alike": openinference(rng, alike=False),
        "ragmon, content full": ragmon(rng, content=True),
        "ragmon, content none": ragmon(rng, content=False),
    }
    stages: dict[str, Callable[[bytes], object]] = {
        "read": partial(read, json=False),
        "and spans": spans,
        "and records": mapped,
    }
    runs = {(name, stage): partial(run, body) for name, body in bodies.items() for stage, run in stages.items()}
    counts = {name: read(body, json=False).spans for name, body in bodies.items()}
    rounds = [[microseconds(run, counts[name]) for (name, _), run in runs.items()] for _ in range(ROUNDS)]
    for (name, stage), figures in zip(runs, zip(*rounds, strict=True), strict=True):
        size = len(bodies[name]) / counts[name]
        print(f"{name} ({size:.0f} bytes a span), {stage}: {median(figures):.1f} us, at best {min(figures):.1f}")


if __name__ == "__main__":
    main()
