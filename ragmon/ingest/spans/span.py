"""Spans as input of the mapper, their roles in a RAG request, and the tree of one request's spans.

A role follows from the attributes that the instrumentation recorded; so does the reason why a request has no record, or
why a field of its record is unknown: a text in a place that is not read is no content that was left out, and a model
call in words that are not known is no trace without one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import attrgetter, or_
from typing import Any, Final, Literal, NamedTuple

from ragmon.core import constants, semconv
from ragmon.core.errors import shown_name
from ragmon.core.record import Record
from ragmon.core.text import Path
from ragmon.core.written import NO_MEMBERS, REDACTED, decode, too_long
from ragmon.ingest.spans.tools import (
    BY_SHAPE,
    LiteralBudget,
    Memo,
    RetrievingTools,
    flattened,
    is_agent,
    is_task,
    is_tool,
    is_whole,
    returned_nothing,
    tool_names,
)
from ragmon.stats.histograms import count_name


@dataclass(frozen=True)
class SpanOptions:
    """How spans become records.

    Attributes:
        id_from: The location of a document's id, `("metadata", "chunk_id")`; None tries its own id, then the metadata's
            id, chunk_id and doc_id.
        merge: How several independent retrievals become one list.
        retrievers: The names of tools, tasks, functions and spans that retrieve whatever the shape of their output; `*`
            stands for any characters.
        pipeline: The pipeline's name; None takes the service's.
        by_workflow: Whether the name of a workflow goes before the service's.
        ranges: The worst and the best score of judges, by name; of others they are 0 and 1.
        reasoning: Names of thoughts in answers, beside the usual ones.
        ignored: The exceptions that are no errors, by the names of their types; `*` stands for any characters.
    """

    id_from: Path | None = None
    merge: Merge = "concat"
    retrievers: tuple[str, ...] = ()
    pipeline: str | None = None
    by_workflow: bool = False
    ranges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    reasoning: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def retrieving(self) -> RetrievingTools:
        """What a trace needs to tell retrievers among tools."""
        return RetrievingTools(self.retrievers, self.id_from, self.reasoning)


NO_OPTIONS: Final = SpanOptions()


Merge = Literal["last", "concat", "rrf"]
"""How several independent retrievals become one list: the last list, concatenation, or reciprocal rank fusion."""

OWN_SCOPE: Final = "ragmon"
NOT_RAG: Final = "not_rag"
"""The reason for a request without a record: no retrieval, no model call, and no root span of ragmon."""
UNKNOWN_CONVENTION: Final = "unknown_convention"
"""The reason for a request without a record whose spans call a model or a retriever under unknown attributes."""
ATTRIBUTES_DROPPED: Final = "attributes_dropped"
"""The reason for an unknown field: a limit removed attributes or events of the span, so its lists may be incomplete."""
CONTENT_NOT_CAPTURED: Final = "content_not_captured"
"""The reason for an unknown field: the instrumentation was not configured to record it, or redacted it."""
UPLOADED: Final = "uploaded"
"""The reason for an unknown field: the instrumentation put the text into a storage, and a reference on the span."""
NOT_UNDERSTOOD: Final = "not_understood"
"""The reason for an unknown field: spans carry texts where it would be, in a form that is not read."""
PROMPT: Final = "prompt"
"""The reason for an unknown question: a prompt holds more than a question, and which part that is cannot be told."""
NO_RETRIEVAL: Final = "no_retrieval"
"""The reason for unknown ids: no span is a retrieval."""

TOO_MANY_STEPS: Final = "too_many_steps"
"""The reason for unknown ids: the request has more retrievals and rerankings than are followed."""
INCOMPLETE: Final = "incomplete"
"""The reason for an unknown field where spans of the trace are missing: they may have held it, or more documents."""
MAX_SPANS: Final = 10_000


class Event(NamedTuple):
    """An event of a span."""

    name: str
    attributes: Mapping[str, Any] = NO_MEMBERS


class Span(NamedTuple):
    """A finished span of any instrumentation.

    Attributes:
        attributes: As recorded: text, numbers, booleans, and lists and mappings of them.
        events: In the order of their times.
        failed: Whether its status is an error.
        dropped: The number of its attributes that a limit removed.
        dropped_events: The number of its events that a limit removed.
        scope: The name of the instrumentation that recorded it.
        sampled: Whether the application's tracer keeps it; None where that is unknown.
        links: The ids of the traces it links to.
        state: The tracestate of its trace.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any] = NO_MEMBERS
    events: Sequence[Event] = ()
    failed: bool = False
    dropped: int = 0
    dropped_events: int = 0
    scope: str = ""
    sampled: bool | None = None
    links: Sequence[str] = ()
    state: str = ""


class Mapped(NamedTuple):
    """The result of mapping a request's spans.

    Attributes:
        record: The record; None where the spans are no RAG request, or hold a record that cannot be read.
        reason: The reason for no record; "" where there is one.
        missing: The reason why a field of the record is unknown or cut, by field: `q`, `retrieved_ids`,
            `candidate_ids`, `answer_json`, `citations`, `latency_ms.total` and its stages.
        scope: The name of the instrumentation whose convention is not known, where that is the reason.
        tools: The names of the tools that were called, where no span is a retrieval: one of them may be a retriever.
        unread: What was found of the fields that cannot be read: text of users.
    """

    record: Record | None
    reason: str = ""
    missing: Mapping[str, str] = NO_MEMBERS
    scope: str = ""
    tools: Sequence[str] = ()
    unread: Mapping[str, str] = NO_MEMBERS


def from_sdk_span(span: Any) -> Span:
    """Convert a finished `opentelemetry.sdk.trace.ReadableSpan` to a `Span`."""
    context, parent = span.context, span.parent
    return Span(
        trace_id=f"{context.trace_id:032x}",
        span_id=f"{context.span_id:016x}",
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
        sampled=bool(context.trace_flags.sampled),
        state=context.trace_state.to_header() if context.trace_state else "",
    )


_SERVERS: Final = ("http.", "url.", "db.", "rpc.", "messaging.", "net.", "network.", "server.", "user_agent.", "asgi.")
_PLAIN: Final = (*_SERVERS, "client.", "peer.", "thread.", "code.", "otel.", "enduser.", "faas.", "cloud.", "aws.")


def is_plain(attributes: Mapping[str, Any], events: Sequence[Any], failed: bool) -> bool:
    """Whether a span tells nothing of a request but its time: a chunk of a stream, a call of HTTP, a query."""
    is_chunk = str(attributes.get(semconv.OPERATION)).endswith("chunk")
    tells_time = is_chunk or all(key.startswith(_PLAIN) and not key.startswith("db.vector") for key in attributes)
    return tells_time and not events and not failed


class Role:
    """The role of a span: one bit each, so that one number holds the roles of all ancestors of a span."""

    STEP: Final = 0
    """None of the following."""
    WORKFLOW: Final = 1
    """A whole request or a part of it: a chain, an agent."""
    RETRIEVAL: Final = 2
    RERANKING: Final = 4
    GENERATION: Final = 8
    """A call of a language model."""
    ASIDE: Final = 16
    """A judge's work, with all spans inside it; not traffic of the application."""
    CHECK: Final = 32
    """A guardrail; outputs of models inside it are no answers."""
    TOOL: Final = 64
    """A call of a tool; one that retrieves has the role of a retrieval as well."""


KINDS: Final = {
    semconv.CHAIN: Role.WORKFLOW,
    semconv.AGENT: Role.WORKFLOW,
    semconv.RETRIEVER: Role.RETRIEVAL,
    semconv.RERANKER: Role.RERANKING,
    semconv.LLM: Role.GENERATION,
    semconv.EVALUATOR: Role.ASIDE,
    semconv.GUARDRAIL: Role.CHECK,
}
_OPERATIONS: Final = {
    **dict.fromkeys((semconv.INVOKE_WORKFLOW, "invoke_agent"), Role.WORKFLOW),
    **dict.fromkeys((semconv.RETRIEVAL, "vector_db_retrieve"), Role.RETRIEVAL),  # the second is OpenLLMetry's
    "rerank": Role.RERANKING,
    **dict.fromkeys(("chat", "text_completion", "generate_content"), Role.GENERATION),
}
_TRULENS: Final = {
    "record_root": Role.WORKFLOW,
    "retrieval": Role.RETRIEVAL,
    "reranking": Role.RERANKING,
    "generation": Role.GENERATION,
    **dict.fromkeys(("eval_root", "eval", "eval_decision"), Role.ASIDE),
}
_CONVENTIONS: Final = (
    (semconv.SPAN_KIND, KINDS),
    (semconv.OPERATION, _OPERATIONS),
    (semconv.TRULENS_KIND, _TRULENS),
    (semconv.REQUEST_TYPE, {"chat": Role.GENERATION, "completion": Role.GENERATION, "rerank": Role.RERANKING}),
    (semconv.TRACELOOP_KIND, {"workflow": Role.WORKFLOW, "agent": Role.WORKFLOW}),
)
_LLAMA_INDEX_RETRIEVER: Final = re.compile(r"Retriever\.(?:task|workflow)")
"""OpenLLMetry's names for LlamaIndex's retrievers; nothing else on their spans shows their role."""
HIT_EVENTS: Final = (semconv.QUERY_RESULT, semconv.SEARCH_RESULT)
"""Events that hold one hit of a vector search each."""
_SCORED_NODE: Final = "NodeWithScore"


def _role_of(span: Span) -> int:
    # Where the conventions of a span disagree, a role that is more specific than a workflow wins.
    attributes = span.attributes
    if attributes.get(semconv.RAGMON_INTERNAL) is True:
        return Role.ASIDE
    role = Role.STEP
    for key, roles in _CONVENTIONS:
        value = attributes.get(key)
        if isinstance(value, str):
            role = roles.get(value, role)
            if role > Role.WORKFLOW:
                return Role.STEP if role == Role.GENERATION and _calls_no_model(span) else role
    name = attributes.get(semconv.ENTITY_NAME)
    if isinstance(name, str) and _LLAMA_INDEX_RETRIEVER.search(name):
        return Role.RETRIEVAL
    # LlamaIndex's steps are called chains or tasks. Those that return scored nodes retrieve, and only postprocessors
    # are given nodes.
    output = attributes.get(semconv.OUTPUT_VALUE, attributes.get(semconv.ENTITY_OUTPUT))
    if isinstance(output, str) and output.startswith("[") and _SCORED_NODE in output:
        arguments = decode(attributes.get(semconv.INPUT_VALUE, attributes.get(semconv.ENTITY_INPUT)))
        if isinstance(arguments, dict) and "nodes" in arguments:
            return Role.RERANKING
        if isinstance(arguments, dict) and any("query" in argument for argument in arguments):
            return Role.RETRIEVAL
    if role or semconv.RAGMON_RECORD in attributes:
        return Role.WORKFLOW
    # Without a declared role, the documents or messages on a span show it.
    has_hits = any(event.name in HIT_EVENTS for event in span.events)
    if has_hits or semconv.DOCUMENTS in attributes or semconv.VECTOR_TOP_K in attributes:
        return Role.RETRIEVAL
    # OpenLLMetry records the operation for some models only; another operation with messages is a step of an agent. A
    # call that failed has no output.
    tells_of_call = (semconv.INPUT_MESSAGES, semconv.REQUEST_MODEL) if span.failed else (semconv.OUTPUT_MESSAGES,)
    has_messages = any(key in attributes for key in (semconv.OUTPUT_MESSAGES, *tells_of_call))
    return Role.GENERATION if has_messages and semconv.OPERATION not in attributes else Role.STEP


def _calls_no_model(span: Span) -> bool:
    """Whether an LLM span of OpenInference is something else: Haystack's prompt builders, LlamaIndex's history."""
    attributes = span.attributes
    if span.failed or semconv.LLM_MODEL in attributes:
        return False
    has_input_alone = semconv.INPUT_VALUE in attributes and semconv.OUTPUT_VALUE not in attributes
    rows = (row for name in (semconv.LLM_INPUT, semconv.LLM_OUTPUT) for row in flattened(attributes, name).rows[:1])
    return (has_input_alone or semconv.PROMPT_TEMPLATE in attributes) and not any("role" in row for row in rows)


_STEPS: Final = Role.RETRIEVAL | Role.RERANKING
RAG_STEPS: Final = _STEPS | Role.GENERATION
"""The roles of what a request is made of: retrievals, rerankings and model calls."""
_RAG_ROLES: Final = Role.WORKFLOW | RAG_STEPS
MAX_ANCESTORS: Final = 512
"""The maximum number of ancestors of a span that are considered, the nearest ones."""


class Trace:
    """The spans of one request.

    Of two spans with the same id the first one counts.

    Attributes:
        literals: Limits how much of what tools returned is read as Python.
        spans: In the order of their start times, without those of judges.
        ended: The same spans in the order of their end times.
        outermost: The spans with a RAG role and no ancestor with one, in the order of their start times.
        root: The span of the request: the root that contains all outermost spans, possibly of a web server. None where
            they have several roots.
        enclosing: The spans that contain all outermost spans, the root first: of a web server, of functions.
        tops: The enclosing and the outermost spans.
        steps: Retrievals and rerankings, in the order of their end times.
        calls: Model calls that may be answers, in the order of their end times: not those that rewrite a query, judge
            documents or belong to a guardrail.
    """

    def __init__(self, spans: Iterable[Span], retrieving: RetrievingTools = BY_SHAPE) -> None:
        self.retrieving = retrieving
        self.literals = LiteralBudget()
        self._by_id: dict[str | None, Span] = {}
        for span in spans:
            self._by_id.setdefault(span.span_id, span)
        self._roles = {span.span_id: _role_of(span) for span in self._by_id.values()}
        self._ancestor_roles: dict[str, int] = {}
        self._find_tools()
        spans = list(self._by_id.values())
        if Role.ASIDE in self._roles.values():
            spans = [span for span in spans if not (self.role(span) | self.around(span)) & Role.ASIDE]
        self.spans = sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))
        self.ended = sorted(self.spans, key=attrgetter("end_ns"))
        if not any(roles & Role.RETRIEVAL for roles in self._roles.values()):
            # Beside a retrieval, what an agent remembers of its users is no document.
            remembered = (span for span in spans if span.attributes.get(semconv.OPERATION) == semconv.SEARCH_MEMORY)
            self._roles |= {span.span_id: Role.RETRIEVAL for span in remembered}
        rag_spans = [span for span in self.spans if self._roles[span.span_id] & _RAG_ROLES]
        self.outermost = [span for span in rag_spans if not self.around(span) & _RAG_ROLES]
        self._outermost = {span.span_id for span in self.outermost}
        ancestors = [self.above(span) for span in self.outermost]
        roots = [next(reversed(above.values()), span) for above, span in zip(ancestors, self.outermost, strict=True)]
        self.root = roots[-1] if len({root.span_id for root in roots}) == 1 else None
        nearest = reversed(ancestors[0].values()) if self.root is not None else ()
        self.enclosing = [span for span in nearest if all(span.span_id in above for above in ancestors)]
        self.tops = [*self.enclosing, *self.outermost]
        self.steps = self.having(_STEPS)
        calls = [span for span in self.having(Role.GENERATION) if not self.around(span) & _STEPS]
        # If every call is inside a guardrail, the guardrail wraps the whole application.
        self.calls = [span for span in calls if not self.around(span) & Role.CHECK] or calls

    def _find_tools(self) -> None:
        """Give the calls of tools their roles: retrievers by their names, then by the shape of what they returned."""
        tools = [span for span in self._by_id.values() if self._roles[span.span_id] in (Role.STEP, Role.WORKFLOW)]
        called = [span for span in tools if is_tool(span.attributes)]
        if not called and not self.retrieving.names:
            return
        by_shape = {span.span_id: span for span in called if self.retrieving.has_shape(span.attributes, self.literals)}
        # A step around a model call is more than a retrieval, even where it returns the documents with the answer.
        for span in self._by_id.values() if by_shape else ():
            if self._roles[span.span_id] == Role.GENERATION:
                for span_id in self.above(span):
                    by_shape.pop(span_id, None)
        names = {tool_names(span.attributes, span.name)[0] for span in by_shape.values()}
        for span in tools:
            known = tool_names(span.attributes, span.name)
            is_datastore = span.attributes.get(semconv.TOOL_TYPE) == semconv.DATASTORE
            by_name = (is_datastore or self.retrieving.has_name(known)) and not is_whole(span.attributes)
            if (
                by_name
                or span.span_id in by_shape
                or (known[0] in names and returned_nothing(span.attributes, self.literals))
            ):
                self._roles[span.span_id] = Role.RETRIEVAL | Role.TOOL
            elif is_tool(span.attributes):
                self._roles[span.span_id] |= Role.TOOL

    @property
    def first(self) -> Span:
        """The first outermost span; of a trace without one, its first span."""
        return (self.outermost or self.spans or [*self._by_id.values()])[0]

    def owner(self, service_of: Callable[[Span], str | None]) -> Span:
        """The span whose service answers the request: the first outermost one.

        A workflow that only hands on to workflows of one other service is a call of that service.
        """
        span = self.first
        if len({service_of(one) for one in self.spans}) < 2:
            return span
        rag_spans = [one for one in self.inside(span) if self._roles[one.span_id] & _RAG_ROLES]
        while True:
            inside = [one for one in rag_spans if span.span_id in self.above(one)]
            around = {one.span_id for one in inside}
            called = [one for one in inside if not around & self.above(one).keys()]
            services = {service_of(one) for one in called}
            are_workflows = all(self._roles[one.span_id] & Role.WORKFLOW for one in called)
            if len(services) != 1 or services == {service_of(span)} or not are_workflows:
                return span
            span = called[0]

    @property
    def tools(self) -> list[str]:
        """The names of the tools that may have retrieved, each once.

        Tools of a model go before steps of a program, and those whose results its last call could read before others. A
        step around a model's call is none.
        """
        called = self.having(Role.TOOL)
        tools = [span for span in called if not is_task(span.attributes)]
        generating = {span_id for span in self.having(Role.GENERATION) for span_id in self.above(span)}
        last = max((span.start_ns for span in self.calls), default=0)
        plain = [span for span in tools or called if span.span_id not in generating]
        spans = [span for span in plain if span.start_ns < last] or plain or tools
        return list(dict.fromkeys(tool_names(span.attributes, span.name)[0] for span in spans))

    @property
    def is_rag(self) -> bool:
        """Whether the request retrieved anything, called a model or an agent, or a workflow failed before that."""
        has_steps = self.having(RAG_STEPS) or any(semconv.DOCUMENTS in span.attributes for span in self.spans)
        return bool(has_steps) or any(
            span.failed or is_agent(span.attributes) or semconv.LLM_MODEL in span.attributes  # Instructor calls a model
            for span in self.having(Role.WORKFLOW)
        )

    def role(self, span: Span) -> int:
        """The role of a span."""
        return self._roles[span.span_id]

    def having(self, roles: int) -> list[Span]:
        """The spans with one of the roles, in the order of their end times."""
        return [span for span in self.ended if self._roles[span.span_id] & roles]

    def around(self, span: Span) -> int:
        """The roles of a span's ancestors."""
        if span.span_id not in self._ancestor_roles:
            roles = (self._roles[span_id] for span_id in self.above(span))
            self._ancestor_roles[span.span_id] = reduce(or_, roles, Role.STEP)
        return self._ancestor_roles[span.span_id]

    def is_outermost(self, span: Span) -> bool:
        """Whether a span is one of the outermost spans."""
        return span.span_id in self._outermost

    def inside(self, outermost: Span) -> list[Span]:
        """The descendants of an outermost span, in the order of their start times."""
        return self._inside.get(outermost.span_id, [])

    @cached_property
    def _inside(self) -> dict[str, list[Span]]:
        inside: dict[str, list[Span]] = {}
        for span in self.spans:
            for span_id in self._outermost.intersection(self.above(span)):
                inside.setdefault(span_id, []).append(span)
        return inside

    def below(self, outermost: Span) -> Trace:
        """An outermost span with its descendants, as a trace."""
        return Trace([outermost, *self.inside(outermost)], self.retrieving)

    def above(self, span: Span) -> dict[str, Span]:
        """The nearest ancestors of a span by id, the nearest first; agents nest deeply."""
        ancestors: dict[str, Span] = {}
        parent = self._by_id.get(span.parent_id)
        while parent is not None and parent.span_id != span.span_id and parent.span_id not in ancestors:
            if len(ancestors) >= MAX_ANCESTORS:
                break
            ancestors[parent.span_id] = parent
            parent = self._by_id.get(parent.parent_id)
        return ancestors


_CONTENT: Final = re.compile(
    r"(?:input|prompt|question|query|message|content|output|completion|answer|response|reply|result)s?"
    r"(?:[._](?:value|text))?$|(?:^|\.)text$|(?:request|response)_data$",
    re.IGNORECASE,
)
_MODEL: Final = re.compile(r"(?:^|[._])model(?:[._]?(?:name|id))?$", re.IGNORECASE)
_KIND: Final = re.compile(
    r"(?:^|[._])kind$|(?:span|observation|component|node|run)[._]?type$|operation(?:[._]?(?:name|id))?$", re.IGNORECASE
)
_ABOUT_SERVERS: Final = (*_SERVERS, "error.", "exception.")
"""Conventions whose texts are none of a model's."""
_KIND_WORDS: Final = re.compile(r"llm|chat|generation|completion|retriev|rerank|agent|\brag\b", re.IGNORECASE)
"""What a span with a model call or a retrieval is called, in any convention."""
_EMBEDDING: Final = re.compile(r"embed", re.IGNORECASE)
_UNDERSTOOD: Final = (semconv.SPAN_KIND, semconv.TRULENS_KIND, semconv.TRACELOOP_KIND)
"""The attributes that say what a span is in a convention that is known."""
_OTHER_OPERATIONS: Final = frozenset({"embeddings", "execute_tool", "create_agent"})
_NO_SCOPE: Final = "no_scope"
_EMPTY: Final = ("", "{}", "[]", "null", '""', "[[]]", REDACTED)
INPUT: Final = ("input", "prompt", "question", "query", "args", "request")
OUTPUT: Final = ("output", "completion", "answer", "response", "reply", "replies", "result")
"""Words in the key of a text that goes in, and of one that comes out; without any it may be either."""


def _meaning(key: str) -> str:
    """What an attribute tells, in letters.

    `c` for a text, `r` for a reference to one, followed by `i` or `o` where it goes in or comes out; `m` for a model's
    name; `k` for a kind.
    """
    if key.startswith(_ABOUT_SERVERS) or "token" in key:
        return ""
    text = key.removesuffix("_ref")
    if _CONTENT.search(text):
        lower = key.casefold()
        goes_in, comes_out = (any(word in lower for word in words) for words in (INPUT, OUTPUT))
        return ("c" if text == key else "r") + ("" if goes_in == comes_out else "i" if goes_in else "o")
    return "m" if _MODEL.search(key) else "k" if _KIND.search(key) else ""


MEANINGS: Final = Memo(_meaning)
"""What an attribute of any convention tells, by its key; "" where it is nothing of the request."""


def unread(spans: Iterable[Span], words: tuple[str, ...]) -> str:
    """The reason for unknown content of spans: other texts, input or output as asked, or no text at all."""
    other = "o" if words is INPUT else "i"
    reason = CONTENT_NOT_CAPTURED
    for span in spans:
        # Without content, a message in an event has a role or the reason of its end alone.
        told = (item for event in span.events for item in event.attributes.items() if item[0].startswith("gen_ai."))
        texts = (item for item in told if (found := str(item[1]))[:1] != "{" or '"content"' in found)
        for key, value in (*span.attributes.items(), *texts):
            if MEANINGS[key].startswith(("c", "r")) and not MEANINGS[key].endswith(other):
                text = isinstance(value, str) and value.strip() not in _EMPTY
                if text or (isinstance(value, list | tuple | Mapping) and value):
                    if MEANINGS[key].startswith("c"):
                        return NOT_UNDERSTOOD
                    reason = UPLOADED
    return reason


def why_no_text(trace: Trace, words: tuple[str, ...]) -> str:
    """The reason why the question or the answer of a request is unknown."""
    if any(span.dropped for span in trace.tops):
        return ATTRIBUTES_DROPPED
    if any(too_long(value) for span in trace.spans for _, value in span.attributes.items()):
        return constants.OVERSIZE
    holders = Role.WORKFLOW | Role.GENERATION | (_STEPS if words is INPUT else 0)
    root = [trace.root] if trace.root is not None else []
    return unread([*root, *trace.having(holders)], words)


def unknown_scope(spans: Iterable[Span]) -> str | None:
    """The instrumentation whose spans call a model or a retriever under unknown attributes; None without such."""
    scopes = Counter(span.scope for span in spans if _tells_of_a_model(span))
    return max(scopes, key=lambda scope: (scopes[scope], scope)) if scopes else None


def count_scope(into: dict[str, int], scope: str, n: int = 1) -> None:
    """Count requests of an instrumentation whose convention is not known, in a table of bounded size.

    >>> scopes = {}; count_scope(scopes, "acme.tracing"); scopes
    {'acme.tracing': 1}
    """
    count_name(into, shown_name(scope or _NO_SCOPE, constants.OTHER), n)


def count_tools(into: dict[str, int], tools: Iterable[str]) -> None:
    """Count requests without a retrieval by the tools that were called in them, in a table of bounded size.

    >>> tools = {}; count_tools(tools, ["search", "What is it?", "Who is she?"]); tools
    {'search': 1, '__other__': 1}
    """
    for name in dict.fromkeys(shown_name(tool, constants.OTHER) for tool in tools):
        count_scope(into, name)


def _tells_of_a_model(span: Span) -> bool:
    attributes = span.attributes
    if any(isinstance(attributes.get(key), str) for key in _UNDERSTOOD):
        return False
    operation = attributes.get(semconv.OPERATION)
    is_read = isinstance(operation, str) and (operation in _OPERATIONS or operation in _OTHER_OPERATIONS)
    if is_read or _EMBEDDING.search(f"{span.name} {operation}"):
        return False
    return any(
        (MEANINGS[key] == "m" and not _EMBEDDING.search(value)) or (MEANINGS[key] == "k" and _KIND_WORDS.search(value))
        for key, value in attributes.items()
        if isinstance(value, str)
    )
