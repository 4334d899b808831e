"""Events of spans that an instrumentation writes as log records: the messages of a model call, with its span's id.

On its way through the buffers of traces such a record is a span itself, a child of the span it belongs to, with one
event. So it is journalled, deduplicated, bounded and erased as spans are. Once the trace is taken, its event joins
those of its span.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ragmon.ingest.spans.model import Span

LOG_SCOPE: Final = "ragmon.log_record"
"""The scope name of a span that stands for a log record."""
NO_SPAN: Final = "no_span"
"""The reason for a log record whose span never came, and for a trace of which only log records came."""


def with_log_events(spans: Iterable[Span]) -> tuple[list[Span], int]:
    """The spans of a trace with the events of their log records, in the order of their times.

    Args:
        spans: All spans of the trace, with those that stand for log records.

    Returns:
        The spans without those that stand for log records, and the number of log records whose span is missing.
    """
    joined: dict[str, Span] = {}
    records: list[Span] = []
    others: list[Span] = []
    for span in spans:
        if span.scope == LOG_SCOPE:
            records.append(span)
        elif joined.setdefault(span.span_id, span) is not span:
            others.append(span)  # two spans with one id: the first one has the events
    missing = 0
    for record in sorted(records, key=lambda record: record.end_ns):
        owner = joined.get(record.parent_id or "")
        if owner is None:
            missing += 1
        else:
            joined[owner.span_id] = owner._replace(events=[*owner.events, *record.events])
    return [*joined.values(), *others], missing
