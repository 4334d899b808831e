"""The question and the answer of a request, read from the messages on its spans.

Messages to and from a model have the forms that conventions and frameworks write. The answer is what the outermost
spans returned, else the output of the last model call; the question is the input of the outermost spans, else the query
of the retrieval.

Instrumentations also write the events of a span as log records, with the span's id. In the buffers of traces such a
record is a span itself, a child of the span it belongs to, with one event. So it is journalled, deduplicated, bounded
and erased as spans are. Once the trace is taken, its event joins those of its span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from msgspec import structs

from ragmon.core import semconv, shapes
from ragmon.core.answers import (
    Message,
    Reply,
    cited_in,
    is_representation,
    last,
    messages,
    parse,
    read,
    reply_in,
    text_of,
)
from ragmon.core.record import Answer
from ragmon.core.shapes import ASSISTANT, ROLES, USER, first_of
from ragmon.core.written import as_text, cut_off, decode, decode_container, mapping, nonempty_text
from ragmon.ingest.cells import cited_documents
from ragmon.ingest.spans.prompts import question_in_prompt
from ragmon.ingest.spans.span import Role, Span, Trace
from ragmon.ingest.spans.tools import LISTS, flattened, listed, tool_names, tool_output


def _flat_messages(span: Span, name: str) -> list[Message]:
    """The messages in flattened attributes."""
    result: list[Message] = []
    if not LISTS[name] and f"{name}.0.role" not in span.attributes and f"{name}.0.content" not in span.attributes:
        return result  # as most spans; flattened lists are slow to read
    for entry in flattened(span.attributes, name).rows:
        role, text = entry.get("role"), text_of(entry.get("content"))
        if text is None:
            text = text_of([part.get("message_content.text") for part in listed(entry, "contents").rows])
        result.append(Message(ROLES.get(role, role) if isinstance(role, str) else "", text))
    return result


def input_messages(span: Span) -> list[Message]:
    """The input messages of a span."""
    return (
        messages(span.attributes.get(semconv.INPUT_MESSAGES))
        or _flat_messages(span, semconv.LLM_INPUT)
        or _flat_messages(span, semconv.LEGACY_PROMPTS)
    )


def output_messages(span: Span) -> list[Message]:
    """The output messages of a span."""
    return (
        messages(span.attributes.get(semconv.OUTPUT_MESSAGES))
        or _flat_messages(span, semconv.LLM_OUTPUT)
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
        entries = flattened(span.attributes, semconv.LLM_INPUT).rows
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


_FINAL_ANSWER: Final = "final_answer"
"""The tool by which agents of smolagents answer."""


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
    return Answer(reply.claim, cited, refused=reply.refused or None)


def _reply(trace: Trace) -> Reply | None:
    # A model call without text called a tool, and a workflow that returns before its model ends streams: such an empty
    # answer counts only where no other span has one.
    empty, thoughts = None, trace.retrieving.reasoning
    calls = {span.span_id for span in trace.calls}
    last_ns = trace.calls[-1].end_ns if trace.calls else 0
    for span in _answer_spans(trace):
        answered = _reply_on(span, thoughts)
        if answered is None:
            continue
        if (own := span.attributes.get(semconv.RAGMON_CITATIONS)) is not None:
            answered = structs.replace(answered, citations=own)
        elif answered.citations is None:
            answered = structs.replace(answered, citations=_cited_on(span))
        if answered.citations is None:  # the application may hand on the text alone
            cited = ((call, ids) for call in reversed(trace.calls) if (ids := _cited_on(call)))
            same = (ids for call, ids in cited if (_reply_on(call, thoughts) or Reply(None)).claim == answered.claim)
            answered = structs.replace(answered, citations=next(same, None))
        if answered.claim != "" or (span.span_id not in calls and last_ns <= span.end_ns):
            return answered
        empty = empty or answered
    tools = (span for span in trace.having(Role.TOOL) if _FINAL_ANSWER in tool_names(span.attributes, span.name))
    final = (read(tool_output(span.attributes), thoughts) for span in tools)
    return next(final, None) or empty or next(filter(None, map(_asked_for, _answer_spans(trace))), None)


def _asked_for(span: Span) -> Reply | None:
    # JSON that is the answer: a list of words, and whatever is said to be a text.
    text = as_text(span.attributes.get(semconv.OUTPUT_VALUE))
    value = None if text is None else decode(text)
    is_list = isinstance(value, list) and all(isinstance(entry, str | int | float) for entry in value)
    is_text = isinstance(value, list | dict) and span.attributes.get(semconv.OUTPUT_TYPE) == "text/plain"
    return parse(text) if text is not None and (is_list or is_text) else None


def _reply_on(span: Span, thoughts: Sequence[str]) -> Reply | None:
    attributes = span.attributes
    claim = as_text(attributes.get(semconv.RAGMON_CLAIM))
    return (
        (None if claim is None else parse(claim, thoughts))
        or reply_in(output_messages(span), (ASSISTANT, ""), thoughts)
        or read(attributes.get(semconv.FINAL_RESULT), thoughts)
        or read(attributes.get(semconv.OUTPUT_VALUE), thoughts)
        or read(decode(attributes.get(semconv.ENTITY_OUTPUT)), thoughts)
        or read(attributes.get(semconv.TRULENS_OUTPUT), thoughts)
        or read(attributes.get(semconv.RETURN), thoughts)
    )


def _cited_on(span: Span) -> list[Any] | None:
    # Beside the parts of a model's reply.
    replies = map(span.attributes.get, (semconv.OUTPUT_MESSAGES, semconv.OUTPUT_VALUE))
    return next(filter(None, map(cited_in, replies)), None)


_ASIDE: Final = Role.TOOL | Role.CHECK
"""What a workflow returns to a tool or to a guardrail around it is no answer."""


def _answer_spans(trace: Trace) -> Iterator[Span]:
    """The spans that may hold the answer: the request, then each outermost span, the workflows and model calls in it.

    What a failed agent or model call said on its way is none.
    """
    yield from trace.enclosing
    failed = {span.span_id for span in trace.having(Role.WORKFLOW | Role.GENERATION) if span.failed}
    well = (call for call in trace.calls if not failed or failed.isdisjoint({call.span_id, *trace.above(call)}))
    calls = {call.span_id for call in well}
    for span in reversed(trace.having(Role.WORKFLOW | Role.GENERATION)):
        if trace.is_outermost(span) and (trace.role(span) != Role.GENERATION or span.span_id in calls):
            yield span
            steps = {step.span_id for step in trace.having(Role.WORKFLOW) if not trace.around(step) & _ASIDE} - failed
            inside = {inner.span_id for inner in trace.inside(span)} & (calls | steps)
            yield from (inner for inner in reversed(trace.ended) if inner.span_id in inside)


_INPUT_KEYS: Final = (
    *(*shapes.QUESTION_KEYS, "str_or_query_bundle", "query_bundle", "input", "inputs"),
    *("message", "user_msg", "user_prompt", "messages", "kwargs", "args", "data", "task"),
)
"""Keys of the question in an input, and those under which frameworks wrap it."""
_QUERY_ATTRIBUTES: Final = (semconv.QUERY_TEXT, semconv.MEMORY_QUERY, semconv.RERANKER_QUERY, semconv.TRULENS_QUERY)
"""The query of a retriever or reranker: the question, unless it was rewritten before."""
_QUESTION_DEPTH: Final = 5
"""The maximum depth of a question: Haystack writes `{"data": {component: {"query": ...}}}`."""


def question(trace: Trace, texts: Iterable[str] = ()) -> str | None:
    """The question of a request; None where no span has one.

    What the first model call was asked counts only where no other span has it: a prompt often has the documents in it.

    Args:
        trace: The request.
        texts: The texts of the documents that it retrieved, to find the question in a prompt.
    """
    given = (as_text(span.attributes.get(semconv.RAGMON_QUESTION)) for span in trace.spans)
    texts = list(texts)
    members = ((text[:1] == "{" and question_in(text)) or text for text in asked_texts(trace))
    asked = (question_in_prompt(text, texts) for text in members)
    return next(filter(None, chain(given, asked)), None)


def asked_texts(trace: Trace) -> Iterator[str]:
    """The texts that ask something in a request, the likeliest question first; one of a prompt has more in it."""
    steps = sorted(trace.steps, key=lambda span: span.start_ns)
    called = {span.span_id for span in steps if (trace.role(span) | trace.around(span)) & Role.TOOL}
    tops = [span for span in trace.tops if trace.role(span) != Role.GENERATION and span.span_id not in called]
    inner = [span for span in trace.spans if trace.role(span) & Role.WORKFLOW]
    retrievers = [span for span in steps if span.span_id not in called]
    words = shapes.QUESTION_KEYS
    asked = (_asked_on(span, words if span in trace.enclosing else ()) for span in (*tops, *inner, *retrievers))
    calls = sorted(trace.calls, key=lambda span: span.start_ns)
    prompts = (_first_of_turn(input_messages(call)) for call in calls)
    # What a tool is asked is the model's wording.
    queries = (_asked_on(span) for span in steps if span.span_id in called)
    return filter(None, chain(asked, prompts, queries))


def _asked_on(span: Span, own_words: Sequence[str] = ()) -> str | None:
    attributes = span.attributes
    return (
        first_of(attributes, _QUERY_ATTRIBUTES, nonempty_text)
        or last(input_messages(span), USER)
        or question_in(attributes.get(semconv.INPUT_VALUE))
        or question_in(decode(attributes.get(semconv.ENTITY_INPUT)))
        or question_in(attributes.get(semconv.TRULENS_INPUT))
        or first_of(attributes, own_words, nonempty_text)
    )


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
        return None if cut_off(input_value) or is_representation(input_value) else as_text(input_value)
    if not depth:
        return None
    if isinstance(input_value, list):
        user_text = last(messages(input_value), USER)
        return _first_question(input_value[:1], depth) if user_text is None else user_text
    if not isinstance(input_value, Mapping):
        return None
    named = (input_value[name] for name in _INPUT_KEYS if name in input_value)
    objects = (inner for inner in input_value.values() if isinstance(inner, Mapping))
    return _first_question(chain(named, objects), depth)


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
