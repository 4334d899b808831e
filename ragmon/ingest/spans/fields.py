"""Fields of a request other than texts and documents: ids, workflow, error, times, evaluations.

OpenTelemetry has an event for evaluations (`gen_ai.evaluation.result`), OpenInference a flattened list of annotations.
An evaluation after the end of the request is on a span of its own that links to the request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ragmon.core import constants, semconv
from ragmon.core.constants import JUDGE_PREFIX
from ragmon.core.errors import shown_name
from ragmon.core.record import LATEST, Latency
from ragmon.ingest.spans.model import Span, Trace
from ragmon.ingest.spans.values import as_id, as_text, flattened, number

LISTS: Final = (semconv.ANNOTATIONS, semconv.EVALUATIONS, semconv.TRACE_ANNOTATIONS)
CORRECTNESS: Final = frozenset({"correct", "correctness", "answer_correct", "answer_correctness", "qa_correctness"})
"""The names of annotations by which people rate whether an answer is right."""
MEMBERS: Final = {semconv.EVALUATION_NAME: "name", semconv.EVALUATION_SCORE: "score", semconv.EVALUATION_LABEL: "label"}
"""The event's attributes, and the names of the same members in the list."""
HUMAN: Final = "HUMAN"
_KEY_MARKERS: Final = tuple({f"{name.rpartition('.')[2]}." for name in LISTS})
"""The key of every attribute in such a list contains one of these."""
_TRUE: Final = frozenset({"correct", "pass", "true", "yes"})
_FALSE: Final = frozenset({"incorrect", "fail", "false", "no"})
_SEPARATORS: Final = re.compile(r"[^a-z0-9]+")


class Evaluation(NamedTuple):
    """An evaluation of a request.

    Attributes:
        name: Its subject, in lower case with underscores.
        score: In [0, 1]; 1 is best.
        human: Whether a person gave it.
        rater: The rater; "" where it is unknown.
        trace_id: The request's trace.
        ts: The time, seconds since the epoch.
    """

    name: str
    score: float
    human: bool
    rater: str
    trace_id: str
    ts: float


def evaluations(spans: Iterable[Span]) -> Iterator[Evaluation]:
    """The evaluations on spans; a score outside [0, 1], and a label that is neither yes nor no, are ignored."""
    for span in filter(_may_have_evaluations, spans):
        for raw in _raw_evaluations(span):
            score = _score(raw)
            if score is not None and (name := _name(raw.get("name"))):
                trace_id = span.links[0] if len(span.links) == 1 else span.trace_id
                human = (as_text(raw.get("annotator_kind")) or "").upper() == HUMAN
                rater = as_text(raw.get("identifier")) or ""
                yield Evaluation(name, score, human, rater, trace_id, span.end_ns / 1e9)


def judge_scores(spans: Iterable[Span]) -> dict[str, float] | None:
    """The scores of judges on a request's own spans, by metric; None where there is none."""
    scores = {
        JUDGE_PREFIX + evaluation.name: evaluation.score
        for evaluation in evaluations(span for span in spans if not span.links)
        if not evaluation.human
    }
    return scores or None


def _may_have_evaluations(span: Span) -> bool:
    """Whether a span may have evaluations: a cheap check, because most spans have none."""
    if span.events:
        return True
    keys = "\n".join(span.attributes)
    return any(marker in keys for marker in _KEY_MARKERS)


def _raw_evaluations(span: Span) -> Iterator[Mapping[str, Any]]:
    for event in span.events:
        if event.name == semconv.EVALUATION:
            attributes = event.attributes
            yield {member: attributes.get(key) for key, member in MEMBERS.items()}
    for name in LISTS:
        yield from flattened(span.attributes, name).rows()


def _name(value: Any) -> str:
    return _SEPARATORS.sub("_", (as_text(value) or "").casefold()).strip("_")


def _score(raw: Mapping[str, Any]) -> float | None:
    score = number(raw.get("score"))
    if score is not None:
        return score if 0.0 <= score <= 1.0 else None
    label = (as_text(raw.get("label")) or "").strip().casefold()
    return 1.0 if label in _TRUE else 0.0 if label in _FALSE else None


_SECOND: Final = 1e9
_MILLISECOND: Final = 1e6
_QID_MEMBERS: Final = ("qid",)
_QID_KEYS: Final = (semconv.RAGMON_QID, semconv.TRULENS_INPUT_ID, f"{semconv.ASSOCIATION}.qid")
_SESSION_MEMBERS: Final = ("session_id", "conversation_id", "thread_id")
_SESSION_KEYS: Final = (
    *(semconv.SESSION, semconv.CONVERSATION, semconv.TRULENS_CONVERSATION),
    *(f"{semconv.ASSOCIATION}.{name}" for name in _SESSION_MEMBERS),
)
_USER_MEMBERS: Final = ("user_id", "user")
_USER_KEYS: Final = (
    *(semconv.USER, semconv.END_USER),
    *(f"{semconv.ASSOCIATION}.{name}" for name in _USER_MEMBERS),
)
_MODEL_KEYS: Final = (semconv.RESPONSE_MODEL, semconv.LLM_MODEL, semconv.REQUEST_MODEL)
_WORKFLOW_KEYS: Final = (semconv.WORKFLOW_NAME, semconv.TRACELOOP_WORKFLOW)
_DEFAULT_NAMES: Final = ("Runnable", "LangGraph", "AgentExecutor")
"""The names that LangChain's instrumentations give to a workflow without a name."""


def qid(trace: Trace) -> str | None:
    """The gold question's id, where the application recorded it on its spans."""
    return _first_label(trace, _QID_KEYS, _QID_MEMBERS)


def session(trace: Trace) -> str | None:
    """The conversation the request belongs to."""
    return _first_label(trace, _SESSION_KEYS, _SESSION_MEMBERS)


def user(trace: Trace) -> str | None:
    """Who asked, where the application recorded it on its spans: personal data."""
    return _first_label(trace, _USER_KEYS, _USER_MEMBERS)


def model(trace: Trace) -> str | None:
    """The model that answered: the one of the last model call that names one.

    What the reply says goes before what was asked for: it has the version.
    """
    for span in reversed(trace.calls):
        for key in _MODEL_KEYS:
            if name := as_text(span.attributes.get(key)):
                return name
    return None


def _first_label(trace: Trace, own: Iterable[str], members: Iterable[str]) -> str | None:
    """The first label, outer spans first: an attribute of the span, or a member of the metadata on it."""
    for span, attached in zip(trace.spans, trace.metadata, strict=True):
        label = _first_id(span.attributes, own) or _first_id(attached, members)
        if label:
            return label
    return None


def _first_id(values: Mapping[str, Any], keys: Iterable[str]) -> str | None:
    for key in keys:
        if key in values and (text := as_id(values[key])):
            return text
    return None


def workflow(trace: Trace) -> str | None:
    """The workflow's name, where the application gave it one that is no text."""
    for span in trace.tops:
        for key in _WORKFLOW_KEYS:
            name = shown_name(as_text(span.attributes.get(key)) or "", "")
            if name and not name.startswith(_DEFAULT_NAMES):
                return name
    return None


def error(trace: Trace) -> str | None:
    """The type of the error, if the request ended in one; not its message, which may quote a user."""
    last = max(trace.outermost, key=lambda span: span.end_ns, default=None)
    # The inner of the two spans has the more specific type: a web server's span has only 500.
    error_type = None if last is None else _error_type(last)
    return error_type if error_type is not None or trace.root is None or trace.root is last else _error_type(trace.root)


def _error_type(span: Span) -> str | None:
    """The type of the error of a span; None where it did not fail."""
    attributes = span.attributes
    recorded = (
        attributes.get(semconv.ERROR_TYPE)
        or attributes.get(semconv.TRULENS_ERROR)
        or attributes.get(semconv.TASK_STATUS) == "failure"
    )
    if not (span.failed or recorded):
        return None
    raised = [event.attributes.get(semconv.EXCEPTION_TYPE) for event in span.events if event.name == semconv.EXCEPTION]
    types = (attributes.get(semconv.ERROR_TYPE), *reversed(raised))
    return next((name for value in types if (name := shown_name(as_text(value) or "", ""))), constants.ERROR)


def end_time(trace: Trace) -> float | None:
    """The end time of the request, seconds since the epoch."""
    return event_time(_interval(trace)[1])


def event_time(nanoseconds: int) -> float | None:
    """Convert a time to seconds since the epoch; None where it is no valid event time."""
    seconds = nanoseconds / _SECOND
    return seconds if 0 < seconds < LATEST else None


def latency(trace: Trace) -> Latency:
    """The durations of the request and its stages in milliseconds; times of parallel spans count once."""
    start, end = _interval(trace)
    total = _milliseconds(end - start) if trace.outermost and start else None  # a negative one is invalid
    return Latency(total, _union_ms(trace.steps), _union_ms(trace.calls))


def _interval(trace: Trace) -> tuple[int, int]:
    """The start and end time of the request, nanoseconds since the epoch."""
    if trace.root is not None:
        return trace.root.start_ns, trace.root.end_ns
    spans = trace.outermost
    return min((span.start_ns for span in spans), default=0), max((span.end_ns for span in spans), default=0)


def _union_ms(spans: Sequence[Span]) -> float | None:
    """The time in which at least one of the spans was running; None without spans that have a start time.

    It is negative, and so no valid latency, where a span ended before its start.
    """
    ordered = sorted((span for span in spans if span.start_ns), key=lambda span: span.start_ns)
    if not ordered:
        return None
    shortest = min(span.end_ns - span.start_ns for span in ordered)
    if shortest < 0:
        return _milliseconds(shortest)
    total, covered_until = 0, 0
    for span in ordered:
        total += max(0, span.end_ns - max(span.start_ns, covered_until))
        covered_until = max(span.end_ns, covered_until)
    return _milliseconds(total)


def _milliseconds(nanoseconds: int) -> float:
    return round(nanoseconds / _MILLISECOND, 3)
