"""What others say of a request on its spans: scores of their judges, and what people say.

OpenTelemetry has an event for it (`gen_ai.evaluation.result`), OpenInference a flattened list of annotations; what is
said after the request has ended stands on a span of its own that links to it.

What a request's spans say about it beside its texts and documents: who, when, how it ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ragmon.core import constants, semconv
from ragmon.core.constants import JUDGE_PREFIX
from ragmon.core.record import LATEST, Latency
from ragmon.ingest.spans.model import Span, Trace
from ragmon.ingest.spans.values import GroupedAttributes, as_id, flattened, number, plain

LISTS: Final = (semconv.ANNOTATIONS, semconv.EVALUATIONS, semconv.TRACE_ANNOTATIONS)
CORRECTNESS: Final = frozenset({"correct", "correctness", "answer_correct", "answer_correctness", "qa_correctness"})
"""How an annotation is called by which people say whether an answer is right."""
MEMBERS: Final = {semconv.EVALUATION_NAME: "name", semconv.EVALUATION_SCORE: "score", semconv.EVALUATION_LABEL: "label"}
"""What the event's attributes are called in the list."""
HUMAN: Final = "HUMAN"
_SIGNS: Final = tuple({f"{name.rpartition('.')[2]}." for name in LISTS})
"""What is in the keys of every such list."""
_TRUE: Final = frozenset({"correct", "pass", "true", "yes"})
_FALSE: Final = frozenset({"incorrect", "fail", "false", "no"})
_BETWEEN: Final = re.compile(r"[^a-z0-9]+")


class Evaluation(NamedTuple):
    """What somebody says of a request.

    Attributes:
        name: What about, in lower case with underscores.
        score: How good it is, in [0, 1].
        human: A person says so.
        rater: Who; "" where nobody knows.
        trace_id: The request's trace.
        ts: When, seconds since the epoch.
    """

    name: str
    score: float
    human: bool
    rater: str
    trace_id: str
    ts: float


def evaluations(spans: Iterable[Span]) -> Iterator[Evaluation]:
    """What is said on spans; a score outside [0, 1], and a label that is neither yes nor no, say nothing."""
    for span in filter(_may_tell, spans):
        for told in _told(span):
            score = _score(told)
            if score is not None and (name := _name(told.get("name"))):
                about = span.links[0] if len(span.links) == 1 else span.trace_id
                human = (plain(told.get("annotator_kind")) or "").upper() == HUMAN
                rater = plain(told.get("identifier")) or ""
                yield Evaluation(name, score, human, rater, about, span.end_ns / 1e9)


def judge_scores(spans: Iterable[Span]) -> dict[str, float] | None:
    """The scores of judges on a request's own spans, by metric; None where there is none."""
    found = {
        JUDGE_PREFIX + told.name: told.score
        for told in evaluations(span for span in spans if not span.links)
        if not told.human
    }
    return found or None


def _may_tell(span: Span) -> bool:
    """Whether anybody may have said something on a span: on most nobody did, and they are to cost next to nothing."""
    attributes = span.attributes
    if span.events:
        return True
    if isinstance(attributes, GroupedAttributes):
        return not attributes.lists.keys().isdisjoint(LISTS)
    told = "\n".join(attributes)
    return any(sign in told for sign in _SIGNS)


def _told(span: Span) -> Iterator[Mapping[str, Any]]:
    for event in span.events:
        if event.name == semconv.EVALUATION:
            held = event.attributes
            yield {member: held.get(key) for key, member in MEMBERS.items()}
    for name in LISTS:
        yield from flattened(span.attributes, name).rows()


def _name(value: Any) -> str:
    return _BETWEEN.sub("_", (plain(value) or "").casefold()).strip("_")


def _score(told: Mapping[str, Any]) -> float | None:
    score = number(told.get("score"))
    if score is not None:
        return score if 0.0 <= score <= 1.0 else None
    said = (plain(told.get("label")) or "").strip().casefold()
    return 1.0 if said in _TRUE else 0.0 if said in _FALSE else None


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


def end_time(trace: Trace) -> float | None:
    """When the request ended, seconds since the epoch."""
    return event_time(_extent(trace)[1])


def event_time(nanoseconds: int) -> float | None:
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
