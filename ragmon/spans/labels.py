"""What a request's spans say about it beside its texts and documents: who, when, how it ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ragmon import attributes as keys
from ragmon import names
from ragmon.contract import LATEST, Latency
from ragmon.spans.model import Span
from ragmon.spans.trace import Trace
from ragmon.spans.values import as_id, plain

_SECOND: Final = 1e9
_MILLISECOND: Final = 1e6
_SESSIONS: Final = ("session_id", "conversation_id", "thread_id")
_UNNAMED: Final = ("Runnable", "LangGraph", "AgentExecutor")
"""How LangChain's instrumentations call a workflow that nobody gave a name."""


def qid(trace: Trace) -> str | None:
    """The gold question's id, where the application put it on its spans."""
    return _labelled(trace, (keys.RAGMON_QID, keys.TRULENS_INPUT_ID), ("qid",))


def session(trace: Trace) -> str | None:
    """The conversation the request belongs to."""
    return _labelled(trace, (keys.SESSION, keys.CONVERSATION, keys.TRULENS_CONVERSATION), _SESSIONS)


def _labelled(trace: Trace, own: Iterable[str], members: Iterable[str]) -> str | None:
    """The first label, the outer spans first: an attribute of its own, or a member of what the application attached."""
    wanted = (*own, *(f"{keys.ASSOCIATION}.{name}" for name in members))
    for span, attached in zip(trace.spans, trace.metadata, strict=True):
        for held, names_of in ((span.attributes, wanted), (attached, members)):
            for name in names_of:
                if name in held and (text := as_id(held[name])):
                    return text
    return None


def workflow(trace: Trace) -> str | None:
    """The name the application gave the workflow."""
    found = (
        plain(span.attributes.get(key)) for span in trace.tops for key in (keys.WORKFLOW_NAME, keys.TRACELOOP_WORKFLOW)
    )
    return next((name for name in found if name and not name.startswith(_UNNAMED)), None)


def error(trace: Trace) -> str | None:
    """What went wrong, by its type, if the request ended in an error; messages may quote a user."""
    last = max(trace.outermost, key=lambda span: span.end_ns, default=None)
    # The innermost of the two tells best what went wrong: a web server's span says 500.
    told = (_failure(span) for span in (last, trace.root) if span is not None)
    return next((name for name in told if name is not None), None)


def _failure(span: Span) -> str | None:
    """What went wrong in a span, by its type."""
    held = span.attributes
    told = held.get(keys.ERROR_TYPE) or held.get(keys.TRULENS_ERROR) or held.get(keys.TASK_STATUS) == "failure"
    if not (span.failed or told):
        return None
    raised = [event.attributes.get(keys.EXCEPTION_TYPE) for event in span.events if event.name == keys.EXCEPTION]
    types = (held.get(keys.ERROR_TYPE), *reversed(raised))
    return next((name for value in types if (name := plain(value))), names.ERROR)


def ended(trace: Trace) -> float | None:
    """When the request ended, seconds since the epoch."""
    return moment(max((span.end_ns for span in _extent(trace)), default=0))


def moment(nanoseconds: int) -> float | None:
    """A time in seconds since the epoch; None where it is no event time."""
    seconds = nanoseconds / _SECOND
    return seconds if 0 < seconds < LATEST else None


def latency(trace: Trace) -> Latency:
    """How long the request and its stages took, in milliseconds; what happened at once counts once."""
    extent = _extent(trace)
    total = max(span.end_ns for span in extent) - min(span.start_ns for span in extent) if extent else None
    return Latency(
        total=None if total is None else _milliseconds(total),
        retrieve=_union(trace.steps),
        generate=_union(trace.calls),
    )


def _extent(trace: Trace) -> list[Span]:
    return [trace.root] if trace.root is not None else trace.outermost


def _union(spans: Iterable[Span]) -> float | None:
    """The time in which at least one of the spans was under way; None without spans."""
    total, reached = 0, None
    for span in sorted(spans, key=lambda span: span.start_ns):
        start = span.start_ns if reached is None else max(span.start_ns, reached)
        total += max(0, span.end_ns - start)
        reached = span.end_ns if reached is None else max(span.end_ns, reached)
    return None if reached is None else _milliseconds(total)


def _milliseconds(nanoseconds: int) -> float:
    return round(max(0, nanoseconds) / _MILLISECOND, 3)
