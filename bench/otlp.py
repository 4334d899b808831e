"""OTLP export: CPU microseconds a trace, beside a bare span of OpenTelemetry's SDK in the same process."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable
from contextlib import closing
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from statistics import median
from time import process_time

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Tracer

from bench.groundedness import texts
from ragmon.capture.otlp_exporter import OtlpExporter, ProcessResource, record_span
from ragmon.core.record import Answer, Latency, Record, Sampling, TextFacts

BATCH = 512
ROUNDS = 31
DOCUMENTS = 5
ATTRIBUTES = 8
MOST = 30.0 / 19.0
"""The goal: 30 microseconds a trace where a bare span with 8 attributes took 19."""


class Handler(BaseHTTPRequestHandler):
    """Reads and accepts."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Take a request."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def receive(pipe: Connection) -> None:
    """A receiver in a process of its own, so that its work is not counted."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        pipe.send(server.server_port)
        server.serve_forever()


def records(rng: random.Random, *, content: bool) -> list[Record]:
    """A batch of records of five documents, with their text or with what was decided about it."""
    chunks, claims = texts(rng, 200, 480), texts(rng, BATCH, 200)
    found = []
    for claim in claims:
        ids = [f"handbook#{rng.randrange(10**6)}" for _ in range(DOCUMENTS)]
        found.append(
            Record(
                v=1,
                trace_id=f"{rng.getrandbits(128):032x}",
                ts=1.7e9 + rng.random(),
                pipeline="support",
                source="live",
                q=claim[:60] if content else None,
                retrieved_ids=ids,
                scores=[rng.random() for _ in ids],
                contexts=rng.sample(chunks, DOCUMENTS) if content else None,
                answer_json=Answer(claim if content else None, ids[:2]),
                latency_ms=Latency(1200.5, 200.25, 900.125),
                index_hash="index-7",
                build="2026.11",
                session="s-1",
                sampling=Sampling(p_audit=0.05, p=0.05),
                facts=None if content else TextFacts(answered=True, refused=False, refusal_like=False),
                tags={"lang": "de"},
            )
        )
    return found


def request(batch: list[Record], service: str) -> bytes:
    """What ragmon's exporter sends of a batch."""
    resource = ProcessResource({"service.name": service})
    return bytes(encode_spans([record_span(record, resource)[0] for record in batch]).SerializeToString())


def bare(tracer: Tracer) -> None:
    """As many spans of the SDK, which go nowhere."""
    for _ in range(BATCH):
        with tracer.start_as_current_span("request") as span:
            for number in range(ATTRIBUTES):
                span.set_attribute(f"attribute.{number}", "value")


def deliver(sink: OtlpExporter, batch: list[Record]) -> None:
    """One batch, which must arrive."""
    lost = sink.deliver(batch)
    if lost:
        raise SystemExit(f"records were lost: {lost}")


def microseconds(run: Callable[[], None]) -> float:
    """CPU microseconds a trace, all threads of the process."""
    started = process_time()
    run()
    return (process_time() - started) / BATCH * 1e6


def main() -> None:
    """Print the figures and their ratios, measured in turns."""
    rng = random.Random(7)
    ours, theirs = multiprocessing.Pipe()
    receiver = multiprocessing.get_context("spawn").Process(target=receive, args=(theirs,), daemon=True)
    receiver.start()
    with closing(OtlpExporter(f"http://127.0.0.1:{ours.recv()}", resource={"service.name": "bench"})) as sink:
        runs = {
            "bare": partial(bare, TracerProvider().get_tracer("bench")),
            "deliver, content none": partial(deliver, sink, records(rng, content=False)),
            "deliver, content full": partial(deliver, sink, records(rng, content=True)),
        }
        rounds = [[microseconds(run) for run in runs.values()] for _ in range(ROUNDS)]
    receiver.terminate()
    reference, *exported = (median(found) for found in zip(*rounds, strict=True))
    print(f"bare SDK span, {ATTRIBUTES} attributes: {reference:.1f} us")
    for name, figure in zip(list(runs)[1:], exported, strict=True):
        print(f"{name}: {figure:.1f} us a trace, {figure / reference:.2f} of the bare span (at most {MOST:.2f})")


if __name__ == "__main__":
    main()
