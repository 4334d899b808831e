"""Records made from the spans of one request.

A root span of ragmon carries the whole record; its unknown fields are filled from the spans of other instrumentations.
Without one, the record is read from those spans. A trace with several requests is split first.

Evaluations have an event in OpenTelemetry (`gen_ai.evaluation.result`) and a flattened list of annotations in
OpenInference. An evaluation after the end of the request is on a span of its own that links to the request.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from heapq import nlargest
from http import HTTPStatus
from itertools import chain, pairwise
from math import inf
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from ragmon.core import constants, semconv, shapes, written
from ragmon.core.citations import with_marks
from ragmon.core.constants import JUDGE_PREFIX
from ragmon.core.endings import ABANDONED, REJECTED, ending_of, status_in
from ragmon.core.errors import shown_name
from ragmon.core.record import LATEST, Answer, Latency, Line, Record, bounded
from ragmon.core.shapes import first_of, named_by_title, normalised
from ragmon.core.written import NO_MEMBERS, as_text, is_null, mapping, nonempty_text, number
from ragmon.ingest.lines import Rejected, Unknown, decode
from ragmon.ingest.spans.conventions import translated
from ragmon.ingest.spans.documents import Retrievals, Retrieved, SpanDocuments, ids_of, scores_of, texts_of, titles_of
from ragmon.ingest.spans.messages import answer, asked_texts, question
from ragmon.ingest.spans.span import (
    CONTENT_NOT_CAPTURED,
    INCOMPLETE,
    INPUT,
    NO_OPTIONS,
    NO_RETRIEVAL,
    NOT_RAG,
    NOT_UNDERSTOOD,
    OUTPUT,
    OWN_SCOPE,
    PROMPT,
    RAG_STEPS,
    UNKNOWN_CONVENTION,
    Mapped,
    Role,
    Span,
    SpanOptions,
    Trace,
    unknown_scope,
    why_no_text,
)
from ragmon.ingest.spans.tools import Memo, as_id, flattened

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
    """An evaluation of a request, in [0, 1], by a person or a judge; its score is None where it is off its scale."""

    name: str
    score: float | None
    human: bool
    rater: str
    trace_id: str
    ts: float


def evaluations(spans: Iterable[Span], ranges: Mapping[str, Sequence[float]] = NO_MEMBERS) -> Iterator[Evaluation]:
    """The evaluations on spans, on the scales of their names; a label that is neither yes nor no is ignored."""
    for span in spans:
        keys = "\n".join(span.attributes)
        if not span.events and not any(marker in keys for marker in _KEY_MARKERS):
            continue  # as most spans; a search through the joined keys is cheap
        told = (event.attributes for event in span.events if event.name == semconv.EVALUATION)
        raw_evaluations = ({member: fields.get(key) for key, member in MEMBERS.items()} for fields in told)
        for raw in chain(raw_evaluations, *(flattened(span.attributes, name).rows for name in LISTS)):
            name = _name(raw.get("name"))
            label = (as_text(raw.get("label")) or "").strip().casefold()
            score = number(raw.get("score"))
            if score is not None:
                worst, best = ranges.get(name, (0.0, 1.0))
                share = (score - worst) / (best - worst)
                score = share if 0.0 <= share <= 1.0 else None
            elif label in _TRUE | _FALSE:
                score = float(label in _TRUE)
            else:
                continue
            if name:
                trace_id = span.links[0] if len(span.links) == 1 else span.trace_id
                human = (as_text(raw.get("annotator_kind")) or "").upper() == HUMAN
                rater = as_text(raw.get("identifier")) or ""
                yield Evaluation(name, score, human, rater, trace_id, span.end_ns / 1e9)


def judge_scores(
    spans: Iterable[Span], ranges: Mapping[str, Sequence[float]] = NO_MEMBERS
) -> tuple[dict[str, float] | None, dict[str, str]]:
    """The scores of judges on a request's own spans, by metric, and what is off its scale; None without scores."""
    scores, out_of_range = dict[str, float](), dict[str, str]()
    for evaluation in evaluations((span for span in spans if not span.links), ranges):
        if evaluation.score is None:
            # The names of others are not known, and may be many.
            field = f"measures.{JUDGE_PREFIX}{evaluation.name}" if evaluation.name in ranges else "measures"
            out_of_range[field] = constants.OUT_OF_RANGE
        elif not evaluation.human:
            scores[JUDGE_PREFIX + evaluation.name] = evaluation.score
    return scores or None, out_of_range


def _name(value: Any) -> str:
    return _SEPARATORS.sub("_", (as_text(value) or "").casefold()).strip("_")


_SECOND: Final = 1e9
_MILLISECOND: Final = 1e6
_LABELS: Final = {
    "qid": ((semconv.RAGMON_QID, semconv.TRULENS_INPUT_ID), ("qid",)),
    "session": ((semconv.SESSION, semconv.CONVERSATION, semconv.TRULENS_CONVERSATION), shapes.SESSION_KEYS),
    "user": ((semconv.USER, semconv.END_USER), shapes.USER_KEYS),
}
"""The keys of attributes that hold a field, and the members of the application's metadata that hold it."""
_MEMBERS_OF_METADATA: Final[Memo[str, str]] = Memo(
    lambda key: next((normalised(key.removeprefix(p)) for p in semconv.METADATA_PREFIXES if key.startswith(p)), "")
)
"""The member of the metadata that an attribute holds, by its key."""


def _labels(trace: Trace) -> dict[str, Any]:
    """The fields of a record that the application puts on its spans, outer spans first: its qid, session and user."""
    labels: dict[str, Any] = dict.fromkeys(_LABELS)
    for span in trace.spans:
        members = _metadata(span.attributes)
        for field, (keys, names) in _LABELS.items():
            if labels[field] is None:
                labels[field] = first_of(span.attributes, keys, as_id) or first_of(members, names, as_id)
    return labels


def _metadata(attributes: Mapping[str, Any]) -> dict[str, Any]:
    members = {normalised(str(key)): value for key, value in mapping(attributes.get(semconv.METADATA)).items()}
    for key, value in attributes.items():
        if name := _MEMBERS_OF_METADATA[key]:
            members.setdefault(name, written.decode(value) or value)  # MLflow writes texts as JSON
    return members


_MODEL_KEYS: Final = (semconv.RESPONSE_MODEL, semconv.LLM_MODEL, semconv.REQUEST_MODEL)
_WORKFLOW_KEYS: Final = (semconv.WORKFLOW_NAME, semconv.TRACELOOP_WORKFLOW)
_DEFAULT_NAMES: Final = ("Runnable", "LangGraph", "AgentExecutor")
"""The names that LangChain's instrumentations give to a workflow without a name."""


def _answering_model(trace: Trace) -> str | None:
    # The last model call that names one. The reply's name goes before the request's: it has the version.
    named = (span.attributes for span in (*reversed(trace.calls), *trace.outermost))
    names = (first_of(attributes, _MODEL_KEYS, nonempty_text) for attributes in named)
    return next((shown_name(name, constants.OTHER) for name in names if name is not None), None)


def _workflow_name(trace: Trace) -> str | None:
    names = (shown_name(as_text(span.attributes.get(key)) or "", "") for span in trace.tops for key in _WORKFLOW_KEYS)
    return next((name for name in names if name and not name.startswith(_DEFAULT_NAMES)), None)


_LANGCHAIN: Final = ".langchain"


class _Outcome(NamedTuple):
    """The type of the error that a request ended in, or how else it ended; neither where it returned."""

    error: str | None = None
    ended: str | None = None


def _outcome(trace: Trace, ignored: Sequence[str]) -> _Outcome:
    # Not the message of an error, which may quote a user.
    last = max(trace.outermost, key=lambda span: span.end_ns, default=trace.root)
    if last is None:
        return _Outcome()
    # The inner of the two spans has the more specific type: a web server's span has only 500.
    outcome = _outcome_of(last, trace.root, ignored)
    if any(outcome):
        return outcome
    errors = (_outcome_of(span, trace.root, ignored).error for span in reversed(trace.enclosing))
    return _Outcome(next(filter(None, errors), None))


def _outcome_below(trace: Trace, ignored: Sequence[str]) -> _Outcome:
    """How a request ended that has no answer, and whose outer spans tell of no error: its steps may.

    A step that failed tells nothing once a model call or a retrieval that began after it went well.
    """
    working = trace.having(RAG_STEPS)
    inside = {span_id for span in working for span_id in trace.above(span)}
    recovered_ns = max((span.start_ns for span in working if not span.failed), default=0)
    outcomes = (
        _outcome_of(span, trace.root, ignored)
        for span in reversed(trace.spans)  # the inner spans have the more specific types
        if span.failed and span.end_ns > recovered_ns and (trace.role(span) or span.span_id in inside)
    )
    told = list(filter(any, outcomes))
    return next((outcome for outcome in told if outcome.error != constants.ERROR), told[0] if told else _Outcome())


def _outcome_of(span: Span, root: Span | None, ignored: Sequence[str]) -> _Outcome:
    attributes = span.attributes
    recorded = attributes.get(semconv.ERROR_TYPE) or attributes.get(semconv.TRULENS_ERROR)
    if not (span.failed or recorded or attributes.get(semconv.TASK_STATUS) == "failure"):
        # LangChain ends a chain whose stream was closed early as one that returned None.
        is_closed = span.scope.endswith(_LANGCHAIN) and is_null(attributes.get(semconv.OUTPUT_VALUE))
        return _Outcome(ended=ABANDONED if is_closed else None)
    raised = [event.attributes for event in reversed(span.events) if event.name == semconv.EXCEPTION]
    types = (attributes.get(semconv.ERROR_TYPE), *(fields.get(semconv.EXCEPTION_TYPE) for fields in raised))
    names = [name for value in types if (name := shown_name(as_text(value) or "", ""))]
    told = first_of({} if root is None else root.attributes, semconv.HTTP_STATUS, number)
    answered = None if told is None else int(told)
    is_of_server = span is root and any(key in attributes for key in semconv.OF_SERVERS)
    if is_of_server and answered is not None and answered < HTTPStatus.INTERNAL_SERVER_ERROR and not raised:
        return _Outcome(ended=REJECTED)  # some instrumentations of servers fail a span for a 404
    if not names:
        return _Outcome(constants.ERROR)
    # `error.type` may lack the module that an event has.
    same = [name for name in names if name.rpartition(".")[2] == names[0].rpartition(".")[2]]
    messages = (as_text(fields.get(semconv.EXCEPTION_MESSAGE)) or "" for fields in raised)
    statuses = (*map(status_in, messages), answered)
    status = next((found for found in statuses if found is not None), None)
    ended = ending_of([max(same, key=len)], status, ignored)
    return _Outcome(ended=ended) if ended is not None else _Outcome(names[0])


def _control_flow(trace: Trace) -> str | None:
    # A graph that asks a person ends well, and a step in it was interrupted; some tracers fail no span for a caller who
    # leaves.
    raised = (event for span in trace.spans for event in span.events if event.name == semconv.EXCEPTION)
    names = (as_text(event.attributes.get(semconv.EXCEPTION_TYPE)) or "" for event in raised)
    return next((ending for name in names if (ending := ending_of([name])) not in (None, REJECTED)), None)


def _event_time(nanoseconds: int) -> float | None:
    seconds = nanoseconds / _SECOND
    return seconds if 0 < seconds < LATEST else None


def _latency(trace: Trace) -> Latency:
    """The durations of the request and its stages in milliseconds; times of parallel spans count once."""
    start, end = _interval(trace)
    total = _milliseconds(end - start) if trace.outermost and start else None  # a negative one is invalid
    return Latency(total, _union_ms(trace.steps), _union_ms(trace.calls))


def _interval(trace: Trace) -> tuple[int, int]:
    spans = trace.outermost if trace.root is None else [trace.root]
    return min((span.start_ns for span in spans), default=0), max((span.end_ns for span in spans), default=0)


def _union_ms(spans: Sequence[Span]) -> float | None:
    """The time in which at least one of the spans was running; None without spans that have a start time.

    It is negative, and so no valid latency, where a span ended before its start.
    """
    intervals = [(span.start_ns, span.end_ns) for span in spans if span.start_ns]
    if not intervals:
        return None
    shortest = min(end - start for start, end in intervals)
    return _milliseconds(covered(intervals) if shortest >= 0 else shortest)


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """The length of the union of intervals.

    >>> covered([(0, 2), (1, 3), (5, 6)])
    4
    """
    total: float = 0
    last_end = -inf
    for start, end in sorted(intervals):
        total += max(0, end - max(start, last_end))
        last_end = max(last_end, end)
    return total


def _milliseconds(nanoseconds: float) -> float:
    return round(nanoseconds / _MILLISECOND, 3)


T = TypeVar("T", Record, Latency)
_TRUNCATED: Final = "cut"
"""How a streamed call ended whose output was longer than ragmon keeps; other spans may hold the whole answer."""


def fill(record: Record, spans: Iterable[Span], options: SpanOptions = NO_OPTIONS) -> Record:
    """Fill the unknown fields of a record from the spans that other instrumentations recorded for the same request.

    Known fields are never changed. Text that was withheld on purpose, as the record's `facts` show, is not filled in;
    so fill a record before it is redacted.
    """
    others = (span for span in spans if span.scope != OWN_SCOPE and semconv.RAGMON_RECORD not in span.attributes)
    trace = Trace(translated(others), options.retrieving)
    if not trace.is_rag:
        return record
    retrieved = Retrievals(trace, options.id_from).read(options.merge)
    values = {**_labels(trace), "model": _answering_model(trace), "candidate_ids": ids_of(retrieved.candidates)}
    # Ids, scores and texts are used where they agree with what the record knows of the documents.
    ids = ids_of(retrieved.final)
    if record.retrieved_ids is None:
        size = next((len(column) for column in (record.contexts, record.scores) if column is not None), None)
        consistent = ids is not None and size in (None, len(ids))
    else:
        consistent = ids == record.retrieved_ids
    if consistent:
        values |= {"retrieved_ids": ids, "scores": scores_of(retrieved.final)}
    if record.facts is None:
        consistent = record.retrieved_ids in (None, ids)
        values["contexts"] = texts_of(retrieved.final) if consistent else None
        values["q"] = question(trace, _texts_in(retrieved))
    record = _filled(record, values)
    latency = _filled(record.latency_ms or Latency(), msgspec.structs.asdict(_latency(trace)))
    own_answer = _filled_answer(record, trace)
    if own_answer is not None and own_answer.citations and record.retrieved_ids == ids:
        own_answer.citations = named_by_title(own_answer.citations, titles_of(retrieved.final))
    return msgspec.structs.replace(record, answer_json=own_answer, latency_ms=latency)


def _filled(own: T, values: Mapping[str, Any]) -> T:
    unknown = {field: value for field, value in values.items() if getattr(own, field) is None}
    return msgspec.structs.replace(own, **unknown)


def _texts_in(retrieved: Retrieved) -> Iterator[str]:
    lists = (found.documents or () for found in (retrieved.final, retrieved.candidates) if found is not None)
    return (document.text for documents in lists for document in documents if document.text)


def _filled_answer(record: Record, trace: Trace) -> Answer | None:
    """The answer with unknown parts filled in; citations of another claim are not used."""
    own = record.answer_json
    if record.facts is not None or record.error is not None or record.ended not in (None, _TRUNCATED):
        return own
    other = answer(trace, record.retrieved_ids)
    if other is None or own is None:
        return own or other
    if own.claim is None:
        cited = other if own.citations is None and own.ranks is None else own
        return Answer(other.claim, cited.citations, cited.ranks, other.refused)
    same_claim = own.citations is None and own.claim == other.claim
    return Answer(own.claim, other.citations, refused=own.refused) if same_claim else own


SLACK: Final = 5_000_000
"""The nanoseconds a span may extend beyond its request: ragmon and the SDK read different clocks."""


def per_request(spans: Iterable[Span], options: SpanOptions = NO_OPTIONS) -> list[Trace]:
    """Split a trace into requests: one per root of ragmon, else one per workflow that is a request by itself.

    The turns of a session or the questions of a batch may share a trace; their documents and answers must not be mixed.

    Returns:
        With several roots of ragmon: each root, its descendants, and the spans within its time and that of no other
        root; a span that fits several requests belongs to none. Without such a root, if every outermost span is a
        workflow that answered or failed, and two at least retrieved as well or failed: each of them with its
        descendants, one where two instrumentations tell of the same. The same for trees of spans, one after the other,
        that called a model, and retrieved as well or have a parent each: steps of one request share the parent that
        nobody sees. Otherwise the trace as a whole.
    """
    trace = Trace(translated(spans), options.retrieving)
    roots = [span for span in trace.spans if semconv.RAGMON_RECORD in span.attributes]
    if not roots and len(trace.outermost) > 1:
        turns = [trace.below(workflow) for workflow in trace.outermost]
        if all(map(_is_turn, turns)):
            turns = _told_once(turns)
            if sum(map(is_request, turns)) >= 2:
                return turns
        trees: dict[str, list[Span]] = {}
        for span in trace.spans:
            trees.setdefault(next(reversed(trace.above(span)), span.span_id), []).append(span)
        turns = [turn for tree in trees.values() if (turn := Trace(tree, trace.retrieving)).outermost]
        is_in_turn = all(turn.ended[-1].end_ns < later.spans[0].start_ns for turn, later in pairwise(turns))
        parents = {top.parent_id or top.span_id for turn in turns if turn.role(top := turn.spans[0]) != Role.GENERATION}
        are_apart = len(parents) == len(turns) or sum(bool(turn.steps) for turn in turns) >= 2
        if is_in_turn and are_apart and all(turn.calls for turn in turns):
            return turns
    if len(roots) < 2:
        return [trace]
    requests = {root.span_id: [root] for root in roots}
    starts = [root.start_ns for root in roots]
    # Of the roots up to each one, the two that end last.
    latest = [list[Span]()]
    for root in roots:
        latest.append(nlargest(2, [*latest[-1], root], attrgetter("end_ns")))
    for span in trace.spans:
        if span.span_id not in requests:
            begun = latest[bisect_right(starts, span.start_ns + SLACK)]
            end_ns = span.end_ns - SLACK
            around = [root.span_id for root in begun if root.end_ns >= end_ns]
            owner = next((span_id for span_id in trace.above(span) if span_id in requests), None)
            if owner is not None or len(around) == 1:
                requests[owner or around[0]].append(span)
    return [Trace(members, trace.retrieving) for members in requests.values()]


_NEAR: Final = 8
"""How many turns before one are looked at: what is told twice begins at the same time."""


def _told_once(turns: Sequence[Trace]) -> list[Trace]:
    """Turns without those that another instrumentation tells of, too: at the same time, with the same question."""

    def is_same(one: Trace, other: Trace) -> bool:
        (start, end), (other_start, other_end) = _interval(one), _interval(other)
        overlap = start <= other_end and other_start <= end
        return overlap and one.outermost[0].scope != other.outermost[0].scope and question(one) == question(other)

    once: list[Trace] = []
    for turn in turns:
        if not any(is_same(turn, other) for other in once[-_NEAR:]):
            once.append(turn)
    return once


def ended_requests(spans: Iterable[Span], running: Container[str], options: SpanOptions) -> list[Trace]:
    """The workflows of a trace that are requests by themselves and have ended, while a span around them is running.

    Args:
        spans: All spans of the trace, those that are running as well.
        running: The ids of the spans that are running.
        options: How spans are read.
    """
    trace = Trace(translated(spans), options.retrieving)
    turns = [trace.below(workflow) for workflow in trace.outermost if workflow.span_id not in running]
    return [turn for turn in turns if is_request(turn) and not any(span.span_id in running for span in turn.spans)]


def is_request(turn: Trace) -> bool:
    """Whether a workflow with its descendants is a whole request: it retrieved and answered, or it failed."""
    return _is_turn(turn) and bool(turn.outermost[0].failed or turn.steps)


def begins_anew(request: Trace) -> bool:
    """Whether spans that began when the requests of their trace had ended are another request, not work left over.

    Such a request has a root of its own, or is whole: it retrieved and answered, or it failed.
    """
    has_root = any(span.parent_id is None or semconv.RAGMON_RECORD in span.attributes for span in request.spans)
    return has_root or is_request(request) or bool(request.steps and request.calls)


def _is_turn(turn: Trace) -> bool:
    """Whether a workflow with its descendants answered or failed; a turn of a conversation may need no documents.

    With texts on its spans and no answer among them it is a step: its model called a tool.
    """
    if len(turn.outermost) != 1 or not turn.role(workflow := turn.outermost[0]) & Role.WORKFLOW:
        return False
    if workflow.failed or answer(turn) is not None:
        return True
    return bool(turn.having(Role.GENERATION)) and why_no_text(turn, OUTPUT) != NOT_UNDERSTOOD


_decode = msgspec.json.Decoder(Record).decode


def to_record(
    spans: Iterable[Span] | Trace,
    options: SpanOptions = NO_OPTIONS,
    *,
    service: str | None = None,
    build: str | None = None,
) -> Mapped:
    """Convert the spans of one request to a record.

    A root span of ragmon is the whole record; the other spans fill its unknown fields. Without one, the record is read
    from the spans of other instrumentations: OpenTelemetry's GenAI conventions, OpenInference, OpenLLMetry, TruLens,
    and the tracers that `ragmon.ingest.spans.conventions` translates.

    Args:
        spans: All of the request's spans, in any order, or an element of the result of `per_request`.
        options: How they are read; an element of the result of `per_request` was read in a way of its own.
        service: The service's name (`service.name`).
        build: The application's version (`service.version`).

    Examples:
        >>> from ragmon.core.semconv import DOCUMENTS, OPERATION, QUERY_TEXT
        >>> held = {OPERATION: "retrieval", QUERY_TEXT: "Is it?", DOCUMENTS: '[{"id": "d1"}, {"id": "d2"}]'}
        >>> mapped = to_record([Span("0" * 31 + "1", "0" * 15 + "1", None, "retrieval", 1, 2, held)])
        >>> mapped.record.q, mapped.record.retrieved_ids, dict(mapped.missing)
        ('Is it?', ['d1', 'd2'], {'answer_json': 'no_answer'})
    """
    trace = spans if isinstance(spans, Trace) else Trace(translated(spans), options.retrieving)
    own_spans = [span for span in trace.spans if semconv.RAGMON_RECORD in span.attributes]
    if own_spans:
        own, reasons, unread = own_spans[0], dict[str, str](), dict[str, str]()

        def miss(field: str, reason: str, found: str = "", /) -> None:
            reasons[field], unread[field] = reason, found

        record = own_record(own.attributes[semconv.RAGMON_RECORD], own.trace_id, own.end_ns, miss)
        if isinstance(record, str):
            return Mapped(None, record)
        filled = fill(record, trace.spans, options)
        if record.facts is None:
            filled.answer_json = with_marks(filled.answer_json, filled.retrieved_ids)
        kept, out_of_range = bounded(filled)
        return Mapped(kept, "", {**reasons, **out_of_range}, unread=unread)
    if not trace.is_rag and (answer(trace) is None or question(trace) is None):
        scope = unknown_scope(trace.spans)
        return Mapped(None, NOT_RAG) if scope is None else Mapped(None, UNKNOWN_CONVENTION, scope=scope)
    retrieved = Retrievals(trace, options.id_from).read(options.merge)
    (error, ended), ids, unread = _outcome(trace, options.ignored), ids_of(retrieved.final), dict[str, str]()
    reply, miss = None, partial(unread.__setitem__, "citations")
    if error == constants.ERROR and any(below := _outcome_below(trace, options.ignored)):
        error, ended = below  # an inner span tells its type
    if error is None and ended is None:
        reply = with_marks(answer(trace, ids, titles_of(retrieved.final), miss), ids)
        if reply is None or not (reply.claim or reply.refused):
            error, ended = _outcome_below(trace, options.ignored)
        if error is not None or ended is not None:
            reply = None
        elif reply is None:
            ended = _control_flow(trace)
    # TruLens's service is the library itself; the application is on its spans.
    app, version = (
        shown_name(as_text(trace.first.attributes.get(key)) or "", "") or None
        for key in (semconv.TRULENS_APP, semconv.TRULENS_APP_VERSION)
    )
    if app is not None:
        service, build = app, version
    workflow = _workflow_name(trace) if options.by_workflow else None
    measures, off_scale = judge_scores(trace.spans, options.ranges)
    record = Record(
        v=constants.CONTRACT_VERSION,
        trace_id=trace.spans[0].trace_id,
        ts=_event_time(_interval(trace)[1]),
        pipeline=options.pipeline or workflow or service or constants.DEFAULT_PIPELINE,
        source=constants.LIVE,
        q=question(trace, _texts_in(retrieved)),
        retrieved_ids=ids,
        candidate_ids=ids_of(retrieved.candidates),
        scores=scores_of(retrieved.final),
        contexts=texts_of(retrieved.final),
        answer_json=reply,
        error=error,
        ended=ended,
        latency_ms=_latency(trace),
        build=build,
        model=_answering_model(trace),
        exported=(trace.root or trace.spans[0]).sampled,
        measures=measures,
        instrumentation=_instrumentation(trace),
        **_labels(trace),
    )
    # An answer that was not recorded is unknown; an empty answer is recorded as one.
    record.partial = record.answer_json is None and record.error is None
    kept, out_of_range = bounded(record)
    missing = _missing(record, trace, retrieved.final)
    tools = trace.tools if missing.get("retrieved_ids") == NO_RETRIEVAL else ()
    reasons = {**missing, **dict.fromkeys(unread, constants.UNREADABLE), **out_of_range, **off_scale}
    kept.why_unknown = reasons or None
    return Mapped(kept, "", reasons, tools=tools, unread=unread)


_ABSENT: Final = (CONTENT_NOT_CAPTURED, constants.NO_ANSWER)
"""The reasons that are true only if no span is missing."""


def incomplete(mapped: Mapped, request: Trace) -> Mapped:
    """Mark a request with missing spans: its documents become unknown, its latency without its root, and it partial."""
    if mapped.record is None:
        return mapped
    unknown: dict[str, Any] = dict.fromkeys(("retrieved_ids", "candidate_ids", "scores", "contexts"))
    missing = {name: INCOMPLETE if reason in _ABSENT else reason for name, reason in mapped.missing.items()}
    missing["retrieved_ids"] = INCOMPLETE
    if mapped.record.latency_ms is not None and all(span.parent_id for span in request.tops):
        unknown["latency_ms"] = msgspec.structs.replace(mapped.record.latency_ms, total=None)
        missing["latency_ms.total"] = INCOMPLETE
    record = msgspec.structs.replace(mapped.record, **unknown, partial=True, why_unknown=missing)
    return mapped._replace(record=record, missing=missing)


def own_record(line: object, trace_id: str, end_ns: int, unknown: Unknown) -> Record | str:
    """The record in the attribute of a root span of ragmon, or the reason why such a line cannot be read."""
    if not isinstance(line, str):
        return constants.INVALID_SCHEMA
    record: Line | None = None
    with suppress(ValueError, RecursionError):  # msgspec's own errors, and text that UTF-8 cannot encode
        found = _decode(line)
        if found.kind is None and found.source in (None, *constants.SOURCES):
            record = found
    if record is None:
        try:
            record = decode(line.encode("utf-8", "surrogatepass"), unknown)
        except Rejected as rejected:
            return rejected.reason
    if not isinstance(record, Record) or record.v != constants.CONTRACT_VERSION:
        return constants.INVALID_SCHEMA
    record.trace_id = trace_id if record.trace_id is None else record.trace_id
    record.ts = _event_time(end_ns) if record.ts is None else record.ts
    return record


def _missing(record: Record, trace: Trace, documents: SpanDocuments) -> dict[str, str]:
    reasons = {}
    if record.q is None:
        reasons["q"] = PROMPT if any(True for _ in asked_texts(trace)) else why_no_text(trace, INPUT)
    if record.retrieved_ids is None and documents.reason:
        reasons["retrieved_ids"] = documents.reason
    if record.answer_json is None and record.error is None and record.ended is None:
        answering_spans = trace.having(Role.GENERATION | Role.WORKFLOW)
        reasons["answer_json"] = why_no_text(trace, OUTPUT) if answering_spans else constants.NO_ANSWER
    return reasons


_INSTRUMENTATION_OF: Final[Memo[str, str]] = Memo(
    lambda scope: next(
        (
            name
            for key, name in semconv.INSTRUMENTATIONS.items()
            if scope.startswith(key) and scope[len(key) :][:1] in "./"
        ),
        "",
    )
)
"""The instrumentation that a scope, or the name of a span, begins with; "" where it is none that is known."""


def _instrumentation(trace: Trace) -> str:
    """The instrumentation that recorded a request: that of its outermost span which is known, else a scope."""
    known = filter(None, map(_family, (*trace.outermost, *trace.spans)))
    name = next(known, None) or shown_name((trace.outermost or trace.spans)[0].scope, constants.OTHER)
    # AutoGen's own spans have no texts: another instrumentation inside them is asked for these.
    return next((inner for inner in known if inner != name), name) if name == semconv.AUTOGEN else name


def _family(span: Span) -> str:
    by_key = (family for key, family in semconv.FAMILY_KEYS.items() if span.attributes.get(key))
    return _INSTRUMENTATION_OF[span.scope] or _INSTRUMENTATION_OF[span.name] or next(by_key, "")
