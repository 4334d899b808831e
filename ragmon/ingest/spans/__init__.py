"""Finished OpenTelemetry spans, of ragmon and of other instrumentations, converted to records of the trace contract.

Pure functions on plain values: the span processor and the OTLP receiver convert their spans to `Span`.
"""

from ragmon.core.text import Path
from ragmon.ingest.spans.mapper import fill, incomplete, own_record, per_request, to_record
from ragmon.ingest.spans.span import Event, Mapped, Merge, Span

__all__ = ["Event", "Mapped", "Merge", "Path", "Span", "fill", "incomplete", "own_record", "per_request", "to_record"]
