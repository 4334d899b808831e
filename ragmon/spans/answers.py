"""The answer of a request: what its outermost spans returned, else what the last model call said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from ragmon.core import semconv
from ragmon.core.record import Answer
from ragmon.core.text import split_citations
from ragmon.spans.messages import ASSISTANT, USER, answered, last, message, messages
from ragmon.spans.model import Span
from ragmon.spans.roles import Role
from ragmon.spans.trace import Trace
from ragmon.spans.values import as_id, cut_off, decode, mapping, opened, plain, text_of

_CLAIM: Final = ("claim", "answer", "response", "result", "output", "outputs", "output_text", "text", "content")
_FIRST: Final = ("replies", "generations")
"""Lists of alternatives: the first one was used."""
_OTHERS: Final = (USER, "system", "tool")
_LIST: Final = "["
"""How a list of citations in a text begins."""
_FENCE: Final = "```"
_IDS: Final = ("id", "doc_id", "chunk_id")
_NESTED: Final = 6
_UNFINISHED: Final = re.compile(r"<(?:async_)?generator object\b.*>")
"""What LlamaIndex's instrumentation writes for a stream nobody has read yet."""


def answer(trace: Trace) -> Answer | None:
    """What was answered; None where no span says so.

    A model call that said nothing called a tool; its silence is the answer only where no other span has one.
    """
    silence = None
    calls = {span.span_id for span in trace.calls}
    for span in _latest_first(trace, calls):
        found = next((told for told in _told(span) if told is not None), None)
        if found is None:
            continue
        if found.citations is None:
            found.citations = _citations(span.attributes.get(semconv.RAGMON_CITATIONS))
        if found.claim != "" or span.span_id not in calls:
            return found
        silence = silence or found
    return silence


def _latest_first(trace: Trace, calls: AbstractSet[str]) -> Iterator[Span]:
    """The spans that may have answered: the request itself, then each outermost one and the model calls inside it."""
    if trace.root is not None and not trace.is_outermost(trace.root):
        yield trace.root
    for span in reversed(trace.having(Role.WORKFLOW | Role.GENERATION)):
        if trace.is_outermost(span) and (trace.role(span) != Role.GENERATION or span.span_id in calls):
            yield span
            inside = {call.span_id for call in trace.inside(span)} & calls if calls else ()
            yield from (call for call in reversed(trace.calls) if call.span_id in inside) if inside else ()


def _told(span: Span) -> Iterator[Answer | None]:
    held = span.attributes
    claim = plain(held.get(semconv.RAGMON_CLAIM))
    yield None if claim is None else Answer(claim=claim)
    text = last(answered(span), ASSISTANT, "")
    yield None if text is None else parse(text)
    yield _in(held.get(semconv.OUTPUT_VALUE))
    yield _in(decode(held.get(semconv.ENTITY_OUTPUT)))
    yield _in(held.get(semconv.TRULENS_OUTPUT))


def parse(text: str) -> Answer:
    """An answer's claim and citations: JSON as a whole or in a fenced block, else `citations: [...]` in the text.

    >>> parse('{"claim": "X is 1", "citations": ["d1", 2]}')
    Answer(claim='X is 1', citations=['d1', '2'])
    >>> parse("X is 1")
    Answer(claim='X is 1', citations=None)
    """
    for found in (decode(text), *(_fenced(text) if _FENCE in text else ())):
        structured = _structured(found) if isinstance(found, Mapping) else None
        if structured is not None:
            return structured
    if _LIST not in text:
        return Answer(claim=text)
    claim, citations = split_citations(text)
    return Answer(claim=claim, citations=citations)


def _fenced(text: str) -> Iterator[Any]:
    """What the fenced blocks of a text hold as JSON."""
    return (decode(block.removeprefix("json")) for block in text.split(_FENCE)[1::2])


def _structured(found: Mapping[str, Any], depth: int = _NESTED) -> Answer | None:
    """An answer the model gave as an object."""
    name = next((name for name in ("claim", "answer") if name in found), None)
    if name is None or not depth:
        return None
    if isinstance(found[name], Mapping):
        return _structured(found[name], depth - 1)
    return Answer(claim=text_of(found[name]), citations=_citations(found.get("citations")))


def _citations(found: Any) -> list[str] | None:
    """A list of ids or of objects that have one; one entry without an id leaves all of them unknown."""
    if not isinstance(found, list):
        return None
    ids = [as_id(entry) or next(_ids(mapping(entry)), None) for entry in found]
    return None if None in ids else [name for name in ids if name is not None]


def _ids(entry: Mapping[str, Any]) -> Iterator[str]:
    return (found for name in _IDS if (found := as_id(entry.get(name))) is not None)


def _in(value: Any, depth: int = _NESTED) -> Answer | None:
    """The answer in an output: itself, or under one of the names frameworks give it."""
    found = opened(value)
    if isinstance(found, str):
        text = None if cut_off(found) or _UNFINISHED.fullmatch(found) else plain(found)
    elif isinstance(found, list):
        text = last(messages(found), ASSISTANT)
    else:
        text = text_of(found) if isinstance(found, int | float) else None
    if text is not None:
        return parse(text)
    return _in_mapping(found, depth) if isinstance(found, Mapping) and depth else None


def _in_mapping(found: Mapping[str, Any], depth: int) -> Answer | None:
    if "claim" in found:
        return _structured(found)
    said = message(found)
    if said is not None and said.role in (ASSISTANT, *_OTHERS):
        return parse(said.text) if said.role == ASSISTANT and said.text is not None else None
    inner = _first((found[name] for name in _CLAIM if name in found), depth)
    if inner is not None:
        if inner.citations is None:
            inner.citations = _citations(found.get("citations"))
        return inner
    alternatives: list[Any] = next((found[name] for name in _FIRST if isinstance(found.get(name), list)), [])
    while alternatives and isinstance(alternatives[0], list):
        alternatives = alternatives[0]
    inner = _first([*alternatives[:1], found.get("messages")], depth)
    if inner is not None:
        return inner
    # Haystack's pipelines return what each component returned.
    return _first((value for value in found.values() if isinstance(value, Mapping) and set(value) & {*_FIRST}), depth)


def _first(values: Iterable[Any], depth: int) -> Answer | None:
    return next((found for value in values if (found := _in(value, depth - 1)) is not None), None)
