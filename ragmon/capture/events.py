"""Events of a stream, and the answer, documents and citations that they are told in.

Texts and bytes are put together and taken apart by their wire format: server-sent events, JSON values in a row
(NDJSON), lines of Vercel's data stream, or plain text. What a frame holds, and every other item, is an event: a text,
or an object with a kind (`type`, the `event:` of its frame, the first member of a tuple) and a content.

A kind is known by its words, not by its framework: one of `_ANSWER` says that its text is answer, one of `_PIECE` that
it is a piece, one of `_WHOLE` that it is all of it, one of `_NO_ANSWER` that it is none. The text of another kind is
not understood; a stream with no other text has no answer. Documents, citations and labels are taken from each event,
the newest of each field.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import lru_cache
from itertools import groupby
from json import JSONDecoder
from typing import Any, Final, NamedTuple

import msgspec

from ragmon.capture.objects import STEPS, attempt, class_name, entries, first, held, is_a, is_list, is_str, stored
from ragmon.core import shapes
from ragmon.core.shapes import ASSISTANT, normalised

Fields = dict[str, Any]

# Wire formats.
_LINE: Final = re.compile(r"\r\n|\n|\r")  # `splitlines` knows more ends of lines than the formats do
_BYTE_ORDER_MARK: Final = "\ufeff"
_FRAME_FIELDS: Final = frozenset({"", "data", "event", "id", "retry"})
"""The names in lines of server-sent events; a comment has none."""
_FRAME: Final = re.compile(r"(?:data|event|id|retry)?:|data[\r\n]")
_LONGEST_HEARTBEAT: Final = 128
_HEARTBEAT: Final = re.compile(r":[^\n:\w]*+\w[^\n]*(?:\r?\n){2}")
_CODED: Final = re.compile(r"[0-9a-k]:\s*\S")
_CODES: Final = {"0": "text", "2": "data", "8": "data", "g": "reasoning", "h": "source", "3": "error"} | dict.fromkeys(
    "def", "finish"
)
"""The kinds of lines in Vercel's data stream; the others are calls of tools."""
_LAST: Final = frozenset({"[DONE]", "[END]", "<|endoftext|>", "<|im_end|>"})
"""Texts that end a stream and say nothing."""
_BROKEN_OFF: Final[Fields] = {"type": "error"}
_SEPARATORS: Final = re.compile(r"[\s\x1e,]*")
"""What stands between the values of a stream of JSON; RFC 7464 begins each with a separator of records."""
_FEW_UNREADABLE: Final = 16
_json: Final = JSONDecoder().raw_decode
_decode: Final = msgspec.json.Decoder().decode


def wire_events(items: Iterable[Any]) -> list[Any]:
    r"""The events of a stream: its texts and bytes decoded, and its other items as they are.

    >>> wire_events([b'event: token\ndata: "y', b'es"\n\n: ping\n\ndata: [DONE]\n\n'])
    [{'event': 'token', 'data': '"yes"'}, {'data': '[DONE]'}]
    >>> wire_events(['0:"y"\n', '0:"es"\n'])
    [{'type': 'text', 'data': 'y'}, {'type': 'text', 'data': 'es'}]
    >>> wire_events(["y", "es", {"sources": []}])
    ['y', 'es', {'sources': []}]
    """
    found: list[Any] = []
    for is_raw, run in groupby(items, is_raw_text):
        together = list(run)
        found += _decoded(raw_texts(together)) if is_raw else together
    return found


def is_raw_text(item: Any) -> bool:
    """Whether an item of a stream is text or bytes, and no object."""
    return is_a(item, str, bytes, bytearray)


def raw_texts(run: Iterable[Any]) -> list[str]:
    """The texts of items that are texts or bytes."""
    decode = getincrementaldecoder("utf-8")("replace").decode  # a character may be cut between two items
    texts = [str.__str__(item) if is_str(item) else decode(item) for item in run]
    return [*texts, decode(b"", final=True)]


def _decoded(texts: list[str]) -> list[Any]:
    text = "".join(texts)
    if not text:
        return [""]
    if text.count("\ufffd") * _FEW_UNREADABLE > len(text):  # compressed, or of another protocol
        return [_BROKEN_OFF]
    for decode in _FORMATS:
        found = decode(text)
        is_answer = decode is _objects and found is not None and len(found) == 1 and _SAYING.isdisjoint(found[0])
        if found is not None and not is_answer:  # an answer may be an object in JSON
            return found
    return [event for text in texts for event in _alone(text)]


def _alone(text: str) -> list[Any]:
    # An item of a stream that is in no format as a whole: a token, or a frame between tokens.
    if len(text) <= _LONGEST_HEARTBEAT and _HEARTBEAT.fullmatch(text):
        return []
    if text[:1] in "{dei0123456789abcdefghijk" and text[-1:] in "}\n":
        found = _objects(text) or _frames(text) or _coded_lines(text)
        if found and all(is_str(event) or not _KNOWN.isdisjoint(event) for event in found):
            return found
    return [text] if text else []


def _frames(text: str) -> list[Any] | None:
    text = text.removeprefix(_BYTE_ORDER_MARK).lstrip("\r\n")
    if not _FRAME.match(text):
        return None
    lines = _LINE.split(text)
    named = [line.partition(":") for line in lines]
    is_field = [name in _FRAME_FIELDS and (colon != "" or name != "") for name, colon, _ in named]
    values = [value for name, _, value in named if name == "data"]
    are_all = all(known or line == "" for known, line in zip(is_field, lines, strict=True))
    are_closed = "" in lines[:-1] or (len(values) > 1 and are_all)
    if not (values and (are_closed or values[0].lstrip()[:1] == "{")):
        return None
    said = [value for value in values if value[:1] not in ("", "{", "[", '"')]
    # Where one token has no space before it, a space belongs to the token.
    separator = " " if all(value.startswith(" ") for value in said) else ""
    found: list[Any] = []
    event: Fields = {}
    data: list[str] = []
    for line, is_known, (name, _, value) in zip(lines, is_field, named, strict=True):
        if not line:
            found += _frame(event, data)
            event, data = {}, []
        elif not is_known:  # a token with an end of line in it, whose application has framed it as one
            data.append(line)
        elif name == "data":
            data.append(value.removeprefix(separator))
        elif name == "event":
            event["event"] = value.strip()
    return found + _frame(event, data)


def _frame(event: Fields, data: list[str]) -> list[Any]:
    if len(data) > 1 and all(line.lstrip()[:1] in ("{", "[") for line in data):  # frames without an empty line
        return [{**event, "data": line} for line in data]
    return [{**event, "data": "\n".join(data)}] if data else []


def _end_of_separators(text: str, place: int) -> int:
    match = _SEPARATORS.match(text, place)
    return place if match is None else match.end()


def _objects(text: str) -> list[Any] | None:
    place, found = _end_of_separators(text, 0), list[Any]()
    try:
        while place < len(text):
            value, place = _json(text, place)
            place = _end_of_separators(text, place)
            found += value if type(value) is list else [value]
            if not all(type(entry) is dict for entry in found[-len(value) if type(value) is list else -1 :]):
                return None
    except (ValueError, RecursionError):
        return [*found, _BROKEN_OFF] if len(found) > 1 else None
    return found or None


def _coded_lines(text: str) -> list[Any] | None:
    lines = [line for line in _LINE.split(text) if line]
    if not lines or not all(map(_CODED.match, lines)):
        return None
    found: list[Any] = []
    for line in lines:
        try:
            value, end = _json(line, 2)
        except (ValueError, RecursionError):
            return None
        if line[end:].strip() or (line[0] == "0") != (type(value) is str and line[0] not in "3g"):
            return None
        kind = _CODES.get(line[0], "tool")
        several = type(value) is list and kind == "data"
        found += [{"type": kind, "data": entry} for entry in (value if several else [value])]
    return found


_FORMATS: Final[tuple[Callable[[str], list[Any] | None], ...]] = (_frames, _objects, _coded_lines)


# Kinds.
_KIND_KEYS: Final = ("type", "event", "kind", "event_type", "event_kind", "part_kind", "part_delta_kind", "role")
_STATUS_KEYS: Final = ("status", "stage", "phase", "state")
_SUCCESS: Final = frozenset({"ok", "success", "succeeded", "successful"})
_KIND: Final = re.compile(r"[A-Za-z][\w.:/-]{0,63}")
_THOUGHTS: Final = frozenset({"reasoning", "reason", "thinking", "thought", "thoughts", "think", "scratchpad"})
_STEPS: Final = _THOUGHTS | {"tool", "tools", "function", "status", "progress", "error"}
"""Words that say so in the name of a class as well."""
_DOCUMENTS: Final = {
    **dict.fromkeys(("documents", "docs", "context", "contexts", "chunks", "passages", "results"), "documents"),
    **dict.fromkeys(("document", "retrieved", "retrieval", "retriever", "retrieve", "search"), "documents"),
    **dict.fromkeys(("source", "sources", "reference", "references"), "sources"),
    **dict.fromkeys(("citation", "citations"), "citations"),
}
"""The field of a record that an event of such a kind tells."""
_ONE: Final = ("citation", "source", "document")
"""Kinds and keys of which each event holds one entry."""
_NO_ANSWER: Final = frozenset(
    {
        *_STEPS,
        *_DOCUMENTS,
        *("call", "calls", "arguments", "args", "action", "observation", "human", "system", "developer", "user"),
        *("input", "start", "started", "begin", "created", "step", "steps", "plan", "planning", "prompt"),
        *("ping", "heartbeat", "keepalive", "keep", "ack", "ready", "init", "open", "connected", "abort", "aborted"),
        *("errors", "warning", "failed", "log", "debug", "trace", "usage", "metadata", "meta", "info", "cost"),
        *("question", "questions", "query", "queries", "request", "session", "conversation", "title", "related"),
        *("suggestion", "suggestions", "suggested", "followup", "followups", "follow", "feedback"),
        *("audio", "image", "annotation"),
    }
)
_END: Final = frozenset({"complete", "completed", "done", "end", "ended", "finish", "finished", "stop"})
_WHOLE: Final = _END | {"final", "result"}
_PIECE: Final = frozenset({"delta", "token", "stream", "append"})
_ANSWER: Final = frozenset(
    {
        *_WHOLE,
        *_PIECE,
        *("answer", "text", "content", "chunk", "message", "messages", "completion", "generation", "generated"),
        *("response", "reply", "output", "refusal", "assistant", "ai", "model", "llm", "bot", "word", "sentence"),
        *("partial", "part", "data", "update", "updates", "values", "custom", "raw", "tokens", "words", "aimessage"),
        *("streaming", "generating", "answering"),
    }
)
_GRAPH: Final = frozenset({"updates", "values"})
"""LangGraph's modes in which an event is what a node has changed, or the whole state."""
_TEXT_WORDS: Final = frozenset(
    {"answer", "token", "text", "content", "delta", "chunk", "response", "completion", "reply"}
)
_NEWEST: Final = frozenset({"new", "next", "full", "current", "chat", "so", "far"})
"""Words of keys that no table has: `answer_delta`, `tokenText`, `new_content`."""
_BEGINS: Final = frozenset({"message_start", "response_created"})
_FAILURE: Final = frozenset({"error", "abort", "aborted", "failed"})


class EventKind(NamedTuple):
    """What the names of an event, and of the events around it, say.

    Attributes:
        is_answer: Whether its text is answer; None where its names say nothing.
        is_known: Whether a word of its names is known.
        is_piece: Whether its text is surely a piece of the answer.
        is_whole: Whether its text is the whole answer.
        is_end: Whether it ends the stream, so that its text may be a remark.
        field: The field of a record that it tells; None for none.
        is_one: Whether it is one entry of this field.
        is_failure: Whether the stream broke off.
        begins: Whether the text of another message begins.
    """

    is_answer: bool | None
    is_known: bool
    is_piece: bool
    is_whole: bool
    is_end: bool
    field: str | None
    is_one: bool
    is_failure: bool
    begins: bool


@lru_cache(1024)
def kind_of(names: tuple[str, ...]) -> EventKind:
    """What the names of an event say, the innermost last.

    >>> kind_of(("response.output_text.delta",)).is_piece, kind_of(("content_block_delta", "thinking_delta")).is_answer
    (True, False)
    >>> kind_of(("on_retriever_end",)).field, kind_of(()).is_answer, kind_of(("frobnicated",)).is_known
    ('documents', None, False)
    """
    simple = [normalised(name) for name in names]
    ordered = [word for name in reversed(simple) for word in name.split("_")]
    words = frozenset(ordered)
    told = next((word for word in ordered if word in _DOCUMENTS), None)
    says_not, says_so = not words.isdisjoint(_NO_ANSWER), not words.isdisjoint(_ANSWER)
    return EventKind(
        is_answer=None if not names else says_so and not says_not,
        is_known=says_so or says_not,
        is_piece=not words.isdisjoint(_PIECE),
        is_whole=not words.isdisjoint(_WHOLE) or not _GRAPH.isdisjoint(simple),
        is_end=not words.isdisjoint(_END),
        field=None if told is None else _DOCUMENTS[told],
        is_one=told in _ONE,
        is_failure=not words.isdisjoint(_FAILURE) and words.isdisjoint({"tool", "retriever"}),
        begins=not _BEGINS.isdisjoint(simple),
    )


@lru_cache(256)
def _is_step(class_: str) -> bool:
    return not _STEPS.isdisjoint(normalised(class_).split("_"))


def _kinds(fields: Fields) -> tuple[str, ...]:
    found: tuple[str, ...] = ()
    for key in _KIND_KEYS:
        if (value := dict.get(fields, key)) is None:
            continue
        if is_a(value, Enum) and not is_str(value):
            value = stored(value, "_value_")
        if is_str(value) and _KIND.fullmatch(value):
            found = (*found, str.__str__(value))
    return found


def _status(fields: Fields) -> str | None:
    found = (dict.get(fields, key) for key in _STATUS_KEYS)
    texts = (str.__str__(text) for text in found if is_str(text))
    return next((text for text in texts if text.lower() not in _SUCCESS), None)


@lru_cache(256)
def _says_text(key: str) -> bool:
    words = frozenset(normalised(key).split("_"))
    return words <= _ANSWER | _NEWEST and not words.isdisjoint(_TEXT_WORDS)


# Where an event has what it says.
_EVENTS: Final = ("data", "raw_data", "payload", "chunk", "bytes", "delta", "part", "content_block", "event")
"""What may be an event itself."""
_PARTS: Final = ("part", "content_block")
"""Of these the own kind counts alone: the first token of a part may come with its start."""
_ENCODED: Final = ("data", "raw_data", "payload", "bytes")
"""Texts that may be JSON."""
_PIECES: Final = ("delta", "token", "content_delta", "chunk")
_STRONG: Final = frozenset(
    {
        *("answer_json", "claim", "answer", "response", "result", "output", "generation", "completion", "reply"),
        *("generated_text",),
    }
)
"""Keys that hold the answer also where tokens came before, or an event ends the stream."""
_OUTPUTS: Final = _STRONG | {"messages", *shapes.ALTERNATIVES}
"""Keys of what a node of a graph changed, of which one holds the answer."""
_TEXTS: Final = (
    *("answer_json", *_EVENTS, "token", "content_delta", *shapes.ANSWER_KEYS, "generated_text", "value", "word"),
    *("messages",),
)
"""Where an event has its text, the surest first."""
_LISTS: Final = ("data", "output", "content", "value", "items", "results", "payload")
"""Where an event has the list that its kind names."""
_GROUPS: Final = ("run_id", "message_id", "messageId")
"""Which of several messages a text belongs to."""
_ASKED: Final = (*shapes.QUESTION_KEYS, "input", "inputs")
_FIELDS: Final = frozenset(
    {
        *("answer_json", "retrieved", "retrieved_ids", "documents", "source_documents", "source_nodes", "chunks"),
        *("contexts", "context", "docs", "retrieved_documents", "retrieved_docs", "retrieved_contexts", "retrieval"),
        *("retrieval_context", "sources", "references", "citations", "candidates", "candidate_ids"),
    }
)
"""Keys of what a record holds beside the answer."""
_ENVELOPES: Final = ("answer", "response", "result", "output")
"""Keys of objects that may hold them as well."""
_LABELS: Final = frozenset({"qid", "index_hash", "build", "session", "model", "user"})
_KNOWN: Final = frozenset(
    {*_KIND_KEYS, *_TEXTS, *_LISTS, *_GROUPS, *_ASKED, *_FIELDS, *_LABELS, *_ONE, *shapes.ALTERNATIVES}
    | {"candidates", "done", "finished", "error", "usage", "id"}
)
_SAYING: Final = frozenset({*_OUTPUTS, *_FIELDS, *_PIECES, "text", "content", "message", "data", "choices"})
"""Keys of which an event has one that is the whole stream."""
_MAX_DEPTH: Final = 8
_MAX_NODES: Final = 16
_MAX_SHOWN: Final = 4
_LONGEST_KEY: Final = 64
_TOKENS: Final = 20
"""A longer list of numbers is a prompt in tokens, as Ollama returns it."""
_MAX_EVENTS: Final = 65_536
"""Events of a stream that are read; the answer of a longer one is unknown."""
_FEW_STEPS: Final = 3
PIECE, PLAIN, EITHER, WHOLE = range(4)
"""A piece of the answer; a text or frame of its own; a text that may be a piece or all so far; all of the answer."""


class _Place(NamedTuple):
    """Where a value of an event stands: in events of which kinds, under which key, in which message."""

    names: tuple[str, ...] = ()
    how: int = PLAIN
    key: str = ""
    message: Any = None
    depth: int = 0


class _Text(NamedTuple):
    text: str
    how: int
    key: str
    message: Any


def read_stream(
    items: Iterable[Any], text_of: Callable[[Any], str | None], fields_of: Callable[[Any], Fields]
) -> EventReader:
    """Read the items of a stream.

    Args:
        items: What was streamed.
        text_of: The text of a message, a completion or another value.
        fields_of: The fields of a result, named as in `ragmon.record`.
    """
    reader = EventReader(text_of, fields_of)
    reader.read(wire_events(items))
    return reader


class EventReader:
    """Reads the events of one stream, by the functions that read any result.

    Attributes:
        fields: What the events say beside the answer.
        is_broken: Whether an error ended the stream.
        strange: Kinds, or keys, of events that are not understood.
    """

    def __init__(self, text_of: Callable[[Any], str | None], fields_of: Callable[[Any], Fields]) -> None:
        self._text_of = text_of
        self._fields_of = fields_of
        self._texts: list[_Text] = []
        self._ones: dict[str, list[Any]] = {}
        self._message = 0
        self._strange = 0
        self.is_broken = False
        self._is_readable = True
        self.fields: Fields = {}
        self.strange: dict[str, None] = {}

    def read(self, events: Sequence[Any]) -> None:
        """Read all events; after one that cannot be read, the answer is unknown."""
        for event in events[:_MAX_EVENTS]:
            if type(event) is str:
                self._add_text(event, _Place())
            elif attempt("stream", self._add, event, _Place(), steps=2 * STEPS) is None:
                self._is_readable = False
        self._is_readable = self._is_readable and len(events) <= _MAX_EVENTS

    def answer(self) -> str | None:
        """The answer; None where no event is understood to say it, or the stream broke off."""
        if self.is_broken or not self._is_readable:
            return None
        wholes = [said.text for said in self._texts if said.how == WHOLE and said.text.strip()]
        if wholes:
            return "".join(wholes) if _are_pieces(wholes) else wholes[-1]
        pieces = [(place, said) for place, said in enumerate(self._texts) if said.how <= PLAIN]
        others = [(place, said) for place, said in enumerate(self._texts) if said.how > PLAIN]
        # After plain texts, an object with a text is the result; other events tell their remarks from answers.
        are_texts = all(said.key == "" for _, said in pieces)
        answers = [
            (place, said)
            for place, said in others
            if (said.key in _STRONG or (are_texts and said.key != "message")) and said.text.strip()
        ]
        is_last = bool(answers) and (not pieces or answers[-1][0] > pieces[-1][0] or len(answers) >= len(pieces))
        if pieces and not is_last:
            return _together([said for _, said in pieces])
        return _surest([said for _, said in answers or others])

    def _add(self, value: Any, place: _Place) -> bool:
        # Whether the value is a text, or has one; be it answer or not.
        if value is None or is_a(value, int, float) or place.depth > _MAX_DEPTH:
            return False
        if is_a(value, bytes, bytearray):
            value = bytes(value).decode("utf-8", "replace")
        if is_str(value):
            return self._add_text(str.__str__(value), place)
        return self._add_list(value, place) if is_list(value) else self._add_object(value, place)

    def _add_text(self, text: str, place: _Place) -> bool:
        names, how, key, message, depth = place
        if key in _ENCODED and (value := _value(text)) is not text:
            return self._add(value, _Place(names, how, "data" if is_str(value) else "", message, depth + 1))
        if text.strip() in _LAST:
            return True
        kind = kind_of(names)
        if kind.is_answer is False or (kind.is_end and key not in _STRONG):
            return kind.is_known
        self.is_broken = False
        self._texts.append(_Text(text, how, key, message))
        return True

    def _add_list(self, value: Any, place: _Place) -> bool:
        names, how, key, message, depth = place
        listed = entries(value) or ()
        if len(listed) > 1 and (type(value) is tuple or "messages" in names):
            listed = listed[1:] if type(listed[0]) is tuple else listed  # the names of LangGraph's subgraphs
            head, second = listed[0], listed[-1]
            if is_str(head) and len(listed) > 1 and _KIND.fullmatch(head) and kind_of((head,)).is_known:
                return self._add(listed[1], _Place((*names, str.__str__(head)), how, "data", message, depth + 1))
            is_message = not is_str(head) and not is_list(head)
            if is_message and (len(listed) == 1 or (is_a(second, dict) and dict.get(second, "content") is None)):
                return self._add(head, _Place(names, how, key, message, depth + 1))  # a message and its metadata
        if (field := kind_of(names).field) is not None:
            return self._keep(self._fields_of({field: value}))
        fields = self._fields_of(value)
        self._keep(fields)
        claim = self._text_of(fields.get("claim"))
        return (
            claim is not None
            and claim.strip() != ""
            and self._add_text(claim, _Place(names, max(how, EITHER), "answer", message))
        )

    def _add_object(self, value: Any, place: _Place) -> bool:
        is_dict = is_a(value, dict)
        fields, class_ = held(value), "" if is_dict else class_name(value)
        names = (*place.names, *_kinds(fields))
        names = (*names, class_) if _is_step(class_) else names
        kind, status = kind_of(names), _status(fields)
        self._message += kind.begins
        how = place.how
        if how != WHOLE and (kind.is_piece or class_.endswith(("Chunk", "Delta"))):
            how = PIECE
        elif kind.is_whole or class_ == "AIMessage":
            how = WHOLE
        id_ = first(fields, _GROUPS)
        if id_ is None and (
            "choices" in fields or (names and names[-1] == "AIMessageChunk") or class_.endswith("Chunk")
        ):
            id_ = dict.get(fields, "id")
        message = str.__str__(id_) if is_str(id_) else place.message or self._message
        place = _Place(names, how, place.key, message, place.depth + 1)
        has_fields, strange = self._add_fields(value, fields, kind), self._strange
        if kind.is_failure or (status is not None and kind_of((status,)).is_failure):
            self.is_broken = True
            return True
        if self._add_said(value, fields, place) or (is_dict and self._add_nodes(fields, place)):
            return True
        if not has_fields and _is_error(dict.get(fields, "error")):
            self.is_broken = True
        elif not has_fields and not kind.is_known and strange == self._strange:  # and none inside it is strange
            self._strange += 1
            if len(self.strange) < _MAX_SHOWN:
                shown = [*_kinds(fields), *_names(fields)] or [class_ or "{}"]
                self.strange[", ".join(name for name in shown if _KIND.fullmatch(name))] = None
        return False

    def _add_said(self, value: Any, fields: Fields, place: _Place) -> bool:
        names, how, _, message, depth = place
        if is_list(choices := dict.get(fields, "choices")):
            return self._add_choice(entries(choices) or (), place)
        if is_list(candidates := dict.get(fields, "candidates")) and (listed := entries(candidates)):  # Gemini
            content = dict.get(held(listed[0]), "content")
            return content is not None and self._add_value(content, _Place(names, PIECE, "content", message, depth))
        kind = kind_of(names)
        status = _status(fields)
        for key in _TEXTS:
            found = dict.get(fields, key)
            if found is None or callable(found) or (kind.field is not None and is_list(found)):
                continue
            is_text = is_str(found)
            if (key == "event" and is_text) or (key == "value" and not kind.is_answer):
                continue  # a kind; and too usual a name where no kind says what it is
            if key in _PARTS:
                inner = _Place((), EITHER if kind.is_end else PIECE, key, message, depth)
            else:
                told = names if status is None or key in _STRONG else (*names, status)
                inner = _Place(told, _how(key) if how in (PLAIN, EITHER) else how, key, message, depth)
            if self._add(found, inner) if is_text or key in _EVENTS else self._add_value(found, inner):
                return True
        if kind.is_answer is False or status is not None:
            return False
        if (text := self._text_of(value)) is not None:
            return self._add_text(text, _Place(names, max(how, EITHER), "answer", message, depth))
        named = [name for name in _names(fields) if _says_text(name) and is_str(dict.get(fields, name))]
        how = PIECE if kind.is_piece or any(kind_of((name,)).is_piece for name in named) else max(how, EITHER)
        return len(named) == 1 and self._add(fields[named[0]], _Place(names, how, "text", message, depth))

    def _add_value(self, value: Any, place: _Place) -> bool:
        # A message, a completion, a response: whatever has a text; else what has documents.
        names, how, key, message, depth = place
        if is_list(value):
            text = self._text_of({"messages": value} if key == "messages" else {"role": ASSISTANT, "content": value})
            return text is not None and self._add_text(text, place)
        inner = held(value)
        if dict.get(inner, "special") is True:  # a token that ends the text
            return False
        place = _Place((*names, *_kinds(inner)), how, key, message, depth)
        self._add_fields(value, inner, kind_of(place.names))
        text = self._text_of(value)
        return self._add(value, place) if text is None else self._add_text(text, place)

    def _add_choice(self, choices: Sequence[Any], place: _Place) -> bool:
        names, how, _, message, depth = place
        for choice in map(held, choices):
            if dict.get(choice, "index") not in (None, 0):
                continue
            delta, whole = dict.get(choice, "delta"), dict.get(choice, "message")
            if delta is None and whole is not None:
                self._add_value(whole, _Place(names, WHOLE, "response", message, depth))
                continue
            text = self._text_of(dict.get(choice, "text") if delta is None else delta)
            if text is not None:
                self._add_text(text, _Place(names, min(how, PIECE), "delta", message, depth))
        return True

    def _add_nodes(self, fields: Fields, place: _Place) -> bool:
        # What the nodes of a graph changed; or the key of an event is its kind.
        nodes: Fields = {name: node for name in _names(fields) if is_a(node := dict.get(fields, name), dict)}
        if len(fields) > _MAX_NODES or not _KNOWN.isdisjoint(_names(fields) - nodes.keys()):
            return False
        said = False
        for name, node in nodes.items():
            if not frozenset(normalised(name).split("_")).isdisjoint(_PIECE | _THOUGHTS):
                said = self._add(node, place._replace(names=(*place.names, name))) or said
            elif not _OUTPUTS.isdisjoint(_names(node)):
                said = self._add(node, place._replace(how=WHOLE)) or said
            else:
                self._add_fields(node, node, kind_of(()))
        return said

    def _add_fields(self, value: Any, fields: Fields, kind: EventKind) -> bool:
        names = _names(fields)
        wanted = not (_FIELDS | (_LABELS - self.fields.keys())).isdisjoint(names) or any(
            _is_object(dict.get(fields, key)) for key in _ENVELOPES
        )
        if wanted:
            self._keep(self._fields_of(value))
        for key in _ONE:
            one = dict.get(fields, key)
            if one is not None and not is_str(one):
                self._append(_DOCUMENTS[key], one)
                wanted = True
        if kind.field is None or wanted:
            return wanted
        listed = next((found for key in _LISTS if is_list(found := dict.get(fields, key))), None)
        if listed is not None:
            return self._keep(self._fields_of({kind.field: listed}))
        if not kind.is_one or _EVENTS[0] in names:
            return False
        name = first(fields, ("sourceId", "source_id"))
        self._append(kind.field, value if name is None else {**fields, "id": name})
        return True

    def _append(self, field: str, one: Any) -> None:
        self._ones.setdefault(field, []).append(one)
        self.fields[field] = self._ones[field]

    def _keep(self, found: Fields) -> bool:
        # An empty list says that there are none, unless there were some.
        kept = False
        for field, value in found.items():
            listed = entries(value) if is_list(value) else None
            is_tokens = listed is not None and len(listed) > _TOKENS and type(listed[0]) is int
            if field == "claim" or value is None or is_tokens:
                continue
            kept = True
            if listed is None or listed or field not in self.fields:
                self.fields[field] = value
        return kept


def _names(fields: Fields) -> set[str]:
    # Of another type, a key may run code where it is compared.
    return {name for name in list(dict.keys(fields)) if type(name) is str and len(name) <= _LONGEST_KEY}


def _is_error(value: Any) -> bool:
    return is_a(value, dict) or (is_str(value) and str.__len__(value) > 0)


def _is_object(value: Any) -> bool:
    return value is not None and not is_a(value, str, bytes, int, float) and not is_list(value)


def _how(key: str) -> int:
    if key in _PIECES:
        return PIECE
    if key in _ENCODED:
        return PLAIN
    if key == "messages":
        return WHOLE
    return EITHER


def _value(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return text
    try:
        return _decode(text)
    except (ValueError, RecursionError):
        return text


def _together(pieces: Sequence[_Text]) -> str:
    messages = [said.message for said in pieces if said.text.strip()]
    if 1 < len(set(messages)) < len(messages):  # where each piece has an id of its own, it is no message's
        pieces = [said for said in pieces if said.message == messages[-1]]
    is_plain = all(said.how == PLAIN for said in pieces)
    return _joined([said.text for said in pieces], _FEW_STEPS if is_plain else None)


def _surest(texts: Sequence[_Text]) -> str | None:
    keys = Counter(said.key for said in texts if said.text.strip()).most_common(2)
    if not texts:
        return None
    key = keys[0][0] if keys else texts[-1].key
    if len(keys) == 2 and keys[0][1] == keys[1][1]:
        key = texts[-1].key
        if key not in _STRONG:
            return None
    said = [said for said in texts if said.key == key]
    found = [each.text for each in said]
    # Several sentences with nothing between them are drafts, or states of a graph.
    are_whole = not _are_pieces(found) and not any(text[-1:].isspace() or text[:1].isspace() for text in found)
    return found[-1] if are_whole and said[-1].key in _STRONG else _joined(found, 2)


def _are_pieces(texts: Sequence[str]) -> bool:
    # Pieces begin with spaces, or are single words.
    few = [text for text in texts if text]
    return len(few) > 1 and 2 * sum(text[:1].isspace() or " " not in text for text in few) > len(few)


def _joined(texts: Sequence[str], steps: int | None) -> str:
    # The texts together; or the last one, where each begins with the one before, or it is what the others are together.
    texts = [text for text in texts if text]
    together = "".join(texts)
    if len(texts) < 2:
        return together
    last, before = texts[-1], texts[:-1]
    if steps is not None and len(texts) >= steps and all(map(str.startswith, texts[1:], before)):
        return last if len(last) > len(texts[0]) or " " in last.strip() else together
    is_repeated = " " in last.strip() and len(before) > 1 and "".join(before).strip() == last.strip()
    return last if is_repeated else together
