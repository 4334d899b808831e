"""Which attributes say something about a request: only those are read off a span.

Turning one attribute of a protocol message into Python's objects takes longer than parsing thirty; what no reader in
`ragmon.spans` asks for stays unread.
"""

from __future__ import annotations

from typing import Final

from ragmon.core import semconv
from ragmon.spans.evaluations import MEMBERS
from ragmon.spans.flattened import LISTS
from ragmon.spans.remembered import Remembered

_SINGLE: Final = frozenset(
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
        semconv.TRACELOOP_KIND,
        semconv.TRACELOOP_WORKFLOW,
        semconv.ENTITY_NAME,
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
    }
)
_BELOW: Final = tuple(f"{name}." for name in (*LISTS, semconv.ASSOCIATION))
"""How the keys of flattened lists and objects begin: those are read whole."""
_HITS: Final = (semconv.QUERY_RESULT, semconv.SEARCH_RESULT)


def _on_span(key: str) -> bool:
    return key in _SINGLE or key.startswith(_BELOW)


ON_SPAN: Final = Remembered(_on_span)
"""Whether an attribute of a span is read, by its key."""


def on_event(event: str, key: str) -> bool:
    """Whether an attribute of an event is read.

    Args:
        event: The event's name.
        key: The attribute's.

    >>> on_event("exception", "exception.type"), on_event("exception", "exception.stacktrace")
    (True, False)
    """
    return (
        event in _HITS
        or (event == semconv.EXCEPTION and key == semconv.EXCEPTION_TYPE)
        or (event == semconv.EVALUATION and key in MEMBERS)
    )
