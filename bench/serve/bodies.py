"""Requests as producers send them, all different: every trace comes once."""

from __future__ import annotations

import random
from time import time_ns

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench import ingest
from bench.otlp import records
from ragmon.capture.exporters.otlp import SpanWriter, add_scope

SPANS = 512


def openinference(rng: random.Random, n: int) -> list[bytes]:
    """Batches of traces of a chain and a retriever of ten documents, as OpenInference writes them."""
    found = []
    for _ in range(n):
        request = ExportTraceServiceRequest.FromString(ingest.openinference(rng))
        now = time_ns()
        for span in request.resource_spans[0].scope_spans[0].spans:
            span.start_time_unix_nano, span.end_time_unix_nano = now - 10**8, now
        found.append(request.SerializeToString())
    return found


def ragmon(rng: random.Random, n: int, *, stages: bool = True) -> list[bytes]:
    """Batches of whole records of ragmon's own, each with its retrieval and generation where stages are sent."""
    writer, found = SpanWriter(stages=stages), []
    share = 3 if stages else 1
    for _ in range(n):
        request = ExportTraceServiceRequest()
        held = add_scope(request, "spans", {"service.name": "shop"})
        now = time_ns() / 1e9
        for record in records(rng, content=False)[: SPANS // share]:
            record.trace_id, record.ts, record.source = rng.randbytes(16).hex(), now, "live"
            writer.write(held.spans, record)
        found.append(request.SerializeToString())
    return found
