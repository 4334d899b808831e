"""Which spans of a trace belong to which request, where a trace holds several."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from ragmon.core import semconv
from ragmon.spans.answers import answer
from ragmon.spans.model import Span
from ragmon.spans.roles import Role
from ragmon.spans.trace import Trace

SLACK: Final = 5_000_000
"""Nanoseconds a span may reach beyond its request: ragmon reads other clocks than the SDK."""


def per_request(spans: Iterable[Span]) -> list[Trace]:
    """The requests in a trace: one for each root of ragmon's, else one for each workflow that is one by itself.

    Turns of a session may share a trace, or a batch of questions; their documents and answers are not to be mixed.

    Args:
        spans: All spans of one trace.

    Returns:
        With several roots of ragmon's: each root, what lies in it by its parents, and what happened in its time and in
        no other root's; what fits several requests belongs to none. Without one, and where every outermost span is a
        workflow that retrieved and answered, or failed: each of them with what lies in it. Else the trace as a whole.
    """
    trace = Trace(spans)
    roots = [span for span in trace.spans if semconv.RAGMON_RECORD in span.attributes]
    if roots:
        return [trace] if len(roots) == 1 else _around(roots, trace)
    if len(trace.outermost) > 1:
        turns = [Trace([flow, *trace.inside(flow)]) for flow in trace.outermost]
        if all(map(_is_request, trace.outermost, turns)):
            return turns
    return [trace]


def _around(roots: list[Span], trace: Trace) -> list[Trace]:
    requests = {root.span_id: [root] for root in roots}
    times = _Times(roots)
    for span in trace.spans:
        if span.span_id not in requests:
            owner = next((span_id for span_id in trace.above(span) if span_id in requests), None)
            owner = times.only(span) if owner is None else owner
            if owner is not None:
                requests[owner].append(span)
    return [Trace(held) for held in requests.values()]


class _Times:
    """When requests ran: which of many one span fell into is found without looking at all of them.

    Args:
        roots: Their roots, in the order they started.
    """

    def __init__(self, roots: list[Span]) -> None:
        self._starts = [root.start_ns for root in roots]
        self._last: list[tuple[Span, Span | None]] = []
        """Of the roots up to each, the one that ended last, and the next before it."""
        for root in roots:
            last, second = self._last[-1] if self._last else (None, None)
            if last is None or root.end_ns > last.end_ns:
                last, second = root, last
            elif second is None or root.end_ns > second.end_ns:
                second = root
            self._last.append((last, second))

    def only(self, span: Span) -> str | None:
        """The root in whose time a span happened; None where it is none's, or several's."""
        started = bisect_right(self._starts, span.start_ns + SLACK)
        if not started:
            return None
        last, second = self._last[started - 1]
        ended = span.end_ns - SLACK
        return last.span_id if last.end_ns >= ended and (second is None or second.end_ns < ended) else None


def _is_request(flow: Span, turn: Trace) -> bool:
    """Whether a workflow is a request by itself: parts of one retrieve, rewrite, or put together what others found."""
    if not turn.role(flow) & Role.WORKFLOW:
        return False
    answered = turn.having(Role.GENERATION) or answer(turn) is not None
    return flow.failed or bool(turn.steps and answered)
