"""Why a request has no record, or a field of a record is unknown.

Both follow from what the spans do carry. Texts in a place that is not read are no content that was left out, and a
model call in words that are not known is no trace without one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ragmon.core import constants, semconv
from ragmon.core.errors import shown_name
from ragmon.ingest.spans.model import (
    ATTRIBUTES_DROPPED,
    CONTENT_NOT_CAPTURED,
    NOT_UNDERSTOOD,
    Role,
    Span,
    Trace,
)
from ragmon.ingest.spans.values import REDACTED, Memo, too_long

_CONTENT: Final = re.compile(
    r"(?:input|prompt|question|query|message|content|output|completion|answer|response|reply|result)s?"
    r"(?:[._](?:value|text))?$|(?:^|\.)text$",
    re.IGNORECASE,
)
"""The end of the key of an attribute that holds a text of the request, in any convention."""
_MODEL: Final = re.compile(r"(?:^|[._])model(?:[._]?(?:name|id))?$", re.IGNORECASE)
"""The end of the key of an attribute that names a model."""
_KIND: Final = re.compile(
    r"(?:^|[._])kind$|(?:span|observation|component|node|run)[._]?type$|operation(?:[._]?(?:name|id))?$", re.IGNORECASE
)
"""The end of the key of an attribute that says what a span is."""
_ABOUT_SERVERS: Final = (
    "http.", "url.", "db.", "rpc.", "messaging.", "net.", "network.", "server.", "error.", "exception.", "user_agent."
)  # fmt: skip
"""Conventions whose texts are none of a model's."""
_KIND_WORDS: Final = re.compile(r"llm|chat|generation|completion|retriev|rerank|agent|\brag\b", re.IGNORECASE)
"""What a span with a model call or a retrieval is called, in any convention."""
_EMBEDDING: Final = re.compile(r"embed", re.IGNORECASE)
_UNDERSTOOD: Final = (semconv.SPAN_KIND, semconv.TRULENS_KIND, semconv.TRACELOOP_KIND)
"""The attributes that say what a span is in a convention that is known."""
_OPERATIONS: Final = frozenset({"embeddings", "execute_tool", "create_agent"})
"""OpenTelemetry's operations that are known and are neither a model call nor a retrieval."""
_NO_SCOPE: Final = "no_scope"
_EMPTY: Final = ("", "{}", "[]", "null", '""', "[[]]", REDACTED)
INPUT: Final = ("input", "prompt", "question", "query", "args")
OUTPUT: Final = ("output", "completion", "answer", "response", "reply", "replies", "result")
"""Words in the key of a text that goes in, and of one that comes out; without any it may be either."""


def _place(key: str) -> str:
    """`c` for a text, followed by `i` or `o` where it goes in or comes out; `m` for a model's name; `k` for a kind."""
    if key.startswith(_ABOUT_SERVERS) or "token" in key:
        return ""
    if _CONTENT.search(key):
        lower = key.casefold()
        goes_in, comes_out = (any(word in lower for word in words) for words in (INPUT, OUTPUT))
        return "c" + ("" if goes_in == comes_out else "i" if goes_in else "o")
    return "m" if _MODEL.search(key) else "k" if _KIND.search(key) else ""


PLACES: Final = Memo(_place)
"""What an attribute of any convention tells, by its key; "" where it is nothing of the request."""


def unread(spans: Iterable[Span], words: tuple[str, ...]) -> str:
    """The reason for unknown content of spans: whether there are texts in the place of it.

    Args:
        spans: The spans that would have it.
        words: `INPUT` or `OUTPUT`.
    """
    other = "o" if words is INPUT else "i"
    carried = any(
        PLACES[key].startswith("c") and not PLACES[key].endswith(other) and _is_content(value)
        for span in spans
        for key, value in span.attributes.items()
    )
    return NOT_UNDERSTOOD if carried else CONTENT_NOT_CAPTURED


def _is_content(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip() not in _EMPTY
    return isinstance(value, list | tuple | Mapping) and bool(value)


def why_no_text(trace: Trace, words: tuple[str, ...]) -> str:
    """The reason why the question or the answer of a request is unknown.

    Args:
        trace: The request.
        words: `INPUT` for the question, `OUTPUT` for the answer.
    """
    if any(span.dropped for span in trace.tops):
        return ATTRIBUTES_DROPPED
    values = (value for span in trace.spans for _, value in span.attributes.items())
    if any(map(too_long, values)):
        return constants.OVERSIZE
    holders = Role.WORKFLOW | Role.GENERATION | (Role.RETRIEVAL | Role.RERANKING if words is INPUT else 0)
    around = [trace.root] if trace.root is not None else []
    return unread([*around, *trace.having(holders)], words)


def unknown_scope(spans: Iterable[Span]) -> str | None:
    """The instrumentation whose spans tell of a model or a retrieval in words that are not read; None without such.

    Args:
        spans: The spans of a request without any model call or retrieval that is known.

    Returns:
        The name of its scope, of several the one with the most such spans.
    """
    scopes = Counter(span.scope for span in spans if _tells_of_a_model(span))
    return max(scopes, key=lambda scope: (scopes[scope], scope)) if scopes else None


MAX_SCOPES: Final = 32
"""How many instrumentations are named; further ones, and those whose name may be a text, are counted as `OTHER`."""


def count_scope(into: dict[str, int], scope: str, n: int = 1) -> None:
    """Count requests of an instrumentation whose convention is not known, in a table of bounded size.

    >>> scopes = {}; count_scope(scopes, "acme.tracing"); scopes
    {'acme.tracing': 1}
    """
    name = shown_name(scope or _NO_SCOPE, constants.OTHER)
    if name not in into and len(into) >= MAX_SCOPES:
        name = constants.OTHER
    into[name] = into.get(name, 0) + n


def count_tools(into: dict[str, int], tools: Iterable[str]) -> None:
    """Count requests without a retrieval by the tools that were called in them, in a table of bounded size.

    >>> tools = {}; count_tools(tools, ["search", "What is it?", "Who is she?"]); tools
    {'search': 1, '__other__': 1}
    """
    for name in dict.fromkeys(shown_name(tool, constants.OTHER) for tool in tools):
        count_scope(into, name)


def _tells_of_a_model(span: Span) -> bool:
    attributes = span.attributes
    if any(isinstance(attributes.get(key), str) for key in _UNDERSTOOD):
        return False
    operation = attributes.get(semconv.OPERATION)
    if (isinstance(operation, str) and operation in _OPERATIONS) or _EMBEDDING.search(f"{span.name} {operation}"):
        return False
    told = [(PLACES[key], value) for key, value in span.attributes.items() if isinstance(value, str)]
    return any(
        (place == "m" and not _EMBEDDING.search(value)) or (place == "k" and _KIND_WORDS.search(value))
        for place, value in told
    )
