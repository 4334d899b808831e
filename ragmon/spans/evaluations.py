"""What others say of a request on its spans: scores of their judges, and what people say.

OpenTelemetry has an event for it (`gen_ai.evaluation.result`), OpenInference a flattened list of annotations; what is
said after the request has ended stands on a span of its own that links to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ragmon.core import semconv
from ragmon.core.constants import JUDGE_PREFIX
from ragmon.spans.flattened import Gathered, flattened
from ragmon.spans.model import Span
from ragmon.spans.values import number, plain

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


def judged(spans: Iterable[Span]) -> dict[str, float] | None:
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
    if isinstance(attributes, Gathered):
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
