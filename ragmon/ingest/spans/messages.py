"""Citations as numbers in the text: `[1]` is the first document that was retrieved.

Messages to and from a model, in the shapes conventions and frameworks write them.

The answer of a request: what its outermost spans returned, else what the last model call said.

The question of a request: what its outermost spans were asked, else what was retrieved for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

from ragmon.core import semconv
from ragmon.core.record import Answer
from ragmon.core.text import split_citations
from ragmon.ingest.spans.model import Role, Span, Trace
from ragmon.ingest.spans.values import as_id, cut_off, decode, flattened, listed, mapping, opened, plain, text_of

_ENTRY: Final = r"\d{1,2}(?:\s*[-–]\s*\d{1,2})?"
_MARKS: Final = re.compile(rf"(?<!\])(?:\[\^?{_ENTRY}(?:\s*[,;]\s*{_ENTRY})*\])+(?!\()")
"""Marks side by side; not `[1](…)` and `[text][1]`, which are links, and no year."""
_NUMBERS: Final = re.compile(r"(\d{1,2})(?:\s*[-–]\s*(\d{1,2}))?")
_OTHER: Final = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|^ {0,3}\[\^?\d{1,2}\]:[^\n]*", re.DOTALL | re.MULTILINE)
"""Code, and lines that say what a footnote is or where a link leads: numbers in brackets cite nothing there."""
_INDEXED: Final = re.compile(r"(?<=[A-Za-z0-9_)])(?:\[\d+\])+(?=\.?\w|\s*[-+*/%]?=)")
"""An index in code outside of any fence, as in `row[1].name` and `row[1] = 2`; `said[1].` cites."""


def numeric_citations(claim: str, ids: Sequence[str]) -> list[str] | None:
    """The documents a claim's marks stand for, in the order they are cited first.

    Args:
        claim: The answer's text.
        ids: The retrieved ids in rank order.

    Returns:
        Ids; a number past the list stands for itself, as something that was not retrieved. None where no mark is one of
        the list's, or one is 0: then the numbers mean something else, or nothing was cited in this way.

    >>> numeric_citations("Rollo[2], says the chronicle [1, 2].", ["d1", "d2"])
    ['d2', 'd1']
    >>> numeric_citations("It returns `row[1]`, or row[1].name.", ["d1"]) is None
    True
    """
    if "[" not in claim:
        return None
    text = _INDEXED.sub(" ", _OTHER.sub(" ", claim))
    # Each range once: a long text of them would otherwise be a list of a hundred numbers for every five characters.
    ranges = dict.fromkeys(found.groups() for marks in _MARKS.finditer(text) for found in _NUMBERS.finditer(marks[0]))
    numbers = dict.fromkeys(n for first, last in ranges for n in _numbers(int(first), int(last or first)))
    if 0 in numbers or not any(n <= len(ids) for n in numbers):
        return None
    return list(dict.fromkeys(ids[n - 1] if n <= len(ids) else f"[{n}]" for n in numbers))


def _numbers(first: int, last: int) -> Iterator[int]:
    yield from range(first, last + 1) if first <= last else (first, last)


USER: Final = "user"
ASSISTANT: Final = "assistant"
_ROLES: Final = {"human": USER, "HumanMessageChunk": USER, "ai": ASSISTANT, "AIMessageChunk": ASSISTANT}
"""LangChain's words for them."""
_MEMBER: Final = f"{semconv.MESSAGE}."
_LISTS: Final = 3
"""How deep lists of messages lie in each other: LangChain writes batches of batches."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """Who said what; a role nobody named is ""."""

    role: str
    text: str | None


def message(value: Any) -> Message | None:
    """One message: a mapping with a role or LangChain's `type`, its serialised object, or a pair of role and text."""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str):
        return Message(_ROLES.get(value[0], value[0]), text_of(value[1]))
    held = mapping(value) if isinstance(value, Mapping) else {}
    if held.get("lc") == 1:
        held = mapping(held.get("kwargs"))
    inner = mapping(held.get("data")) or held
    role = next((role for name in ("role", "type") if isinstance(role := held.get(name), str)), None)
    if role is None or not {"content", "parts"} & set(inner):
        return None
    said = inner["content"] if inner.get("content") is not None else inner.get("parts")
    return Message(_ROLES.get(role, role), text_of(said))


def messages(value: Any, depth: int = _LISTS) -> list[Message]:
    """The messages in a list, be it written as JSON; anything else holds none."""
    found = None if value is None else opened(value)
    if not isinstance(found, list) or not depth:
        return []
    said: list[Message] = []
    for entry in found:
        one = message(entry)
        said += [one] if one is not None else messages(entry, depth - 1) if isinstance(entry, list) else []
    return said


def _flat(span: Span, name: str, member: str = "") -> list[Message]:
    """The messages in flattened attributes: `name.N.role`, or `name.N.member.role`."""
    entries = flattened(span.attributes, name)
    said = []
    for entry in entries.rows() if entries.size else ():
        role, text = entry.get(f"{member}role"), text_of(entry.get(f"{member}content"))
        if text is None:
            parts = listed(entry, f"{member}contents").rows()
            text = text_of([part.get("message_content.text") for part in parts])
        said.append(Message(role if isinstance(role, str) else "", text))
    return said


def input_messages(span: Span) -> list[Message]:
    """What a span's input messages say."""
    return messages(span.attributes.get(semconv.INPUT_MESSAGES)) or _flat(span, semconv.LLM_INPUT, _MEMBER)


def output_messages(span: Span) -> list[Message]:
    """What a span's output messages say."""
    return (
        messages(span.attributes.get(semconv.OUTPUT_MESSAGES))
        or _flat(span, semconv.LLM_OUTPUT, _MEMBER)
        or _flat(span, semconv.LEGACY_COMPLETIONS)
    )


def last(said: list[Message], *roles: str) -> str | None:
    """The last text somebody said."""
    for one in reversed(said):
        if one.role in roles and one.text is not None:
            return one.text
    return None


_CLAIM: Final = ("claim", "answer", "response", "result", "output", "outputs", "output_text", "text", "content")
_FIRST: Final = ("replies", "generations")
"""Lists of alternatives: the first one was used."""
_OTHERS: Final = (USER, "system", "tool")
_LIST: Final = "["
"""How a list of citations in a text begins."""
_FENCE: Final = "```"
_IDS: Final = ("id", "doc_id", "chunk_id")
_ANSWER_DEPTH: Final = 6
_UNFINISHED: Final = re.compile(r"<(?:async_)?generator object\b.*>")
"""What LlamaIndex's instrumentation writes for a stream nobody has read yet."""


def answer(trace: Trace) -> Answer | None:
    """What was answered; None where no span says so.

    A model call that said nothing called a tool; its silence is the answer only where no other span has one.
    """
    silence = None
    calls = {span.span_id for span in trace.calls}
    for span in _latest_first(trace, calls):
        found = next((told for told in _answers_of(span) if told is not None), None)
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


def _answers_of(span: Span) -> Iterator[Answer | None]:
    held = span.attributes
    claim = plain(held.get(semconv.RAGMON_CLAIM))
    yield None if claim is None else Answer(claim=claim)
    text = last(output_messages(span), ASSISTANT, "")
    yield None if text is None else parse(text)
    yield _answer_in(held.get(semconv.OUTPUT_VALUE))
    yield _answer_in(decode(held.get(semconv.ENTITY_OUTPUT)))
    yield _answer_in(held.get(semconv.TRULENS_OUTPUT))


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


def _structured(found: Mapping[str, Any], depth: int = _ANSWER_DEPTH) -> Answer | None:
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


def _answer_in(value: Any, depth: int = _ANSWER_DEPTH) -> Answer | None:
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
    inner = _first_answer((found[name] for name in _CLAIM if name in found), depth)
    if inner is not None:
        if inner.citations is None:
            inner.citations = _citations(found.get("citations"))
        return inner
    alternatives: list[Any] = next((found[name] for name in _FIRST if isinstance(found.get(name), list)), [])
    while alternatives and isinstance(alternatives[0], list):
        alternatives = alternatives[0]
    inner = _first_answer([*alternatives[:1], found.get("messages")], depth)
    if inner is not None:
        return inner
    # Haystack's pipelines return what each component returned.
    return _first_answer(
        (value for value in found.values() if isinstance(value, Mapping) and set(value) & {*_FIRST}), depth
    )


def _first_answer(values: Iterable[Any], depth: int) -> Answer | None:
    return next((found for value in values if (found := _answer_in(value, depth - 1)) is not None), None)


_NAMED: Final = ("question", "query", "q", "query_str", "str_or_query_bundle", "query_bundle", "input", "inputs")
_ALSO: Final = ("message", "user_msg", "user_input", "messages", "kwargs", "args", "data")
"""After the names that mean a question only: those that frameworks wrap it in."""
_SEARCHED: Final = (semconv.QUERY_TEXT, semconv.RERANKER_QUERY, semconv.TRULENS_QUERY)
"""What a retriever or reranker was asked: the question, unless it was rewritten before."""
_QUESTION_DEPTH: Final = 5
"""How deep a question may lie: Haystack writes `{"data": {component: {"query": ...}}}`."""


def question(trace: Trace) -> str | None:
    """What was asked; None where no span says so."""
    for span in _earliest_first(trace):
        for text in _questions_of(span):
            if text:
                return text
    return None


def _earliest_first(trace: Trace) -> list[Span]:
    """The spans that may have been asked: the request and the outermost ones in it, then what was retrieved for."""
    steps = sorted(trace.steps, key=lambda span: span.start_ns)
    return [span for span in trace.tops if trace.role(span) != Role.GENERATION] + steps


def _questions_of(span: Span) -> Iterator[str | None]:
    held = span.attributes
    for key in _SEARCHED:
        if key in held:
            yield plain(held[key])
    yield last(input_messages(span), USER)
    yield _question_in(held.get(semconv.INPUT_VALUE))
    yield _question_in(decode(held.get(semconv.ENTITY_INPUT)))
    yield _question_in(held.get(semconv.TRULENS_INPUT))


def _question_in(value: Any, depth: int = _QUESTION_DEPTH) -> str | None:
    """The question in an input: itself, or under one of the names frameworks give it."""
    found = opened(value)
    if isinstance(found, str):
        return None if cut_off(found) else plain(found)
    if not depth:
        return None
    if isinstance(found, list):
        said = last(messages(found), USER)
        return _first_question(found[:1], depth) if said is None else said
    if not isinstance(found, Mapping):
        return None
    named = _first_question((found[name] for name in (*_NAMED, *_ALSO) if name in found), depth)
    if named is not None:
        return named
    return _first_question((inner for inner in found.values() if isinstance(inner, Mapping)), depth)


def _first_question(values: Iterable[Any], depth: int) -> str | None:
    return next((text for value in values if (text := _question_in(value, depth - 1))), None)
