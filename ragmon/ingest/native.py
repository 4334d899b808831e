"""Native records: the spans that ragmon's own capture sends, each of which is a whole record."""

from __future__ import annotations

from typing import Final, NamedTuple

from ragmon.core import constants
from ragmon.core.record import SHORT, Record, bounded, encode_entry, latencies_in_range
from ragmon.ingest.decode import decode
from ragmon.ingest.fields import Rejected
from ragmon.ingest.otlp.batch import NativeSpan
from ragmon.ingest.spans.record import own_record
from ragmon.metrics.answers import AnswerCorrect

STEP_NS: Final = 10_000_000_000
"""Nanoseconds of a step of event time; keys of one step are looked up together."""


class NativeRecord(NamedTuple):
    """A record that arrived as one span.

    Attributes:
        key: Its unique key: its step of event time, its trace and its span.
        ended: When its span ended, seconds since the epoch.
        trace_id: Its trace id.
        record: The record.
        line: The record as a journal line.
    """

    key: tuple[int, bytes]
    ended: float
    trace_id: bytes
    record: Record
    line: bytes


def native_record(native: NativeSpan, unknown: dict[str, int]) -> NativeRecord | str:
    """The record in a native span with its key and its line, or the reason why it cannot be read.

    Args:
        native: The native span.
        unknown: Counts the fields of the record that are out of range.
    """
    record = record_in(native, unknown)
    if isinstance(record, str):
        return record
    key = (native.end_ns // STEP_NS, native.trace_id + native.span_id)
    return NativeRecord(key, native.end_ns / 1e9, native.trace_id, record, encode_entry(record))


def record_in(native: NativeSpan, unknown: dict[str, int]) -> Record | str:
    """The record in a native span, or the reason why it cannot be read.

    Args:
        native: The native span.
        unknown: Counts the fields of the record that are out of range.
    """
    record = own_record(native.line, native.trace_id.hex(), native.end_ns)
    if isinstance(record, str):
        return _reason(native.line, record)
    if record.source == constants.LABEL:  # ratings must come as labels, which are deduplicated
        return constants.INVALID_SCHEMA
    latency = record.latency_ms
    if len(native.line) > SHORT or (latency is not None and not latencies_in_range(latency)):
        record, out_of_range = bounded(record)
        for field_name, reason in out_of_range.items():
            unknown[f"{field_name}|{reason}"] = unknown.get(f"{field_name}|{reason}", 0) + 1
    if record.measures is not None:
        record.measures.pop(AnswerCorrect.name, None)
    if record.source is None:
        record.source = constants.LIVE
    return record


def _reason(line: str, default: str) -> str:
    """Why a line is no record; the reasons are those of lines in trace files."""
    try:
        decode(line.encode("utf-8", "surrogatepass"))
    except Rejected as error:
        return error.reason
    return default
