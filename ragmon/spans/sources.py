"""The places on a span where instrumentations put lists of documents, the most trustworthy first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from ragmon.core import constants, semconv
from ragmon.core.bounds import KEPT
from ragmon.spans.flattened import Table, flattened
from ragmon.spans.model import ATTRIBUTES_DROPPED, Span
from ragmon.spans.values import REDACTED, count, is_json, opened, too_long

Told = Sequence[Any] | Table | str | None
"""A whole list of documents, or why it cannot be had, or None where there is none."""
Source = Callable[[Span], Told]
"""Reads a list of documents off a span."""
READ: Final = KEPT + 1
"""Documents of a list that are read, the first ones: one more than a record holds, so that it shows that it was cut."""
_LISTS: Final = ("documents", "nodes", "results", "chunks")


def _flattened(name: str) -> Source:
    def read(span: Span) -> Told:
        entries = flattened(span.attributes, name)
        if not entries.size:
            return None
        return entries if entries.whole and not span.dropped else ATTRIBUTES_DROPPED

    return read


def _listed(key: str, member: str | None = None) -> Source:
    """Documents in one attribute: a list, or an object that has one, be it written as JSON."""

    def read(span: Span) -> Told:
        value = span.attributes.get(key)
        if value is None or value == REDACTED:
            return None
        found = opened(value)
        if isinstance(found, Mapping):
            wanted = _LISTS if member is None else (member,)
            found = next((entries for name in wanted if isinstance(entries := found.get(name), list)), None)
        elif member is not None:
            found = None
        if isinstance(found, list):
            return None if REDACTED in found else found[:READ]
        if too_long(found):
            return constants.OVERSIZE
        return constants.MALFORMED_JSON if is_json(found) else None

    return read


def _hits(span: Span) -> Told:
    """What a vector database's client found: one event a hit."""
    events = [event for event in span.events if event.name in (semconv.QUERY_RESULT, semconv.SEARCH_RESULT)]
    if not events:
        return None
    # OpenLLMetry's older Chroma instrumentation recorded the first hit alone.
    if span.dropped_events or (len(events) == 1 and count(span.attributes.get(semconv.CHROMA_RESULTS)) > 1):
        return ATTRIBUTES_DROPPED
    hits = [{key.removeprefix(f"{event.name}."): event.attributes[key] for key in event.attributes} for event in events]
    return list(islice(_once({**hit, "content": hit.get("document")} for hit in hits), READ))


def _once(hits: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Hits of several queries at once, each document at its first place."""
    seen: set[Any] = set()
    for hit in hits:
        found = hit.get("id")
        found = found if isinstance(found, str | int) else repr(found)
        if hit.get("id") is None or found not in seen:
            seen.add(found)
            yield hit


RETRIEVED: Final = (
    _listed(semconv.DOCUMENTS),
    _flattened(semconv.RETRIEVED),
    _listed(semconv.OUTPUT_VALUE),
    _listed(semconv.ENTITY_OUTPUT),
    _hits,
    _listed(semconv.TRULENS_CONTEXTS),
)
ATTACHED: Final = (_listed(semconv.DOCUMENTS),)
RERANKED: Final = (
    _flattened(semconv.RERANKER_OUTPUT),
    _listed(semconv.DOCUMENTS),
    _listed(semconv.OUTPUT_VALUE),
    _listed(semconv.ENTITY_OUTPUT),
    _listed(semconv.TRULENS_RERANKED),
)
GIVEN: Final = (
    _flattened(semconv.RERANKER_INPUT),
    _listed(semconv.INPUT_VALUE, "nodes"),
    _listed(semconv.ENTITY_INPUT, "nodes"),
)
