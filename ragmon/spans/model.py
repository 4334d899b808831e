"""What goes in and what comes out: a finished span as its instrumentation left it, and what became of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from ragmon.core.record import Record

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
            flattened may have been put together (`ragmon.spans.flattened.Gathered`).
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
