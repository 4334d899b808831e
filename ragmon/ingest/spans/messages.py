"""The question and the answer of a request, read from the messages on its spans.

Messages to and from a model have the forms that conventions and frameworks write. The answer is what the outermost
spans returned, else the output of the last model call; the question is the input of the outermost spans, else the query
of the retrieval.

Instrumentations also write the events of a span as log records, with the span's id. In the buffers of traces such a
record is a span itself, a child of the span it belongs to, with one event. So it is journalled, deduplicated, bounded
and erased as spans are. Once the trace is taken, its event joins those of its span.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

import msgspec

from ragmon.core import semconv, shapes
from ragmon.core.citations import split_citations
from ragmon.core.documents import unwrapped
from ragmon.core.record import Answer
from ragmon.core.shapes import ASSISTANT, ROLES, USER, first_of
from ragmon.ingest.cells import cited_documents
from ragmon.ingest.spans.span import Role, Span, Trace
from ragmon.ingest.spans.tools import (
    JSON,
    as_text,
    cut_off,
    decode,
    decode_container,
    flattened,
    listed,
    mapping,
    nonempty_text,
    text_of,
)

_MEMBER: Final = f"{semconv.MESSAGE}."
_LIST_DEPTH: Final = 3
"""The maximum depth of nested lists of messages: LangChain writes batches of batches."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message of a role; the role is "" where it is unknown."""

    role: str
    text: str | None


def message(value: Any) -> Message | None:
    """Decode a message: a mapping with a role or LangChain's `type`, its serialised object, or a role and a text."""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str):
        return Message(ROLES.get(value[0], value[0]), text_of(value[1]))
    outer = unwrapped(JSON.fields(value), JSON) if isinstance(value, Mapping) else {}
    inner = mapping(outer.get("data")) or outer
    role = next((role for key in shapes.ROLE_KEYS if isinstance(role := outer.get(key), str)), None)
    if role is None or inner.keys().isdisjoint(shapes.CONTENT_KEYS):
        return None
    content = next((inner[key] for key in shapes.CONTENT_KEYS if inner.get(key) is not None), None)
    return Message(ROLES.get(role, role), text_of(content))


def messages(value: Any, depth: int = _LIST_DEPTH) -> list[Message]:
    """The messages in a list, or in a list written as JSON; empty for anything else."""
    entries = None if value is None else decode_container(value)
    if not isinstance(entries, list) or not depth:
        return []
    result: list[Message] = []
    for entry in entries:
        single = message(entry)
        result += [single] if single is not None else messages(entry, depth - 1) if isinstance(entry, list) else []
    return result


def _flat_messages(span: Span, name: str, member: str = "") -> list[Message]:
    """The messages in flattened attributes: `name.N.role`, or `name.N.member.role`."""
    entries = flattened(span.attributes, name)
    result = []
    for entry in entries.rows:
        role, text = entry.get(f"{member}role"), text_of(entry.get(f"{member}content"))
        if text is None:
            parts = listed(entry, f"{member}contents").rows
            text = text_of([part.get("message_content.text") for part in parts])
        result.append(Message(ROLES.get(role, role) if isinstance(role, str) else "", text))
    return result


def input_messages(span: Span) -> list[Message]:
    """The input messages of a span."""
    return messages(span.attributes.get(semconv.INPUT_MESSAGES)) or _flat_messages(span, semconv.LLM_INPUT, _MEMBER)


def output_messages(span: Span) -> list[Message]:
    """The output messages of a span."""
    return (
        messages(span.attributes.get(semconv.OUTPUT_MESSAGES))
        or _flat_messages(span, semconv.LLM_OUTPUT, _MEMBER)
        or _flat_messages(span, semconv.LEGACY_COMPLETIONS)
    )


_AUTOMATIC_CALLS: Final = "automatic_function_calling_history"
"""Google's client calls functions by itself, and returns what they returned with the answer."""
_RESULT_PARTS: Final = ("tool_call_response", "tool_result", "tool-result", "function_call_output")
_RESULTS: Final = ("response", "result", "output", "content")


def tool_results(span: Span) -> list[Any]:
    """The results of tools that a model call was given after the last text of the user, oldest first."""
    entries = mapping(span.attributes.get(semconv.OUTPUT_VALUE)).get(_AUTOMATIC_CALLS)
    if not isinstance(entries, list):
        entries = decode_container(span.attributes.get(semconv.INPUT_MESSAGES))
    if not isinstance(entries, list):
        rows = flattened(span.attributes, semconv.LLM_INPUT).rows
        entries = [{key.removeprefix(_MEMBER): value for key, value in row.items()} for row in rows]
    results: list[Any] = []
    for entry in filter(lambda entry: isinstance(entry, Mapping), entries):
        content = next((entry[name] for name in ("parts", "content") if entry.get(name) is not None), None)
        parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
        result_parts = [part for part in parts if part.get("type") in _RESULT_PARTS]
        responses = [mapping(part.get("function_response")) for part in parts]
        found = [content] if entry.get("role") == "tool" and not result_parts else []
        found += [next((part[name] for name in _RESULTS if part.get(name) is not None), None) for part in result_parts]
        found += [response["response"] for response in responses if "response" in response]
        if not found and entry.get("role") == USER:
            results.clear()  # of an earlier turn
        results += found
    return results


def last(messages: list[Message], *roles: str) -> str | None:
    """The text of the last message of one of the roles that has a text."""
    for entry in reversed(messages):
        if entry.role in roles and entry.text is not None:
            return entry.text
    return None


_FENCE: Final = "```"
_ANSWER_DEPTH: Final = 6
_REPR: Final = re.compile(
    r"<(?:async_)?generator object\b.*>|<[\w.]+ object at 0x[0-9a-fA-F]+>|\[?[A-Z]\w*\([a-zA-Z_]\w*=.*(?:\)\]?|\.\.\.)"
    r"|content=['\"].*['\"] additional_kwargs=\{.*",
    re.DOTALL,
)
"""Python's representation of an object in place of its text: a stream that has not been read, Haystack's messages,
LangChain's, the results of agents; LlamaIndex's instrumentation cuts it off."""


def is_null(value: Any) -> bool:
    """Whether a text is what JSON and JavaScript write for no value."""
    return isinstance(value, str) and value.strip() in ("null", "NaN", "undefined")


class Reply(NamedTuple):
    """The text of an answer, and its citations as they are written."""

    claim: str | None
    citations: Any = None


_NO_REPLY: Final = Reply(None)


def answer(
    trace: Trace,
    retrieved_ids: Sequence[str] | None = None,
    titles: Iterable[tuple[Any, Any]] = (),
    unread: Callable[[str], object] | None = None,
) -> Answer | None:
    """The answer of a request; None where no span has one. Its citations are read as `cited_documents` says."""
    reply = _reply(trace)
    if reply is None:
        return None
    cited = cited_documents(reply.citations, retrieved_ids, trace.retrieving.id_from, titles, unread)
    return Answer(claim=reply.claim, citations=cited)


def _reply(trace: Trace) -> Reply | None:
    # A model call without text called a tool; its empty answer counts only where no other span has one.
    empty = None
    calls = {span.span_id for span in trace.calls}
    for span in _answer_spans(trace, calls):
        answered = _reply_on(span)
        if answered is None:
            continue
        if (own := span.attributes.get(semconv.RAGMON_CITATIONS)) is not None:
            answered = answered._replace(citations=own)
        elif answered.citations is None:
            answered = answered._replace(citations=_cited_on(span))
        if answered.citations is None:  # the application may hand on the text alone
            cited = ((call, found) for call in reversed(trace.calls) if (found := _cited_on(call)))
            same = (found for call, found in cited if (_reply_on(call) or _NO_REPLY).claim == answered.claim)
            answered = answered._replace(citations=next(same, None))
        if answered.claim != "" or span.span_id not in calls:
            return answered
        empty = empty or answered
    return empty


def _reply_on(span: Span) -> Reply | None:
    attributes = span.attributes
    if (claim := as_text(attributes.get(semconv.RAGMON_CLAIM))) is not None:
        return Reply(claim)
    if (text := last(output_messages(span), ASSISTANT, "")) is not None:
        return parse(text)
    return (
        answer_in(attributes.get(semconv.OUTPUT_VALUE))
        or answer_in(decode(attributes.get(semconv.ENTITY_OUTPUT)))
        or answer_in(attributes.get(semconv.TRULENS_OUTPUT))
    )


def _cited_on(span: Span) -> list[Any] | None:
    # Beside the parts of a model's reply.
    replies = map(span.attributes.get, (semconv.OUTPUT_MESSAGES, semconv.OUTPUT_VALUE))
    return next(filter(None, map(_cited_in, replies)), None)


def _cited_in(reply: Any) -> list[Any] | None:
    may_cite = not isinstance(reply, str) or any(f'{key}"' in reply for key in shapes.CITATION_LISTS)
    return shapes.citations_in(decode_container(reply)) if may_cite else None


def _answer_spans(trace: Trace, calls: AbstractSet[str]) -> Iterator[Span]:
    """The spans that may hold the answer: the request, then each outermost span and the model calls in it."""
    if trace.root is not None and not trace.is_outermost(trace.root):
        yield trace.root
    for span in reversed(trace.having(Role.WORKFLOW | Role.GENERATION)):
        if trace.is_outermost(span) and (trace.role(span) != Role.GENERATION or span.span_id in calls):
            yield span
            inner_calls = {call.span_id for call in trace.inside(span)} & calls if calls else ()
            yield from (call for call in reversed(trace.calls) if call.span_id in inner_calls) if inner_calls else ()


def parse(text: str) -> Reply:
    """Parse an answer's claim and citations: JSON as a whole or in a fenced block, else `citations: [...]` in text.

    >>> parse('{"claim": "X is 1", "citations": ["d1", 2]}')
    Reply(claim='X is 1', citations=['d1', 2])
    >>> parse("X is 1")
    Reply(claim='X is 1', citations=None)
    """
    for decoded in (
        decode(text),
        *(((decode(block.removeprefix("json")) for block in text.split(_FENCE)[1::2])) if _FENCE in text else ()),
    ):
        structured = _structured(decoded) if isinstance(decoded, Mapping) else None
        if structured is not None:
            return structured
    if "[" not in text:
        return Reply(text)
    return Reply(*split_citations(text))


def _structured(fields: Mapping[str, Any], depth: int = _ANSWER_DEPTH) -> Reply | None:
    key = next((key for key in ("claim", "answer") if key in fields), None)
    if key is None or not depth:
        return None
    if isinstance(fields[key], Mapping):
        return _structured(fields[key], depth - 1)
    return Reply(text_of(fields[key]), fields.get("citations"))


def answer_in(value: Any) -> Reply | None:
    """The answer in an output: the value itself, or a member under one of the keys frameworks use."""
    reply = _answer_in(value, _ANSWER_DEPTH)
    return reply if reply is None or reply.citations is not None else reply._replace(citations=_cited_in(value))


def _answer_in(value: Any, depth: int) -> Reply | None:
    output = decode_container(value)
    if isinstance(output, str):
        text = None if cut_off(output) or is_null(output) or _REPR.fullmatch(output) else as_text(output)
    elif isinstance(output, list):
        text = last(messages(output), ASSISTANT)
        if text is None and all(isinstance(part, Mapping) and part.get("type") in shapes.TEXT_PARTS for part in output):
            text = text_of(output)
    else:
        text = text_of(output) if isinstance(output, int | float) else None
    if text is not None:
        return parse(text)
    if not isinstance(output, Mapping) or not depth:
        return None
    if "claim" in output:
        return _structured(output)
    reply = message(output)
    if reply is not None and reply.role in (ASSISTANT, USER, *shapes.OTHER_ROLES):
        return parse(reply.text) if reply.role == ASSISTANT and reply.text is not None else None
    nested = _first_answer((output[name] for name in (*shapes.ANSWER_KEYS, "raw") if name in output), depth)
    if nested is not None:
        return nested if nested.citations is not None else nested._replace(citations=output.get("citations"))
    alternatives: list[Any] = next(
        (output[name] for name in shapes.ALTERNATIVES if isinstance(output.get(name), list)), []
    )
    while alternatives and isinstance(alternatives[0], list):
        alternatives = alternatives[0]
    nested = _first_answer([*alternatives[:1], output.get("messages")], depth)
    if nested is not None:
        return nested
    # Haystack's pipelines return the output of each component.
    return _first_answer(
        (value for value in output.values() if isinstance(value, Mapping) and set(value) & {*shapes.ALTERNATIVES}),
        depth,
    )


def _first_answer(values: Iterable[Any], depth: int) -> Reply | None:
    return next((nested for value in values if (nested := _answer_in(value, depth - 1)) is not None), None)


_INPUT_KEYS: Final = (
    *(*shapes.QUESTION_KEYS, "str_or_query_bundle", "query_bundle", "input", "inputs"),
    *("message", "user_msg", "messages", "kwargs", "args", "data"),
)
"""Keys of the question in an input, and those under which frameworks wrap it."""
_QUERY_ATTRIBUTES: Final = (semconv.QUERY_TEXT, semconv.RERANKER_QUERY, semconv.TRULENS_QUERY)
"""The query of a retriever or reranker: the question, unless it was rewritten before."""
_QUESTION_DEPTH: Final = 5
"""The maximum depth of a question: Haystack writes `{"data": {component: {"query": ...}}}`."""


def question(trace: Trace) -> str | None:
    """The question of a request; None where no span has one.

    What the first model call was asked counts only where no other span has it: a prompt often has the documents in it.
    """
    steps = sorted(trace.steps, key=lambda span: span.start_ns)
    for span in (*(span for span in trace.tops if trace.role(span) != Role.GENERATION), *steps):
        attributes = span.attributes
        text = (
            first_of(attributes, _QUERY_ATTRIBUTES, nonempty_text)
            or last(input_messages(span), USER)
            or question_in(attributes.get(semconv.INPUT_VALUE))
            or question_in(decode(attributes.get(semconv.ENTITY_INPUT)))
            or question_in(attributes.get(semconv.TRULENS_INPUT))
        )
        if text:
            return text
    calls = sorted(trace.calls, key=lambda span: span.start_ns)
    return next((text for call in calls if (text := _first_of_turn(input_messages(call))) is not None), None)


def _first_of_turn(conversation: list[Message]) -> str | None:
    """The first text of a user after the last text of the assistant: earlier texts belong to earlier turns."""
    text = None
    for entry in reversed(conversation):
        if entry.role == ASSISTANT and text is not None:
            break
        if entry.role == USER and entry.text:
            text = entry.text
    return text


def question_in(value: Any, depth: int = _QUESTION_DEPTH) -> str | None:
    """The question in an input: the value itself, or a member under one of the keys frameworks use."""
    input_value = decode_container(value)
    if isinstance(input_value, str):
        return None if cut_off(input_value) else as_text(input_value)
    if not depth:
        return None
    if isinstance(input_value, list):
        user_text = last(messages(input_value), USER)
        return _first_question(input_value[:1], depth) if user_text is None else user_text
    if not isinstance(input_value, Mapping):
        return None
    text = _first_question((input_value[name] for name in _INPUT_KEYS if name in input_value), depth)
    if text is not None:
        return text
    return _first_question((inner for inner in input_value.values() if isinstance(inner, Mapping)), depth)


def _first_question(values: Iterable[Any], depth: int) -> str | None:
    return next((text for value in values if (text := question_in(value, depth - 1))), None)


LOG_SCOPE: Final = "ragmon.log_record"
"""The scope name of a span that stands for a log record."""
NO_SPAN: Final = "no_span"
"""The reason for a log record whose span never came, and for a trace of which only log records came."""


def with_log_events(spans: Iterable[Span]) -> tuple[list[Span], int]:
    """The spans of a trace with the events of their log records, and how many log records have no span there."""
    joined: dict[str, Span] = {}
    records: list[Span] = []
    others: list[Span] = []
    for span in spans:
        if span.scope == LOG_SCOPE:
            records.append(span)
        elif joined.setdefault(span.span_id, span) is not span:
            others.append(span)  # two spans with one id: the first one has the events
    missing = 0
    for record in sorted(records, key=lambda record: record.end_ns):
        owner = joined.get(record.parent_id or "")
        if owner is None:
            missing += 1
        else:
            joined[owner.span_id] = owner._replace(events=[*owner.events, *record.events])
    return [*joined.values(), *others], missing
