"""What goes in and what comes out: a finished span as its instrumentation left it, and what became of a request.

Spans of OpenTelemetry's SDK in ragmon's own form. Runs in the worker, never on the request path.

What a span did in a RAG request, told from what its instrumentation wrote on it.

The spans of one request as a tree, and which of them is the request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from ragmon.core import semconv
from ragmon.core.record import Record
from ragmon.ingest.spans.values import decode, flattened, mapping

Path = tuple[str | int, ...]
"""Where a document's id is: names of members and places in lists, outermost first."""
Merge = Literal["last", "concat", "rrf"]
"""What several independent retrievals make: the last list, one after the other, or their reciprocal rank fusion."""

OWN_SCOPE: Final = "ragmon"
"""The scope of ragmon's own spans."""
NOT_RAG: Final = "not_rag"
"""Why a request is no record: it retrieved nothing, asked no model, and has no root span of ragmon's."""
ATTRIBUTES_DROPPED: Final = "attributes_dropped"
"""Why a field is unknown: a limit took attributes or events off the span, so what is left of a list proves nothing."""
CONTENT_NOT_CAPTURED: Final = "content_not_captured"
"""Why a field is unknown: the instrumentation was not told to record it, or was told to hide it."""
NO_RETRIEVAL: Final = "no_retrieval"
"""Why ids are unknown: no span says that anything was retrieved."""

TOO_MANY_STEPS: Final = "too_many_steps"
"""Why ids are unknown: there were more retrievals and rerankings than are followed."""
INCOMPLETE: Final = "incomplete"
"""Why documents are unknown where spans of the trace are missing: they may have held others."""
SPANS: Final = 10_000
"""Spans of one trace that are held together."""
TOO_MANY_SPANS: Final = "too_many_spans"
"""Why a span belongs to no record: so many of its trace came before it."""

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


class Event(NamedTuple):
    """An event of a span."""

    name: str
    attributes: Mapping[str, Any] = _NONE


class Span(NamedTuple):
    """A finished span, whoever recorded it.

    Attributes:
        trace_id: 32 hex digits.
        span_id: 16 hex digits.
        parent_id: The parent's span id; None for a root.
        name: What it is called.
        start_ns: When it started, nanoseconds since the epoch.
        end_ns: When it ended.
        attributes: As recorded: text, numbers, booleans, and lists and mappings of them. Lists that an instrumentation
            flattened may have been put together (`ragmon.ingest.spans.values.GroupedAttributes`).
        events: In the order they happened.
        failed: Its status is an error.
        dropped: How many of its attributes a limit took away.
        dropped_events: How many of its events.
        scope: The name of the instrumentation that recorded it.
        sampled: The application's tracer keeps it; None where nobody knows.
        links: The traces it links to.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any] = _NONE
    events: Sequence[Event] = ()
    failed: bool = False
    dropped: int = 0
    dropped_events: int = 0
    scope: str = ""
    sampled: bool | None = None
    links: Sequence[str] = ()


class Mapped(NamedTuple):
    """What became of a request's spans.

    Attributes:
        record: The request; None where the spans are none, or hold a record that cannot be read.
        reason: Why there is no record; "" where there is one.
        missing: Why a field of the record is unknown, or cut, by field: `q`, `retrieved_ids`, `candidate_ids`,
            `answer_json`, `latency_ms.total` and its stages.
    """

    record: Record | None
    reason: str = ""
    missing: Mapping[str, str] = _NONE


def from_sdk_span(span: Any) -> Span:
    """A finished `opentelemetry.sdk.trace.ReadableSpan` in the form the mapping reads."""
    own, parent = span.context, span.parent
    return Span(
        trace_id=f"{own.trace_id:032x}",
        span_id=f"{own.span_id:016x}",
        parent_id=None if parent is None else f"{parent.span_id:016x}",
        name=span.name,
        start_ns=span.start_time or 0,
        end_ns=span.end_time or span.start_time or 0,
        attributes=span.attributes or {},
        events=[Event(event.name, event.attributes or {}) for event in span.events],
        failed=not span.status.is_ok and not span.status.is_unset,
        dropped=span.dropped_attributes,
        dropped_events=span.dropped_events,
        scope="" if span.instrumentation_scope is None else span.instrumentation_scope.name,
        sampled=bool(own.trace_flags.sampled),
    )


def resource(span: Any) -> Mapping[str, Any]:
    """What the process that recorded a span says of itself: `service.name`, `service.version`."""
    found = getattr(span, "resource", None)
    return {} if found is None else found.attributes


class Role:
    """What a span did: a bit each, so that one number says what all the spans around another one did."""

    STEP: Final = 0
    """Nothing of what follows."""
    WORKFLOW: Final = 1
    """Holds a whole request or a part of it: a chain, an agent."""
    RETRIEVAL: Final = 2
    RERANKING: Final = 4
    GENERATION: Final = 8
    """Asked a language model."""
    ASIDE: Final = 16
    """A judge's work, and all inside it: not the application's traffic."""
    CHECK: Final = 32
    """A guardrail; what models say inside it is no answer."""


_KINDS: Final = {
    semconv.CHAIN: Role.WORKFLOW,
    semconv.AGENT: Role.WORKFLOW,
    semconv.RETRIEVER: Role.RETRIEVAL,
    semconv.RERANKER: Role.RERANKING,
    semconv.LLM: Role.GENERATION,
    semconv.EVALUATOR: Role.ASIDE,
    semconv.GUARDRAIL: Role.CHECK,
}
_OPERATIONS: Final = {
    semconv.INVOKE_WORKFLOW: Role.WORKFLOW,
    "invoke_agent": Role.WORKFLOW,
    semconv.RETRIEVAL: Role.RETRIEVAL,
    "vector_db_retrieve": Role.RETRIEVAL,  # OpenLLMetry
    "rerank": Role.RERANKING,
    "chat": Role.GENERATION,
    "text_completion": Role.GENERATION,
    "generate_content": Role.GENERATION,
}
_TRACELOOP: Final = {"workflow": Role.WORKFLOW, "agent": Role.WORKFLOW}
_REQUEST_TYPES: Final = {"chat": Role.GENERATION, "completion": Role.GENERATION, "rerank": Role.RERANKING}
_TRULENS: Final = {
    "record_root": Role.WORKFLOW,
    "retrieval": Role.RETRIEVAL,
    "reranking": Role.RERANKING,
    "generation": Role.GENERATION,
    "eval_root": Role.ASIDE,
    "eval": Role.ASIDE,
    "eval_decision": Role.ASIDE,
}
_CONVENTIONS: Final = (
    (semconv.SPAN_KIND, _KINDS),
    (semconv.OPERATION, _OPERATIONS),
    (semconv.TRULENS_KIND, _TRULENS),
    (semconv.REQUEST_TYPE, _REQUEST_TYPES),
    (semconv.TRACELOOP_KIND, _TRACELOOP),
)
_RETRIEVER: Final = re.compile(r"Retriever\.(?:task|workflow)")
"""How OpenLLMetry calls LlamaIndex's retrievers; nothing else on their spans says what they are."""
_HITS: Final = (semconv.QUERY_RESULT, semconv.SEARCH_RESULT)
_SCORED_NODE: Final = "NodeWithScore"
_ROLE: Final = f"{semconv.MESSAGE}.role"


def role_of(span: Span) -> int:
    """What a span did. Where its conventions disagree, what is more specific than "a chain" holds."""
    held = span.attributes
    if held.get(semconv.RAGMON_INTERNAL) is True:
        return Role.ASIDE
    told = Role.STEP
    for key, roles in _CONVENTIONS:
        value = held.get(key)
        if isinstance(value, str):
            told = roles.get(value, told)
            if told > Role.WORKFLOW:
                return Role.STEP if told == Role.GENERATION and _only_builds_a_prompt(held) else told
    found = _of_llama_index(held)
    if found is not None:
        return found
    return Role.WORKFLOW if told or semconv.RAGMON_RECORD in held else _by_content(span)


def _only_builds_a_prompt(held: Mapping[str, Any]) -> bool:
    """OpenInference's Haystack instrumentation calls prompt builders LLMs."""
    if semconv.PROMPT_TEMPLATE not in held or semconv.LLM_MODEL in held:
        return False
    return not any(
        _ROLE in row for name in (semconv.LLM_INPUT, semconv.LLM_OUTPUT) for row in flattened(held, name).rows()[:1]
    )


def _by_content(span: Span) -> int:
    """What documents or messages on a span nobody named say it did."""
    held = span.attributes
    if semconv.DOCUMENTS in held or semconv.VECTOR_TOP_K in held or any(event.name in _HITS for event in span.events):
        return Role.RETRIEVAL
    # OpenLLMetry names the operation on some models' spans only.
    return Role.GENERATION if semconv.OUTPUT_MESSAGES in held else Role.STEP


def _of_llama_index(held: Mapping[str, Any]) -> int | None:
    """What a step of LlamaIndex did that its instrumentation calls a chain or a task."""
    name = held.get(semconv.ENTITY_NAME)
    if isinstance(name, str) and _RETRIEVER.search(name):
        return Role.RETRIEVAL
    output = held.get(semconv.OUTPUT_VALUE, held.get(semconv.ENTITY_OUTPUT))
    if not isinstance(output, str) or not output.startswith("[") or _SCORED_NODE not in output:
        return None
    return _of_nodes(decode(held.get(semconv.INPUT_VALUE, held.get(semconv.ENTITY_INPUT))))


def _of_nodes(asked: Any) -> int | None:
    """What a LlamaIndex step did that returned scored nodes: its postprocessors are given nodes, its retrievers not."""
    if not isinstance(asked, dict):
        return None
    if "nodes" in asked:
        return Role.RERANKING
    return Role.RETRIEVAL if any("query" in name for name in asked) else None


_STEPS: Final = Role.RETRIEVAL | Role.RERANKING
_WORK: Final = _STEPS | Role.GENERATION
_RAG: Final = Role.WORKFLOW | _WORK
DEEPEST: Final = 512
"""Spans around a span that are looked at, the nearest ones."""
_KEPT: Final = 200_000
"""Of spans around spans, how many are remembered: deep traces have more of those than spans."""
_NOTHING: Final[dict[str, Span]] = {}
_end = attrgetter("end_ns")


class Trace:
    """The spans of one request.

    Args:
        spans: In any order; of two with the same id the first one counts.

    Attributes:
        spans: In the order they started, without those of judges.
        ended: The same in the order they ended.
        outermost: Those that have to do with RAG and lie in no other such span, in the order they started.
        root: The request: the span that holds all of those and lies in no other, a web server's perhaps. None where
            several do.
        tops: The request and the outermost spans in it, in the order they started.
        steps: Retrievals and rerankings, in the order they ended.
        calls: Model calls that may be answers, in the order they ended: none that rewrites a query, judges documents or
            is a guardrail's.
    """

    def __init__(self, spans: Iterable[Span]) -> None:
        self._by_id: dict[str | None, Span] = {}
        for span in spans:
            self._by_id.setdefault(span.span_id, span)
        self._roles = {span.span_id: role_of(span) for span in self._by_id.values()}
        self._above: dict[str, dict[str, Span]] = {}
        self._around: dict[str, int] = {}
        self._room = _KEPT
        self._inside: dict[str, list[Span]] | None = None
        self._metadata: list[Mapping[str, Any]] | None = None
        spans = list(self._by_id.values())
        if Role.ASIDE in self._roles.values():
            spans = [span for span in spans if not (self.role(span) | self.around(span)) & Role.ASIDE]
        self.spans = sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))
        self.ended = sorted(self.spans, key=_end)
        rag = [span for span in self.spans if self._roles[span.span_id] & _RAG]
        self.outermost = [span for span in rag if not self.around(span) & _RAG]
        self._outermost = {span.span_id for span in self.outermost}
        self.root = self._only_top()
        around = self.root is not None and self.root not in self.outermost
        self.tops = [self.root, *self.outermost] if self.root is not None and around else self.outermost
        self.steps = self.having(_STEPS)
        calls = [span for span in self.having(Role.GENERATION) if not self.around(span) & _STEPS]
        # A guardrail around everything checks nothing by itself.
        self.calls = [span for span in calls if not self.around(span) & Role.CHECK] or calls

    @property
    def is_rag(self) -> bool:
        """Whether anything was retrieved or a model asked, or a workflow failed before it came to that."""
        work = self.having(_WORK) or [span for span in self.having(Role.WORKFLOW) if span.failed]
        return bool(work) or any(semconv.DOCUMENTS in span.attributes for span in self.spans)

    @property
    def metadata(self) -> list[Mapping[str, Any]]:
        """What the application attached to each span; most repeat what stands on the one before."""
        if self._metadata is None:
            self._metadata = []
            before = None
            for span in self.spans:
                told = span.attributes.get(semconv.METADATA)
                same = isinstance(told, str) and told == before
                self._metadata.append(self._metadata[-1] if same else mapping(told))
                before = told
        return self._metadata

    def role(self, span: Span) -> int:
        """What a span did."""
        return self._roles[span.span_id]

    def having(self, roles: int) -> list[Span]:
        """The spans of some roles, in the order they ended."""
        return [span for span in self.ended if self._roles[span.span_id] & roles]

    def around(self, span: Span) -> int:
        """What the spans did that a span lies in."""
        did = self._around.get(span.span_id)
        if did is None:
            did = 0
            for span_id in self.above(span):
                did |= self._roles[span_id]
            self._around[span.span_id] = did
        return did

    def is_outermost(self, span: Span) -> bool:
        """Whether a span is one of the outermost."""
        return span.span_id in self._outermost

    def inside(self, outermost: Span) -> list[Span]:
        """The spans that lie in one of the outermost, in the order they started."""
        if self._inside is None:
            self._inside = {}
            for span in self.spans:
                for span_id in self._outermost.intersection(self.above(span)):
                    self._inside.setdefault(span_id, []).append(span)
        return self._inside.get(outermost.span_id, [])

    def above(self, span: Span) -> dict[str, Span]:
        """The nearest spans a span lies in by their ids, the nearest first; agents nest deeply."""
        if span.parent_id not in self._by_id:
            return _NOTHING
        found = self._above.get(span.span_id)
        if found is None:
            found = {}
            parent = self._by_id.get(span.parent_id)
            while parent is not None and parent.span_id != span.span_id and parent.span_id not in found:
                if len(found) >= DEEPEST:
                    break
                found[parent.span_id] = parent
                parent = self._by_id.get(parent.parent_id)
            if len(found) <= self._room:
                self._room -= len(found)
                self._above[span.span_id] = found
        return found

    def _only_top(self) -> Span | None:
        """The outermost span that all of those lie in that have to do with RAG; None where there are several."""
        top: Span | None = None
        for span in self.outermost:
            found = next(reversed(self.above(span).values()), span)
            if top is not None and found.span_id != top.span_id:
                return None
            top = found
        return top
