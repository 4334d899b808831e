"""The answer in what a model or a pipeline gave back, one parser for every reader: its words, citations and documents.

An answer comes in layers, which come off in any order: thoughts of the model, a code fence, JSON or a value of Python,
messages, and an object that names the answer. What is left is the text that is counted.

- Thoughts stand between marks such as `<think>` and `</think>`; the first mark may stand in the prompt, and the last
  one may be cut off. A mark in code, in quotes or inside of a sentence is spoken of, and stays.
- JSON is taken apart where it names the answer (`{"answer": ...}`). Any other JSON, a number, a list is the answer.
- `null`, `NaN`, the representation of an object and the call of a tool are no answers.

The texts are untrusted: the time of every function grows no faster than the length of a text.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import structs

from ragmon.core import shapes
from ragmon.core.citations import split_citations
from ragmon.core.documents import DOCUMENT_FIELDS, unwrapped
from ragmon.core.shapes import ASSISTANT, ROLES, USER, first_of, is_text_kind, normalised
from ragmon.core.written import (
    JSON,
    MAX_TEXT_CHARS,
    as_text,
    cut_off,
    decode,
    decode_container,
    mapping,
    number,
    python_value,
)

# --- messages ---------------------------------------------------------------------------------------------------------

REFUSAL: Final = "refusal"
"""The type of a part of a message that is a refusal, and the member of a message that has its text."""
_MAX_PART_DEPTH: Final = 5
_LIST_DEPTH: Final = 3
"""The maximum depth of nested lists of messages: LangChain writes batches of batches."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message of a role; the role is "" where it is unknown."""

    role: str
    text: str | None
    refused: bool = False


def message(value: Any) -> Message | None:
    """Decode a message: a mapping with a role or LangChain's `type`, its serialised object, or a role and a text."""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str):
        return Message(ROLES.get(value[0], value[0]), text_of(value[1]))
    outer = unwrapped(JSON.fields(value), JSON) if isinstance(value, Mapping) else {}
    if isinstance(outer.get("message"), Mapping):  # a choice of OpenAI's
        outer = JSON.fields(outer["message"])
    inner = mapping(outer.get("data")) or outer
    role = next((role for key in shapes.ROLE_KEYS if isinstance(role := outer.get(key), str)), None)
    if role is None or inner.keys().isdisjoint(shapes.CONTENT_KEYS):
        return None
    content = next((inner[key] for key in shapes.CONTENT_KEYS if inner.get(key) is not None), None)
    refused = isinstance(content, list) and any(
        isinstance(part, Mapping) and part.get("type") == REFUSAL for part in content
    )
    if content in (None, "") and isinstance(inner.get(REFUSAL), str):  # of OpenAI's chat completions
        content, refused = inner[REFUSAL], True
    return Message(ROLES.get(role, role), text_of(content), refused)


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


def last(messages: Sequence[Message], *roles: str) -> str | None:
    """The text of the last message of one of the roles that has a text."""
    return next((entry.text for entry in reversed(messages) if entry.role in roles and entry.text is not None), None)


def reply_in(
    messages: Sequence[Message], roles: Sequence[str], reasoning: Sequence[str] = (), depth: int = _LIST_DEPTH
) -> Reply | None:
    """The answer in the last message of one of the roles that has a text."""
    said = next((entry for entry in reversed(messages) if entry.role in roles and entry.text is not None), None)
    reply = None if said is None or said.text is None else parse(said.text, reasoning, depth)
    return structs.replace(reply, refused=True) if reply is not None and said is not None and said.refused else reply


def text_of(value: Any, depth: int = _MAX_PART_DEPTH) -> str | None:
    """The text of a message's content: a text, a number as text, or the texts of its parts."""
    if isinstance(value, str):
        return as_text(value)
    if isinstance(value, bool) or not depth:
        return None
    if isinstance(value, int | float):
        return str(value) if number(value) is not None else None
    if isinstance(value, list | tuple):
        texts = [text for part in value if (text := text_of(part, depth - 1)) is not None]
        return "".join(texts) if texts else None
    if isinstance(value, Mapping) and is_text_kind(str(value.get("type"))):
        return first_of(value, shapes.PART_TEXT_KEYS, lambda member: text_of(member, depth - 1))
    return None


# --- thoughts ---------------------------------------------------------------------------------------------------------

REASONING: Final = (
    *("think", "thinking", "thought", "thoughts", "thought_process", "reasoning", "reason", "rationale", "analysis"),
    *("reflection", "scratchpad", "inner_monologue", "inner_thoughts", "chain_of_thought", "cot", "antthinking"),
)
"""What models call their thoughts, between `<` and `>`, `[` and `]`, `◁` and `▷`, or `<|` and `|>`."""
_ENDS: Final = ("/", "end_", "end_of_")
_CODE: Final = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_QUOTES: Final = frozenset("\"'`“”„‘’«»()*")
# What follows a mark that a sentence speaks of: "the tags <think> and </think> are ...".
_SPOKEN_OF: Final = re.compile(
    r"[ \t]*[|,.;:?!)]|[ \t]+(?:and|or|tags?|tokens?|markers?|marks?|blocks?|elements?|is|are|was|were|to|for|with|as"
    r"|after|before|which|that|ends?|closes?|stands?|comes?|means?|und|oder|et|ou)\b"
)
_OPENING_SPOKEN_OF: Final = re.compile(
    r"[ \t]*[,:;|)]|[ \t]+(?:and|or|is|are|tags?|tokens?|markers?|marks?|blocks?|elements?|opens?|starts?|means?)\b"
)
_CHANNEL: Final = "<|channel|>"
_FINAL: Final = "<|channel|>final"
_CHANNEL_END: Final = re.compile(r"<\|(?:return|end|call|start|channel)\|>")
_DETAILS: Final = re.compile(r"<details\b[^<>]{0,200}\btype=[\"']reasoning[\"'][^<>]{0,200}>.*?</details>", re.DOTALL)
"""Of chat pages, which fold thoughts."""
_ALOUD: Final = {
    "analysis": "assistantfinal",  # the channels of gpt-oss where a server has taken the marks off
    "Thought:": "Final Answer:",  # ReAct
    "Here is my thought process:": "Here is my response:",
    "Here's my thought process:": "Here's my response:",
}
"""How a text that begins with a thought goes on with the answer."""
_ALOUD_STARTS: Final = tuple(_ALOUD)
_SAID: Final = "answer|final_answer|final|response|final_response|output|solution|result"
_ANSWER_TAG: Final = re.compile(rf"<(?:\|(?:start|begin)_(?:of_)?(?:{_SAID})\||(?:{_SAID}))>", re.IGNORECASE)
_ANSWER_END: Final = re.compile(rf"<(?:\|end_(?:of_)?(?:{_SAID})\||/(?:{_SAID}))>\s*\Z", re.IGNORECASE)
_LONGEST_END: Final = 40


@lru_cache(maxsize=64)
def _marks(more: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join(map(re.escape, sorted({*REASONING, *more}, key=len, reverse=True)))
    return re.compile(
        rf"(?:<|&lt;)(/?)(?:[a-z]{{1,12}}:)?({names})(?:\s[^<>\n]{{0,80}})?(?:>|&gt;)"
        rf"|\[(/?)({names})\]|◁(/?)({names})▷|<\|(/|begin_of_|end_of_|start_|end_|)({names})\|>",
        re.IGNORECASE,
    )


def without_reasoning(text: str, reasoning: Sequence[str] = ()) -> str:
    """A text without the thoughts of the model in it; one without thoughts as it is.

    `reasoning` are names of thoughts beside the usual ones.

    >>> without_reasoning("<think>[2] does not help.</think> At nine [1]."), without_reasoning("So.</think>At nine.")
    ('At nine [1].', 'At nine.')
    >>> without_reasoning("Models think between <think> and </think>.")
    'Models think between <think> and </think>.'
    """
    if _CHANNEL in text:
        return _final_channel(text)
    for opening, closing in _ALOUD.items() if text.startswith(_ALOUD_STARTS) else ():
        if text.startswith(opening) and closing in text:
            return text.rpartition(closing)[2].strip()
    while (details := _DETAILS.match(text)) is not None:
        text = text[details.end() :].strip()
    marks = list(_marks(tuple(reasoning)).finditer(text))
    if not marks:
        return text
    code = [found.span() for found in _CODE.finditer(text)] if "`" in text else []
    names = [next(filter(None, mark.group(2, 4, 6, 8))).lower() for mark in marks]
    is_end = ["".join(filter(None, mark.group(1, 3, 5, 7))).lower() in _ENDS for mark in marks]
    last_end = {name: place for place, name in enumerate(names) if is_end[place]}
    last_of_all = max(last_end.values(), default=-1)
    length = len(text.rstrip())
    said: list[str] = []
    begin, opened, ends_by_any, changed, spoken_of = 0, "", False, False, -1
    for place, mark in enumerate(marks):
        (start, end), name = mark.span(), names[place]
        if opened:
            if is_end[place] and (ends_by_any or name == opened):
                begin, opened = end, ""
        elif is_end[place]:
            is_pair = spoken_of >= 0 and "\n" not in text[spoken_of:start]
            spoken_of = -1
            if is_pair or _SPOKEN_OF.match(text, end) or _is_quoted(text, start, end, code):
                continue
            # Left over at the end; else the first mark stood in the prompt, and what is before it is a thought.
            said = [*said, text[begin:start]] if changed and end >= length else []
            begin, changed = end, True
        else:
            before = text[max(0, start - 2) : start]
            is_in_sentence = before[-1:] in (" ", "\t") and (before[:1].isalnum() or before[:1] in (",", ":"))
            if is_in_sentence or _OPENING_SPOKEN_OF.match(text, end) or _is_quoted(text, start, end, code):
                spoken_of = start
            elif not (mark[4] and last_of_all <= place and name != "think"):  # `[Analysis]` is a heading
                said.append(text[begin:start])
                opened, ends_by_any, changed = name, last_end.get(name, -1) <= place < last_of_all, True
    if not changed:
        return text
    return "".join([*said, "" if opened else text[begin:]]).strip()


def _is_quoted(text: str, start: int, end: int, code: Sequence[tuple[int, int]]) -> bool:
    # In code, or in quotes.
    place = bisect_left(code, (start,)) - 1
    if place >= 0 and end <= code[place][1]:
        return True
    return start > 0 and text[start - 1] in _QUOTES and text[end : end + 1] in _QUOTES


def _final_channel(text: str) -> str:
    # Of the format of gpt-oss, what was said in its last channel `final`; nothing where it did not come to that.
    start = text.rfind(_FINAL)
    if start >= 0 and text[start - 1 : start] != "`":
        return _CHANNEL_END.split(text[start:].partition("<|message|>")[2], 1)[0].strip()
    return "" if text.lstrip().startswith("<|") else text


def _untagged(text: str) -> str:
    # What a model says between tags, mostly behind its thoughts: `<answer>At nine.</answer>`.
    tag = _ANSWER_TAG.match(text)
    if tag is None:
        return text
    inner, closing, rest = text[tag.end() :].partition(f"</{tag[0][1:]}")
    if closing and rest.lstrip()[:1] == "<":  # other parts of the same form: `<sources>...</sources>`
        return inner.strip()
    inner += closing + rest
    end = _ANSWER_END.search(inner, max(0, len(inner) - _LONGEST_END))
    return (inner if end is None else inner[: end.start()]).strip()


# --- answers ----------------------------------------------------------------------------------------------------------

_DEPTH: Final = 6
_FENCE: Final = "```"
_LANGUAGE: Final = re.compile(r"[ \t]*+([A-Za-z0-9_+-]{0,20})[ \t]*+(?:\n|(?=[{\[])|\Z)")
_JSON_FENCES: Final = frozenset({"", "json", "json5", "jsonc", "javascript", "python"})
_TEXT_FENCES: Final = frozenset({"", "text", "txt", "plaintext", "markdown", "md"})
_AROUND: Final = 200
"""Characters of talk before JSON and behind it; beside more text JSON is an example."""
_NO_ANSWERS: Final = frozenset(
    ("null", "NULL", "NaN", "nan", "NaT", "<NA>", "undefined", '""', "''", "{}", "[]", "[null]", "[None]")
)
_SHORT: Final = max(map(len, _NO_ANSWERS))
_read_json: Final = json.JSONDecoder().raw_decode
_WRITTEN: Final = frozenset("{[\"'")
OPENINGS: Final = frozenset("[{\"'(<`◁ \n\t\r")
"""What an answer begins with that may be wrapped in something."""
_CLOSINGS: Final = frozenset("}\"')")
_REPR: Final = re.compile(
    r"\[?<[^<>\n]{1,300} at 0x[0-9a-fA-F]+[^<>\n]{0,100}>.*|<(?:async_)?generator object\b.*>"
    r"|\[?[A-Z]\w*\(\s*+[a-zA-Z_]\w*=.*(?:\)\]?|\.\.\.)|\{'\w{1,40}': \[?[A-Z]\w*\(\s*+[a-zA-Z_]\w*=.*\}"
    r"|content=['\"].*['\"] additional_kwargs=\{.*",
    re.DOTALL,
)
"""Python's representation of an object in place of its text: a stream that has not been read, Haystack's messages,
LangChain's, the results of agents, Pydantic AI's streams; LlamaIndex's instrumentation cuts it off."""
_FIELDS: Final = re.compile(r"[a-z_]{2,40}=(?:['\"]|None )[^\n]{0,400}? [a-z_]{2,40}=.*", re.DOTALL)
"""The fields of an object of Pydantic, which shows no class: AutoGen's messages."""
_OF_ASSISTANT: Final = re.compile(r"ChatMessage\(_?role=<\w+\.ASSISTANT\b")
_TEXT_OF_MESSAGE: Final = re.compile(r"\btext=('(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\")", re.DOTALL)
"""The messages of Haystack and LlamaIndex, and the texts in them."""
_TOOL_CALL: Final = re.compile(
    r"tool_calls=|\[TOOL_CALLS\]|<tool_call|<function_calls?>|<function=|<invoke |<\|python_tag\|>|<\|tool_call"
    r"|<｜tool|functools\["
)
_CALLS: Final = frozenset({"tool_calls", "function_call"})
_ARGUMENTS: Final = frozenset({"arguments", "args", "parameters", "input", "tool_input"})
_OF_TOOL_CALLS: Final = _ARGUMENTS | {"name", "id", "type", "call_id", "tool_call_id", "status", "index", "function"}
_NAMED: Final = ("claim", "structured_response", "final_result", "final_answer", "answer", "answer_text")
"""Keys that name an answer whatever stands beside them."""
_MAYBE_NAMED: Final = frozenset((*shapes.ANSWER_KEYS, *shapes.ALTERNATIVES, "messages", "raw"))
"""Keys that name one where nothing strange stands beside them: `{"text": ..., "page": 3}` may be what was asked for."""
_BESIDE: Final = _MAYBE_NAMED | {
    *(*shapes.CITATION_LIST_KEYS, *DOCUMENT_FIELDS, *shapes.ID_LIST_KEYS, *REASONING, "explanation", "quotes"),
    *("question", "query", "input", "metadata", "usage", "confidence", "score", "confidence_score", "finish_reason"),
    *("model", "id", "object", "type", "role", "created", "created_at", "status", "language", "lang", "session_id"),
    *("refused", "is_refusal", "abstained", "answerable", "is_answerable", "error", "history", "chat_history"),
}
REFUSES: Final = {
    **dict.fromkeys(("refused", "is_refusal", "refusal", "abstained"), True),
    **dict.fromkeys(("answerable", "is_answerable", "can_answer"), False),
}
"""What an answer says of itself, where it is a refusal."""


class Reply(msgspec.Struct, frozen=True, gc=False):
    """An answer: its text, its citations and documents as they are written, and whether it says that it refuses."""

    claim: str | None
    citations: Any = None
    documents: Any = None
    refused: bool = False


def is_representation(text: str) -> bool:
    """Whether a text is an object as Python shows it, in place of what the object says.

    >>> is_representation("id='m1' source='user' content='Is it?'"), is_representation("x = 1 and y = 2")
    (True, False)
    """
    return bool(_REPR.fullmatch(text) or _FIELDS.fullmatch(text))


def is_plain(text: str) -> bool:
    """Whether a text is surely an answer as it stands, as most are; takes no time."""
    first = text[:1]
    return (
        "<" not in text
        and "`" not in text
        and ("[" not in text or not (":" in text or "=[" in text or "[/" in text or "[THINK]" in text))
        and first not in OPENINGS
        and text[-1:] not in _CLOSINGS
        and ("&" not in text or "&lt;" not in text)
        and (text.isascii() or "◁" not in text)
        and not text.startswith(_ALOUD_STARTS)
        and (len(text) > _SHORT or text.strip() not in _NO_ANSWERS)
    )


def parse(text: str, reasoning: Sequence[str] = (), depth: int = _DEPTH) -> Reply | None:
    """The answer in a text of a model or a pipeline; None where the text is no answer.

    >>> parse('{"claim": "X is 1", "citations": ["d1", 2]}')
    Reply(claim='X is 1', citations=['d1', 2], documents=None, refused=False)
    >>> parse("<think>Hm.</think>X is 1").claim, parse('{"x": 1}').claim, parse("null")
    ('X is 1', '{"x": 1}', None)
    """
    if is_plain(text):
        return Reply(text)
    bare = text.strip()
    if bare in _NO_ANSWERS or _TOOL_CALL.match(bare):
        return None
    if not depth:
        return Reply(text)
    value = _value(bare)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping) and _names_answer(value[0]):
        (value,) = value
    if isinstance(value, str):
        # A quotation may be the answer; what is escaped, or wrapped once more, was written by a program.
        if "\\" in bare or value.lstrip()[:1] in _WRITTEN:
            return parse(value, reasoning, depth - 1)
        value = None
    if value is not None and _is_tool_call(value):
        return None
    if value is not None:
        found = read(value, reasoning, depth) if _names_answer(value) else None
        named = [value[name] for name in _NAMED if name in value] if isinstance(value, Mapping) else []
        says_nothing = bool(named) and not isinstance(named[0], Mapping)
        return found or (Reply(None) if says_nothing else None if is_representation(bare) else Reply(text))
    spoken = _untagged(without_reasoning(bare, reasoning))
    if spoken != bare:
        return parse(spoken, reasoning, depth - 1)
    if (found := _amid_talk(bare, reasoning, depth)) is not None:
        return found
    if is_representation(bare):
        texts = _TEXT_OF_MESSAGE.findall(bare) if _OF_ASSISTANT.match(bare) else []
        said = "".join(text for written in texts for text in python_value(f"[{written}]") or ())
        return parse(said, reasoning, depth - 1) if said else None
    return Reply(text) if "[" not in text else Reply(*split_citations(text))


def _value(bare: str) -> Any:
    # What a whole text writes: a text, a list or an object, in JSON or as Python shows it.
    if bare[:1] not in _WRITTEN:
        return None
    value = decode(bare)
    if value is None and bare[0] != '"' and bare[-1] in "]}'":
        value = python_value(bare)
    return value


def _amid_talk(bare: str, reasoning: Sequence[str], depth: int) -> Reply | None:
    # An answer in JSON with some words around it, or in a fence; a text that a fence alone is around.
    if _FENCE in bare:
        parts = bare.split(_FENCE)
        talk = sum(map(len, parts[::2]))
        for block in parts[1::2] if talk <= 2 * _AROUND else ():
            head = _LANGUAGE.match(block)
            language, body = ("", block) if head is None else (head[1].lower(), block[head.end() :].strip())
            if language in _JSON_FENCES and (found := _named_in(_value(body), reasoning, depth)) is not None:
                return found
            if language in _TEXT_FENCES and not talk and len(parts) == 3:
                return parse(body, reasoning, depth - 1)
        return None
    start = bare.find("{", 0, _AROUND)
    if start < 0 or bare.find("}", -_AROUND - 1) < 0 or len(bare) > MAX_TEXT_CHARS:
        return None
    try:
        value, end = _read_json(bare, start)
    except (ValueError, RecursionError):
        return None
    return _named_in(value, reasoning, depth) if len(bare) - end <= _AROUND else None


def _named_in(value: Any, reasoning: Sequence[str], depth: int) -> Reply | None:
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    is_named = isinstance(value, Mapping) and not set(_NAMED).isdisjoint(value)
    return read(value, reasoning, depth - 1) if is_named else None


def _is_tool_call(value: Any) -> bool:
    # The call of a tool, or some of them.
    if isinstance(value, list):
        return bool(value) and all(map(_is_tool_call, value[:_AROUND]))
    if not isinstance(value, Mapping):
        return False
    if not is_text_kind(str(value.get("type"))) or (not value.get("content") and not _CALLS.isdisjoint(value)):
        return True
    function = value.get("function")
    inner = function if isinstance(function, Mapping) else value
    given = next((inner[name] for name in _ARGUMENTS if name in inner), None)
    is_given = isinstance(given, Mapping) or (isinstance(given, str) and given[:1] == "{")
    return isinstance(inner.get("name"), str) and is_given and value.keys() <= _OF_TOOL_CALLS


def _are_parts(value: list[Any]) -> bool:
    # The parts of a message's content.
    return all(isinstance(part, Mapping) and part.get("type") in shapes.TEXT_PARTS for part in value)


def _names_answer(value: Any) -> bool:
    # Whether JSON that a model wrote says which of its parts is the answer, and so is not the answer itself.
    if isinstance(value, list):
        return last(messages(value), ASSISTANT) is not None or _are_parts(value)
    if not isinstance(value, Mapping):
        return False
    names = set(map(normalised, islice(map(str, value), _AROUND)))
    return not names.isdisjoint(_NAMED) or (not names.isdisjoint(_MAYBE_NAMED) and names <= _BESIDE)


def cited_in(reply: Any) -> list[Any] | None:
    """The citations beside the parts of a reply of a model's API, which may be written as JSON; None without."""
    may_cite = not isinstance(reply, str) or any(f'{key}"' in reply for key in shapes.CITATION_LISTS)
    return shapes.citations_in(decode_container(reply)) if may_cite else None


def read(value: Any, reasoning: Sequence[str] = (), depth: int = _DEPTH) -> Reply | None:
    """The answer in an output: the value itself, or a member under one of the keys that frameworks use."""
    found = _read(value, reasoning, depth)
    return found if found is None or found.citations is not None else structs.replace(found, citations=cited_in(value))


def _read(value: Any, reasoning: Sequence[str], depth: int) -> Reply | None:
    output = decode_container(value)
    if isinstance(output, str) and output.startswith("[{"):  # objects as Python shows them: what a tool returned
        output = python_value(output) or output
    if isinstance(output, str):
        text = None if cut_off(output) else as_text(output)
    elif isinstance(output, list):
        reply = reply_in(messages(output), (ASSISTANT,), reasoning, depth - 1) if depth else None
        text = text_of(output) if reply is None and _are_parts(output) else None
        if text is None:
            return reply
    else:
        text = text_of(output) if isinstance(output, int | float) else None
    if text is not None:
        return parse(text, reasoning, depth)
    if not isinstance(output, Mapping) or not depth:
        return None
    said = message(output)
    if said is not None and said.role in (ASSISTANT, USER, *shapes.OTHER_ROLES) and "claim" not in output:
        return reply_in([said], (ASSISTANT,), reasoning, depth - 1)
    return _of_object(output, reasoning, depth)


def _are_objects(entries: Any) -> bool:
    """Whether a list holds Python's representations of objects, which name no document: LlamaIndex's `sources`."""
    return (
        isinstance(entries, list)
        and bool(entries)
        and all(isinstance(e, str) and is_representation(e) for e in entries)
    )


def _of_object(output: Mapping[str, Any], reasoning: Sequence[str], depth: int) -> Reply | None:
    fields = {normalised(str(name)): member for name, member in islice(output.items(), _AROUND)}
    found, is_named = None, False
    for name in _NAMED:
        if name in fields:
            is_named = is_named or name == "claim"
            if (found := _of_member(fields[name], reasoning, depth)) is not None or name == "claim":
                break
    if found is None and not is_named:
        found = _first((fields[name] for name in (*shapes.ANSWER_KEYS, "raw") if name in fields), reasoning, depth)
    listed = (fields.get(name) for name in shapes.CITATION_LIST_KEYS)
    citations = next((entries for entries in listed if entries is not None and not _are_objects(entries)), None)
    refused = any(fields.get(name) is says for name, says in REFUSES.items())
    if found is None and (is_named or refused or (citations is not None and not fields.keys().isdisjoint(_NAMED))):
        found = Reply(None)
    if found is not None:
        documents = (fields.get(name) for name in (*DOCUMENT_FIELDS, *shapes.ID_LIST_KEYS))
        return Reply(
            found.claim,
            citations if found.citations is None else found.citations,
            next(filter(_is_list, documents), None) if found.documents is None else found.documents,
            found.refused or refused,
        )
    alternatives: list[Any] = next(
        (fields[name] for name in shapes.ALTERNATIVES if isinstance(fields.get(name), list)), []
    )
    while alternatives and isinstance(alternatives[0], list):
        alternatives = alternatives[0]
    found = _first([*alternatives[:1], fields.get("messages")], reasoning, depth)
    if found is not None:
        return found
    # Haystack's pipelines return the output of each component.
    components = (
        value for value in output.values() if isinstance(value, Mapping) and set(value) & {*shapes.ALTERNATIVES}
    )
    return _first(components, reasoning, depth)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _of_member(value: Any, reasoning: Sequence[str], depth: int) -> Reply | None:
    # Of a key that names the answer: an object in it that names none is the answer.
    if isinstance(value, list):
        text = last(messages(value), ASSISTANT) or text_of(value)
        return None if text is None else parse(text, reasoning, depth - 1)
    found = _read(value, reasoning, depth - 1)
    if found is None and isinstance(value, Mapping) and value and depth > 1 and not _names_answer(value):
        return Reply(json.dumps(value, ensure_ascii=False))
    return found


def _first(values: Iterable[Any], reasoning: Sequence[str], depth: int) -> Reply | None:
    return next((found for value in values if (found := _read(value, reasoning, depth - 1)) is not None), None)
