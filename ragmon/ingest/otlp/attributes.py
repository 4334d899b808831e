"""Which attributes of spans and events the mapper reads: all others stay undecoded, which takes half as long."""

from __future__ import annotations

from typing import Final

from ragmon.core import semconv
from ragmon.ingest.spans.conventions import EVENT_KEYS, KEY_PREFIXES, KEYS, MESSAGE_EVENTS
from ragmon.ingest.spans.fields import MEMBERS
from ragmon.ingest.spans.model import HIT_EVENTS
from ragmon.ingest.spans.reasons import PLACES
from ragmon.ingest.spans.values import LISTS, Memo

_READ_KEYS: Final = frozenset(
    {
        semconv.RAGMON_RECORD,
        semconv.RAGMON_QID,
        semconv.RAGMON_CLAIM,
        semconv.RAGMON_CITATIONS,
        semconv.RAGMON_INTERNAL,
        semconv.OPERATION,
        semconv.WORKFLOW_NAME,
        semconv.INPUT_MESSAGES,
        semconv.OUTPUT_MESSAGES,
        semconv.QUERY_TEXT,
        semconv.DOCUMENTS,
        semconv.GENAI_TOOL_NAME,
        semconv.TOOL_RESULT,
        semconv.MCP_METHOD,
        semconv.ERROR_TYPE,
        semconv.CONVERSATION,
        semconv.SPAN_KIND,
        semconv.INPUT_VALUE,
        semconv.OUTPUT_VALUE,
        semconv.RERANKER_QUERY,
        semconv.LLM_MODEL,
        semconv.PROMPT_TEMPLATE,
        semconv.METADATA,
        semconv.SESSION,
        semconv.REQUEST_MODEL,
        semconv.RESPONSE_MODEL,
        semconv.USER,
        semconv.END_USER,
        semconv.TOOL_NAME,
        semconv.TRACELOOP_KIND,
        semconv.TRACELOOP_WORKFLOW,
        semconv.ENTITY_NAME,
        semconv.FUNCTION_NAME,
        semconv.ENTITY_INPUT,
        semconv.ENTITY_OUTPUT,
        semconv.TASK_STATUS,
        semconv.REQUEST_TYPE,
        semconv.VECTOR_TOP_K,
        semconv.CHROMA_RESULTS,
        semconv.TRULENS_KIND,
        semconv.TRULENS_INPUT,
        semconv.TRULENS_OUTPUT,
        semconv.TRULENS_ERROR,
        semconv.TRULENS_QUERY,
        semconv.TRULENS_CONTEXTS,
        semconv.TRULENS_RERANKED,
        semconv.TRULENS_INPUT_ID,
        semconv.TRULENS_CONVERSATION,
        *KEYS,
    }
)
_READ_PREFIXES: Final = (*(f"{name}." for name in (*LISTS, semconv.ASSOCIATION)), *KEY_PREFIXES)
"""The prefixes of the keys of flattened lists and objects, of which every attribute is read."""


def _is_read(key: str) -> bool:
    return key in _READ_KEYS or key.startswith(_READ_PREFIXES) or bool(PLACES[key])


IS_READ: Final = Memo(_is_read)
"""Whether an attribute of a span is read, by its key; texts and names of models in any convention are, because the
reason for an unknown field depends on whether there are such."""


def on_event(event: str, key: str) -> bool:
    """Whether an attribute of an event is read.

    Args:
        event: The event's name.
        key: The attribute's key.

    >>> on_event("exception", "exception.type"), on_event("exception", "exception.stacktrace")
    (True, False)
    """
    return (
        event in HIT_EVENTS
        or (event in MESSAGE_EVENTS and key in EVENT_KEYS)
        or (event == semconv.EXCEPTION and key == semconv.EXCEPTION_TYPE)
        or (event == semconv.EVALUATION and key in MEMBERS)
    )
