"""The question of a request: what its outermost spans were asked, else what was retrieved for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ragmon.core import semconv
from ragmon.spans.messages import USER, asked, last, messages
from ragmon.spans.model import Span
from ragmon.spans.roles import Role
from ragmon.spans.trace import Trace
from ragmon.spans.values import cut_off, decode, opened, plain

_NAMED: Final = ("question", "query", "q", "query_str", "str_or_query_bundle", "query_bundle", "input", "inputs")
_ALSO: Final = ("message", "user_msg", "user_input", "messages", "kwargs", "args", "data")
"""After the names that mean a question only: those that frameworks wrap it in."""
_SEARCHED: Final = (semconv.QUERY_TEXT, semconv.RERANKER_QUERY, semconv.TRULENS_QUERY)
"""What a retriever or reranker was asked: the question, unless it was rewritten before."""
_NESTED: Final = 5
"""How deep a question may lie: Haystack writes `{"data": {component: {"query": ...}}}`."""


def question(trace: Trace) -> str | None:
    """What was asked; None where no span says so."""
    for span in _earliest_first(trace):
        for text in _told(span):
            if text:
                return text
    return None


def _earliest_first(trace: Trace) -> list[Span]:
    """The spans that may have been asked: the request and the outermost ones in it, then what was retrieved for."""
    steps = sorted(trace.steps, key=lambda span: span.start_ns)
    return [span for span in trace.tops if trace.role(span) != Role.GENERATION] + steps


def _told(span: Span) -> Iterator[str | None]:
    held = span.attributes
    for key in _SEARCHED:
        if key in held:
            yield plain(held[key])
    yield last(asked(span), USER)
    yield _in(held.get(semconv.INPUT_VALUE))
    yield _in(decode(held.get(semconv.ENTITY_INPUT)))
    yield _in(held.get(semconv.TRULENS_INPUT))


def _in(value: Any, depth: int = _NESTED) -> str | None:
    """The question in an input: itself, or under one of the names frameworks give it."""
    found = opened(value)
    if isinstance(found, str):
        return None if cut_off(found) else plain(found)
    if not depth:
        return None
    if isinstance(found, list):
        said = last(messages(found), USER)
        return _first(found[:1], depth) if said is None else said
    if not isinstance(found, Mapping):
        return None
    named = _first((found[name] for name in (*_NAMED, *_ALSO) if name in found), depth)
    if named is not None:
        return named
    return _first((inner for inner in found.values() if isinstance(inner, Mapping)), depth)


def _first(values: Iterable[Any], depth: int) -> str | None:
    return next((text for value in values if (text := _in(value, depth - 1))), None)
