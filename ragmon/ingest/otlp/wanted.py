"""Which attributes say something about a request: only those are read off a span.

Turning one attribute of a protocol message into Python's objects takes longer than parsing thirty; what no reader in
`ragmon.spans` asks for stays unread.
"""

from __future__ import annotations

from typing import Final

from ragmon import attributes as keys
from ragmon.spans.evaluations import MEMBERS
from ragmon.spans.flattened import LISTS
from ragmon.spans.remembered import Remembered

_SINGLE: Final = frozenset(
    {
        keys.RAGMON_RECORD,
        keys.RAGMON_QID,
        keys.RAGMON_CLAIM,
        keys.RAGMON_CITATIONS,
        keys.RAGMON_INTERNAL,
        keys.OPERATION,
        keys.WORKFLOW_NAME,
        keys.INPUT_MESSAGES,
        keys.OUTPUT_MESSAGES,
        keys.QUERY_TEXT,
        keys.DOCUMENTS,
        keys.ERROR_TYPE,
        keys.CONVERSATION,
        keys.SPAN_KIND,
        keys.INPUT_VALUE,
        keys.OUTPUT_VALUE,
        keys.RERANKER_QUERY,
        keys.LLM_MODEL,
        keys.PROMPT_TEMPLATE,
        keys.METADATA,
        keys.SESSION,
        keys.TRACELOOP_KIND,
        keys.TRACELOOP_WORKFLOW,
        keys.ENTITY_NAME,
        keys.ENTITY_INPUT,
        keys.ENTITY_OUTPUT,
        keys.TASK_STATUS,
        keys.REQUEST_TYPE,
        keys.VECTOR_TOP_K,
        keys.CHROMA_RESULTS,
        keys.TRULENS_KIND,
        keys.TRULENS_INPUT,
        keys.TRULENS_OUTPUT,
        keys.TRULENS_ERROR,
        keys.TRULENS_QUERY,
        keys.TRULENS_CONTEXTS,
        keys.TRULENS_RERANKED,
        keys.TRULENS_INPUT_ID,
        keys.TRULENS_CONVERSATION,
    }
)
_BELOW: Final = tuple(f"{name}." for name in (*LISTS, keys.ASSOCIATION))
"""How the keys of flattened lists and objects begin: those are read whole."""
_HITS: Final = (keys.QUERY_RESULT, keys.SEARCH_RESULT)


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
        or (event == keys.EXCEPTION and key == keys.EXCEPTION_TYPE)
        or (event == keys.EVALUATION and key in MEMBERS)
    )
