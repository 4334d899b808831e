"""Which spans of a trace belong to which request, where a trace holds several."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ragmon import attributes as keys
from ragmon.spans.model import Span
from ragmon.spans.trace import Trace

SLACK: Final = 5_000_000
"""Nanoseconds a span may reach beyond its request: ragmon reads other clocks than the SDK."""


def per_request(spans: Iterable[Span]) -> list[list[Span]]:
    """The spans of a trace by request: one for each root of ragmon's, or all of them where there is at most one.

    Args:
        spans: All spans of one trace.

    Returns:
        A root of ragmon's, what lies in it by its parents, and what happened in its time and in no other root's. What
        fits several requests belongs to none.
    """
    trace = Trace(spans)
    roots = [span for span in trace.spans if keys.RAGMON_RECORD in span.attributes]
    if len(roots) <= 1:
        return [trace.spans]
    requests = {root.span_id: [root] for root in roots}
    for span in trace.spans:
        if span.span_id not in requests:
            owner = next((span_id for span_id in trace.above(span) if span_id in requests), None)
            around = [root.span_id for root in roots if _during(span, root)] if owner is None else [owner]
            if len(around) == 1:
                requests[around[0]].append(span)
    return list(requests.values())


def _during(span: Span, root: Span) -> bool:
    return root.start_ns - SLACK <= span.start_ns and span.end_ns <= root.end_ns + SLACK
