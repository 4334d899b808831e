"""Attribute values as they come (JSON in text, flattened lists, redacted placeholders), and the tools that retrieve.

Instrumentations flatten lists into one attribute per member of an entry, `retrieval.documents.0.document.id`.

Agents retrieve by a call of a tool. Its span says that a tool ran, and holds what it returned: JSON, a Python value as
text, or the content parts of the Model Context Protocol. A tool is a retriever by name, as `[capture] retrievers` says,
or by shape: it returned a list of objects of which each has

1. an id, under one of the usual names or where `[capture] id_from` says, and
2. a text under one of the usual names, and nothing that only a message, an order or a task has (`role`, `price`,
   `status`); or a score, and nothing that a document does not have (`name`, `points`).

A list of orders, users, messages or exam results is none. An empty list says nothing about the tool: it is a retrieval
that found nothing where the same tool is known as a retriever by its name, or by another call in the same request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ragmon.core import documents, semconv
from ragmon.core.shapes import normalised
from ragmon.core.text import Path
from ragmon.core.written import JSON, REDACTED, decode, decode_container, mapping, number, python_value, scalar

KEYS: Final = 4096
"""The maximum number of cached keys; an application that generates keys must not fill the memory."""
MEMO_MAX_CHARS: Final = 200
K = TypeVar("K", str, bytes)
T = TypeVar("T")


class Memo(dict[K, T], Generic[K, T]):
    """A function of text or bytes with a bounded cache: applications use the same few keys all the time.

    >>> length = Memo(len)
    >>> length["four"], list(length)
    (4, ['four'])
    """

    def __init__(self, find: Callable[[K], T]) -> None:
        super().__init__()
        self._function: Callable[[K], T] = find

    def __missing__(self, key: K) -> T:
        result = self._function(key)
        if len(self) < KEYS and len(key) <= MEMO_MAX_CHARS:
            self[key] = result
        return result


_DOCUMENT, _MESSAGE = f"{semconv.DOCUMENT}.", f"{semconv.MESSAGE}."
LISTS: Final = {
    semconv.RETRIEVED: _DOCUMENT,
    semconv.RERANKER_INPUT: _DOCUMENT,
    semconv.RERANKER_OUTPUT: _DOCUMENT,
    semconv.LLM_INPUT: _MESSAGE,
    semconv.LLM_OUTPUT: _MESSAGE,
    **dict.fromkeys((semconv.LEGACY_PROMPTS, semconv.LEGACY_COMPLETIONS), ""),
    semconv.ANNOTATIONS: "annotation.",
    semconv.EVALUATIONS: "evaluation.",
    semconv.TRACE_ANNOTATIONS: "annotation.",
}
"""The lists by name, with the prefix that may precede the names of their members."""
_MAX_INDEX_DIGITS: Final = 9


Cell = tuple[str, str, int]
"""The position of an attribute's value in a flattened list: its name, the entry's member, the entry's index."""


class FlattenedList(NamedTuple):
    """A flattened list: its entries in order, and whether no index before the last one is missing."""

    rows: list[dict[str, Any]]
    is_complete: bool


def flattened(attributes: Mapping[str, Any], name: str) -> FlattenedList:
    """The list with one of the names in `LISTS`; empty where there is none.

    >>> flattened({"retrieval.documents.0.document.id": "a", "input.value": "Is it?"}, "retrieval.documents").rows
    [{'id': 'a'}]
    """
    cells = ((cell, key) for key in attributes if (cell := CELLS[key]) is not None and cell[0] == name)
    return _assembled((cell, attributes[key]) for cell, key in cells)


def listed(attributes: Mapping[str, Any], name: str) -> FlattenedList:
    """The list with any name; its members are what follows `name.N.` in the keys.

    >>> listed({"parts.1.text": "b", "parts.0.text": "a", "parts.x": 1, "part": 2}, "parts").rows
    [{'text': 'a'}, {'text': 'b'}]
    """
    return _assembled((cell, value) for key, value in attributes.items() if (cell := _cell(key, name)) is not None)


def _assembled(cells: Iterable[tuple[Cell, Any]]) -> FlattenedList:
    rows: dict[int, dict[str, Any]] = {}
    for (_, member, index), value in cells:
        rows.setdefault(index, {})[member] = value
    return FlattenedList([rows[index] for index in sorted(rows)], max(rows, default=-1) == len(rows) - 1)


def _cell(key: str, name: str) -> Cell | None:
    if not key.startswith(f"{name}."):
        return None
    index, _, member = key[len(name) + 1 :].partition(".")
    if not (index.isascii() and index.isdigit() and len(index) <= _MAX_INDEX_DIGITS):
        return None
    return name, member.removeprefix(LISTS.get(name, "")), int(index)


CELLS: Final[Memo[str, Cell | None]] = Memo(
    lambda key: next((cell for name in LISTS if (cell := _cell(key, name)) is not None), None)
)
"""The position of an attribute in one of the lists, by its key; None where it belongs to none."""


def count(value: Any) -> int:
    """A count; 0 where the value is no integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def as_id(value: Any) -> str | None:
    """An id: text, or a whole number as text; None for anything else."""
    return documents.as_id(scalar(value))


_WRAPPERS: Final = (
    *("structuredContent", "structured_content", "content", "result", "output", "outputs", "response", "data"),
    *("return_value", "toolResult", "kwargs", "update", "messages", "blocks", "raw_output", "root"),
)
"""The keys under which frameworks put what a tool returned."""
_NO_DOCUMENT: Final = frozenset(
    {
        *("role", "sender", "recipient", "from", "to", "user", "user_id", "username", "email", "phone", "channel"),
        *("price", "amount", "quantity", "currency", "total", "rating", "stars", "likes", "votes", "tool_calls"),
        *("status", "state", "priority", "assignee", "due", "due_date", "done", "completed", "temperature"),
    }
)
"""Fields of messages, orders, reviews and tasks, which no document has beside its text."""
_OF_SCORED_DOCUMENTS: Final = frozenset(
    {
        *(*documents.ID_KEYS, *documents.OTHER_ID_KEYS, *documents.TEXT_KEYS, *documents.METADATA_KEYS),
        *(*documents.SCORE_KEYS, *documents.DISTANCE_KEYS, *documents.NODE_KEYS, documents.LOCATION),
        *("rank", "index", "position", "title"),
        *("url", "uri", "source", "path", "file", "filename", "page", "section", "heading", "language", "lang", "type"),
        *("values", "vector", "embedding", "sparse_values", "sparseValues", "version", "namespace", "collection"),
        *("_index", "_type", "_ignored", "sort", "shard_key", "order_value", "rerank_score", "object", "attributes"),
    }
)
"""The fields of a document that comes without its text; one more, and its score may be that of a game."""
_MAX_WRAPPERS: Final = 6


MAX_LITERALS_CHARS: Final = 1 << 19
"""The maximum length of all such texts of a request together; they take fifty times as long as JSON."""


class LiteralBudget:
    """Limits how much text of a request is read as Python values."""

    def __init__(self, left: int = MAX_LITERALS_CHARS) -> None:
        self._left = left

    def take(self, chars: int) -> bool:
        """Whether a text of a length may still be read."""
        self._left -= chars
        return self._left >= 0


class RetrievingTools(NamedTuple):
    """Which tools are retrievers: by the names of tools, tasks, functions and spans, or by shape.

    >>> RetrievingTools(("retrieve", "search_*")).has_name(["search_faq"])
    True
    """

    names: tuple[str, ...] = ()
    id_from: Path | None = None
    reasoning: tuple[str, ...] = ()
    """Names of thoughts in answers, beside the usual ones."""

    def has_name(self, names: Sequence[str]) -> bool:
        """Whether one of the names of a span is that of a retriever."""
        patterns = [_GLOB_SIGNS.sub(r"[\g<0>]", pattern) for pattern in self.names]
        return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)

    def has_shape(self, attributes: Mapping[str, Any], literals: LiteralBudget) -> bool:
        """Whether a tool returned a list that is one of documents by its shape."""
        return bool(documents_in(tool_output(attributes), self.id_from, literals, of_state=False))


_GLOB_SIGNS: Final = re.compile(r"[?\[]")
"""Characters that stand for themselves: only `*` stands for others."""
BY_SHAPE: Final = RetrievingTools()
"""No tool is a retriever by its name."""


_NAME_KEYS: Final = (semconv.GENAI_TOOL_NAME, semconv.TOOL_NAME, semconv.ENTITY_NAME, semconv.FUNCTION_NAME)
_AROUND_NAME: Final = re.compile(
    r"\A(?:execute_tool |MCP send |tools/call |running tool: )+|(?:\.(?:task|tool|run)){1,3}\Z"
)
_TOOL_KINDS: Final = {
    semconv.SPAN_KIND: (semconv.TOOL,),
    semconv.OPERATION: (semconv.EXECUTE_TOOL, semconv.EXECUTE_TASK),
    semconv.TRACELOOP_KIND: ("tool", "task"),
    semconv.MCP_METHOD: ("tools/call",),
}
_AGENT_KINDS: Final = {
    semconv.SPAN_KIND: (semconv.AGENT,),
    semconv.OPERATION: (semconv.INVOKE_WORKFLOW, "invoke_agent"),
    semconv.TRACELOOP_KIND: ("agent",),
}
_OTHER_WHOLES: Final = {semconv.OPERATION: ("create_agent",), semconv.TRACELOOP_KIND: ("workflow",)}


def _is_one_of(kinds: Mapping[str, Sequence[str]], attributes: Mapping[str, Any]) -> bool:
    return any(attributes.get(key) in names for key, names in kinds.items())


def is_tool(attributes: Mapping[str, Any]) -> bool:
    """Whether a span is the call of a tool, a task, or a request to a server of the Model Context Protocol."""
    return _is_one_of(_TOOL_KINDS, attributes)


def is_task(attributes: Mapping[str, Any]) -> bool:
    """Whether a span that is like a tool's is a step of a program: a node of a graph, a task of a crew."""
    kinds = {attributes.get(key) for key, known in _TOOL_KINDS.items() if attributes.get(key) in known}
    return kinds <= {"task", semconv.EXECUTE_TASK}


def is_agent(attributes: Mapping[str, Any]) -> bool:
    """Whether a span is the run of an agent."""
    return _is_one_of(_AGENT_KINDS, attributes)


def is_whole(attributes: Mapping[str, Any]) -> bool:
    """Whether a span is a whole agent or workflow, which is no retriever whatever its name."""
    return semconv.RAGMON_RECORD in attributes or is_agent(attributes) or _is_one_of(_OTHER_WHOLES, attributes)


_RETRIEVES: Final = re.compile(
    r"retriev|search|look_?up|find|fetch|query|knowledge|passage|document|context|vector|corpus|handbook|wiki"
    r"|(?:^|_)(?:docs?|faqs?|index|kb|rag)(?:_|$)"
)


def sounds_like_retrieval(name: str) -> bool:
    """Whether a tool is named as those are that retrieve.

    >>> sounds_like_retrieval("searchFaq"), sounds_like_retrieval("ask_kb"), sounds_like_retrieval("generate")
    (True, True, False)
    """
    return bool(_RETRIEVES.search(normalised(name)))


def tool_names(attributes: Mapping[str, Any], span_name: str) -> list[str]:
    """The names of a tool on its span, the best one first: those in attributes, and the span's own.

    >>> tool_names({"gen_ai.tool.name": "search"}, "execute_tool search"), tool_names({}, "retrieve.task")
    (['search', 'execute_tool search'], ['retrieve', 'retrieve.task'])
    """
    names = [name for key in _NAME_KEYS if isinstance(name := attributes.get(key), str) and name]
    return list(dict.fromkeys((*names, _AROUND_NAME.sub("", span_name), span_name)))


_OUTPUTS: Final = (semconv.TOOL_RESULT, semconv.OUTPUT_VALUE, semconv.ENTITY_OUTPUT, semconv.RETURN)


def tool_output(attributes: Mapping[str, Any]) -> Any:
    """What a tool returned, as its span has it; None where the span does not have it."""
    output = next((value for key in _OUTPUTS if (value := attributes.get(key)) not in (None, REDACTED)), None)
    if output is not None:
        return output
    messages = decode_container(attributes.get(semconv.OUTPUT_MESSAGES))
    contents = [mapping(message).get("content") for message in messages] if isinstance(messages, list) else []
    return next(filter(None, reversed(contents)), None)


def documents_in(
    output: Any, id_from: Path | None = None, literals: LiteralBudget | None = None, *, of_state: bool = True
) -> list[documents.Document] | None:
    """The documents that a tool returned, in rank order; None where its output has another shape.

    Under `context` lie those of a state (`of_state`), which steps of any purpose hand on.

    >>> [found.id for found in documents_in('{"results": [{"id": "a", "text": "one"}]}')]
    ['a']
    >>> documents_in('[{"id": 7, "name": "Ann"}]') is None
    True
    """
    for entries in _lists_in(output, _MAX_WRAPPERS, literals or LiteralBudget(), of_state=of_state):
        found = [documents.read_document(entry, JSON, id_from) for entry in entries]
        if all(_is_document(entry, each, id_from) for entry, each in zip(entries, found, strict=True)):
            return found
    return None


def returned_list(output: Any, literals: LiteralBudget | None = None) -> list[Any] | str | None:
    """The list, or the text, that a retriever returned whatever its shape; None where it returned something else.

    >>> returned_list('{"results": []}'), returned_list("Ferries leave at six."), returned_list("17")
    ([], 'Ferries leave at six.', None)
    """
    literals = literals or LiteralBudget()
    value = _decoded(output, literals)
    lists = _lists_in(value, _MAX_WRAPPERS, literals, of_mappings=False)
    first = next(lists, None)
    if first is not None:
        return first
    for _ in range(_MAX_WRAPPERS):
        if isinstance(value, list):
            texts = [part.get("text") for part in value if isinstance(part, Mapping)]
            value = "".join(map(str, texts)) if texts and len(texts) == len(value) and None not in texts else None
        elif isinstance(value, Mapping):
            value = next((value[key] for key in ("text", *_WRAPPERS) if value.get(key) is not None), None)
        value = _decoded(value, literals)
    return value if isinstance(value, str) and value.strip() and number(value) is None else None


def returned_nothing(attributes: Mapping[str, Any], literals: LiteralBudget) -> bool:
    """Whether a tool returned an empty list, alone or in an object."""
    output = tool_output(attributes)
    return output is not None and returned_list(output, literals) == []


def _lists_in(
    value: Any, depth: int, literals: LiteralBudget, *, of_mappings: bool = True, of_state: bool = True
) -> Iterator[list[Any]]:
    """The lists in an output that may be its documents, the most likely one first.

    Up to `depth` objects and lists may be around a list. `of_mappings` leaves out lists without objects.
    """
    value = _decoded(value, literals)
    if not depth:
        return
    if isinstance(value, list):
        parts = _part_values(value, literals)
        if parts is not None:
            yield from _lists_in(parts, depth - 1, literals, of_mappings=of_mappings, of_state=of_state)
            return
        entries = [_decoded(entry, literals) for entry in documents.list_in(value, JSON) or ()]
        if not of_mappings or (entries and all(isinstance(entry, Mapping) for entry in entries)):
            yield entries
    elif isinstance(value, Mapping):
        rows = documents.rows_of_columns(value, JSON) if type(value) is dict else None
        if rows is not None:
            yield rows
        for key in (*documents.LIST_KEYS, *_WRAPPERS):
            inner = value.get(key) if of_state or key != "context" else None
            if isinstance(inner, Mapping | list) or (isinstance(inner, str) and key in _WRAPPERS):
                yield from _lists_in(inner, depth - 1, literals, of_mappings=of_mappings, of_state=of_state)


def _part_values(parts: Sequence[Any], literals: LiteralBudget) -> Any:
    """The value in the parts of a message, `[{"type": "text", "text": "…"}]`; None where the list is none of parts.

    Servers of the Model Context Protocol write a list as one part, or as a part for each entry.
    """
    if not parts or not all(isinstance(part, Mapping) and _is_part(part) for part in parts):
        return None
    values = [_decoded(part["text"] if "text" in part else part["json"], literals) for part in parts]
    if len(values) == 1:
        return values[0]
    return None if any(isinstance(value, str) for value in values) else values


_PART_KEYS: Final = frozenset({"type", "text", "json", "annotations", "_meta", "meta", "id", "index"})


def _is_part(part: Mapping[str, Any]) -> bool:
    """Whether an object is a content part: of the type `text`, or nothing but a text or a JSON value."""
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return part.keys() <= _PART_KEYS
    return part.keys() in ({"text"}, {"json"})


def _is_document(entry: Any, found: documents.Document, id_from: Path | None) -> bool:
    """Whether an object is a document by the shape that the module's docstring defines."""
    named = found if id_from is None or found.id is not None else documents.read_document(entry, JSON)
    if named.id is None and named.label is None:
        return False
    keys = {key for fields in documents.parts_of(entry, JSON).own for key in fields}
    if found.text and _NO_DOCUMENT.isdisjoint(keys):
        return True
    distances = map(mapping(entry).get, documents.DISTANCE_KEYS)
    has_score = found.score is not None or any(number(distance) is not None for distance in distances)
    return has_score and keys <= _OF_SCORED_DOCUMENTS


def _decoded(value: Any, literals: LiteralBudget) -> Any:
    """A value that is written as JSON, or as Python writes lists and objects; anything else stays unchanged."""
    if isinstance(value, str) and value[:1] == '"':  # OpenLLMetry writes texts as JSON, too
        text = decode(value)
        value = text if isinstance(text, str) else value
    decoded = decode_container(value)
    if isinstance(decoded, str) and decoded.lstrip()[:1] in ("[", "{", "(") and literals.take(len(decoded)):
        literal = python_value(decoded)
        return decoded if literal is None else literal
    return decoded
