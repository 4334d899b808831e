"""The records of files with OTLP: a line is an export request, as collectors write it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain

from ragmon.core.errors import printable
from ragmon.core.record import Record
from ragmon.ingest.fields import Rejected
from ragmon.ingest.otlp import SpanOptions, json, logs
from ragmon.ingest.spans.log_events import NO_SPAN
from ragmon.ingest.spans.model import NOT_RAG, UNKNOWN_CONVENTION, Mapped
from ragmon.ingest.summary import ReadSummary
from ragmon.ingest.trace_buffer import TOO_MANY, FileTraceBuffer
from ragmon.ingest.trec import Reject


def records(
    path: str, lines: Iterable[tuple[int, bytes]], intake: ReadSummary, options: SpanOptions
) -> Iterator[Record]:
    """The records of OTLP lines; each counts as one read, and so does each line or span that is rejected."""
    assembly, number = FileTraceBuffer(options=options), 0

    def refuse(rejected: Rejected) -> None:
        if rejected.lost_spans:
            intake.read += rejected.lost_spans
            intake.reject(path, number, rejected.reason, str(rejected), rejected.lost_spans)

    reject: Reject = partial(intake.reject, path)
    for number, line in lines:
        try:
            for span, process in chain(json.spans(line, refuse), logs.spans(line)):
                yield from _records_of(assembly.add(span, process.service, process.build), number, intake, reject)
        except Rejected as rejected:
            refuse(rejected)
    yield from _records_of(assembly.end(), number, intake, reject)
    if assembly.left_out:
        intake.miss("spans", TOO_MANY, assembly.left_out)


def _records_of(requests: Iterable[Mapped], number: int, intake: ReadSummary, reject: Reject) -> Iterator[Record]:
    for mapped in requests:
        intake.read += 1
        if mapped.record is None:
            reject(number, mapped.reason, f"a trace is no record: {_why_no_record(mapped)}")
            continue
        for name, reason in mapped.missing.items():
            intake.miss(name, reason)
        yield mapped.record


def _why_no_record(mapped: Mapped) -> str:
    if mapped.reason == UNKNOWN_CONVENTION:
        return f"the words of {printable(mapped.scope) or 'its instrumentation'} for models and retrieval are not known"
    reasons = {NOT_RAG: "nothing in it retrieves or asks a model", NO_SPAN: "only log records of it are there, no span"}
    return reasons.get(mapped.reason, "its record cannot be read")
