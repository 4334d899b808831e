"""What a request's spans say about it beside its texts and documents: who, when, how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ragmon.core import constants, semconv
from ragmon.core.record import LATEST, Latency
from ragmon.spans.model import Span
from ragmon.spans.trace import Trace
from ragmon.spans.values import as_id, plain

_SECOND: Final = 1e9
_MILLISECOND: Final = 1e6
_QID_MEMBERS: Final = ("qid",)
_QID: Final = (semconv.RAGMON_QID, semconv.TRULENS_INPUT_ID, f"{semconv.ASSOCIATION}.qid")
_SESSION_MEMBERS: Final = ("session_id", "conversation_id", "thread_id")
_SESSION: Final = (
    *(semconv.SESSION, semconv.CONVERSATION, semconv.TRULENS_CONVERSATION),
    *(f"{semconv.ASSOCIATION}.{name}" for name in _SESSION_MEMBERS),
)
_WORKFLOW: Final = (semconv.WORKFLOW_NAME, semconv.TRACELOOP_WORKFLOW)
_UNNAMED: Final = ("Runnable", "LangGraph", "AgentExecutor")
"""How LangChain's instrumentations call a workflow that nobody gave a name."""


def qid(trace: Trace) -> str | None:
    """The gold question's id, where the application put it on its spans."""
    return _labelled(trace, _QID, _QID_MEMBERS)


def session(trace: Trace) -> str | None:
    """The conversation the request belongs to."""
    return _labelled(trace, _SESSION, _SESSION_MEMBERS)


def _labelled(trace: Trace, own: Iterable[str], members: Iterable[str]) -> str | None:
    """The first label, the outer spans first: an attribute of its own, or a member of what the application attached."""
    for span, attached in zip(trace.spans, trace.metadata, strict=True):
        label = _first(span.attributes, own) or _first(attached, members)
        if label:
            return label
    return None


def _first(held: Mapping[str, Any], wanted: Iterable[str]) -> str | None:
    for name in wanted:
        if name in held and (text := as_id(held[name])):
            return text
    return None


def workflow(trace: Trace) -> str | None:
    """The name the application gave the workflow."""
    for span in trace.tops:
        for key in _WORKFLOW:
            name = plain(span.attributes.get(key))
            if name and not name.startswith(_UNNAMED):
                return name
    return None


def error(trace: Trace) -> str | None:
    """What went wrong, by its type, if the request ended in an error; messages may quote a user."""
    last = max(trace.outermost, key=lambda span: span.end_ns, default=None)
    # The innermost of the two tells best what went wrong: a web server's span says 500.
    told = None if last is None else _failure(last)
    return told if told is not None or trace.root is None or trace.root is last else _failure(trace.root)


def _failure(span: Span) -> str | None:
    """What went wrong in a span, by its type."""
    held = span.attributes
    told = held.get(semconv.ERROR_TYPE) or held.get(semconv.TRULENS_ERROR) or held.get(semconv.TASK_STATUS) == "failure"
    if not (span.failed or told):
        return None
    raised = [event.attributes.get(semconv.EXCEPTION_TYPE) for event in span.events if event.name == semconv.EXCEPTION]
    types = (held.get(semconv.ERROR_TYPE), *reversed(raised))
    return next((name for value in types if (name := plain(value))), constants.ERROR)


def ended(trace: Trace) -> float | None:
    """When the request ended, seconds since the epoch."""
    return moment(_extent(trace)[1])


def moment(nanoseconds: int) -> float | None:
    """A time in seconds since the epoch; None where it is no event time."""
    seconds = nanoseconds / _SECOND
    return seconds if 0 < seconds < LATEST else None


def latency(trace: Trace) -> Latency:
    """How long the request and its stages took, in milliseconds; what happened at once counts once."""
    start, end = _extent(trace)
    total = _milliseconds(end - start) if trace.outermost and start else None  # below zero, it is none
    return Latency(total, _union(trace.steps), _union(trace.calls))


def _extent(trace: Trace) -> tuple[int, int]:
    """When the request started and ended, nanoseconds since the epoch."""
    if trace.root is not None:
        return trace.root.start_ns, trace.root.end_ns
    spans = trace.outermost
    return min((span.start_ns for span in spans), default=0), max((span.end_ns for span in spans), default=0)


def _union(spans: Sequence[Span]) -> float | None:
    """The time in which at least one of the spans was under way; None without spans that say when they started.

    It is below zero, and so no latency, where one of them ended before that.
    """
    started = sorted((span for span in spans if span.start_ns), key=lambda span: span.start_ns)
    if not started:
        return None
    shortest = min(span.end_ns - span.start_ns for span in started)
    if shortest < 0:
        return _milliseconds(shortest)
    total, reached = 0, 0
    for span in started:
        total += max(0, span.end_ns - max(span.start_ns, reached))
        reached = max(span.end_ns, reached)
    return _milliseconds(total)


def _milliseconds(nanoseconds: int) -> float:
    return round(nanoseconds / _MILLISECOND, 3)
