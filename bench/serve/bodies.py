"""Requests as producers send them, all different: every trace comes once."""

from __future__ import annotations

import random
from time import time_ns

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench import ingest
from bench.otlp import records
from bench.otlp import request as request_of

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


def ragmon(rng: random.Random, n: int) -> list[bytes]:
    """Batches of whole records of ragmon's own."""
    found = []
    for _ in range(n):
        now, batch = time_ns() / 1e9, records(rng, content=False)[:SPANS]
        for record in batch:
            record.trace_id, record.ts, record.source = rng.randbytes(16).hex(), now, "live"
        found.append(request_of(batch, "shop"))
    return found
