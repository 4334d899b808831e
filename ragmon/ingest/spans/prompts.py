"""The question in a prompt: applications write it between instructions and the documents that they retrieved."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

_QUESTION, _DOCUMENTS, _OTHER = "question", "documents", "other"
_WORDS: Final = {
    _QUESTION: (
        *("question", "questions", "query", "user question", "user query", "user input", "user message", "q"),
        *("user request", "the question", "current question", "new question", "original question"),
        *("final question", "search query", "follow up input", "current task", "new task"),
        *("user", "human", "customer", "customer question"),
        *("frage", "benutzerfrage", "pregunta", "pergunta", "domanda", "vraag", "fråga", "pytanie", "вопрос"),
        *("问题", "用户问题", "問題", "質問", "질문"),
    ),
    _DOCUMENTS: (
        *("context", "contexts", "context information", "the context", "document", "documents", "source"),
        *("sources", "passage", "passages", "chunk", "chunks", "excerpts", "snippets", "references", "results"),
        *("search results", "retrieved documents", "retrieved context", "relevant documents", "knowledge"),
        *("knowledge base", "kontext", "dokumente", "quellen", "contexte", "contexto", "contesto"),
        *("上下文", "参考资料", "文書", "문맥"),
    ),
    _OTHER: (
        *("answer", "helpful answer", "final answer", "your answer", "response", "assistant", "ai", "output", "a"),
        *("thought", "action", "observation", "instructions", "instruction", "rules", "note", "system"),
        *("history", "chat history", "conversation", "conversation history", "previous conversation"),
        *("antwort", "réponse", "respuesta", "risposta", "resposta", "回答", "答案", "답변"),
    ),
}
_LABELS: Final = {words: label for label, labels in _WORDS.items() for words in labels}
"""What stands under a label, by its words."""
_TAG: Final = re.compile(r"</?(?P<name>[a-z_]{1,32})>", re.IGNORECASE)
_ORNAMENT: Final = "#*_-=>`~ \t"
"""What stands around a label: the signs of headings, of emphasis and of rules."""
_NUMBERED: Final = re.compile(
    r"\W{0,3}(?:[\[({]\d{1,3}[\])}]|(?:document|doc|source|passage|chunk|result)\W{0,2}\d{1,3}\b)", re.IGNORECASE
)
_SHOWN: Final = re.compile(r"\A['\"][^\n]{0,2000}[\])}>](?=\s)")
"""The end of documents as Python shows them, behind the text of the last one."""
_QUOTED: Final = re.compile(r'"[^"]+"')
_LETTER: Final = re.compile(r"[^\W\d]")
_LONGEST_LABEL: Final = 40
_QUESTION_MARKS: Final = ("?", "？", "؟")


class _Line(NamedTuple):
    # The text after a label, or the whole line where it has none.
    label: str
    text: str


def _labelled(line: str) -> _Line:
    plain = line.strip(_ORNAMENT).removeprefix("[[").removesuffix("]]").strip(_ORNAMENT)
    places = [place for sign in ":：" if 0 < (place := plain.find(sign)) <= _LONGEST_LABEL]
    is_heading = not places and line.lstrip().startswith(("#", "**", "[["))
    place = len(plain) if is_heading else min(places, default=0)
    words = " ".join(plain[:place].strip(_ORNAMENT).casefold().split())
    label = _LABELS.get(words, "")
    told = plain[place + 1 :].strip(_ORNAMENT)
    return _Line(label, (told[1:-1] if _QUOTED.fullmatch(told) else told) if label else line.strip())


def question_in_prompt(prompt: str, texts: Iterable[str] = ()) -> str | None:
    r"""The question in a prompt; None where it holds more than a question, and which part that is cannot be told.

    The question stands under a label or in a tag, or it is all that remains beside the documents.

    Args:
        prompt: What a model was asked.
        texts: The texts of the documents that the request retrieved.

    >>> question_in_prompt("Context:\n[1] Seven marks.\n\nQuestion: What is the fare?\nAnswer:")
    'What is the fare?'
    >>> question_in_prompt("What is the fare?")
    'What is the fare?'
    >>> question_in_prompt("Context: seven marks\nBe brief.\nWhat is it?\nWhy?") is None
    True
    """
    if (tagged := _in_tag(prompt)) is not None:
        return tagged
    parts = _around(prompt, texts)
    lines = [_labelled(line) for line in "\n".join(parts).splitlines()]
    asked = [place for place, line in enumerate(lines) if line.label == _QUESTION]
    if asked:
        return _under_label(lines, asked)
    if len(parts) == 1:
        return None if _holds_documents(prompt, lines) else prompt
    beside = [_said_in(part) for part in (_SHOWN.sub("", parts[-1]), parts[0])]
    questions = [[text for text in said if text.endswith(_QUESTION_MARKS)] for said in beside]
    candidates = questions if any(questions) else beside
    said = candidates[0] or candidates[1]
    return said[0] if len(said) == 1 else None


def _said_in(part: str) -> list[str]:
    """The lines of a part of a prompt that have words, and no label."""
    lines = map(_labelled, part.splitlines())
    return [
        line.text for line in lines if not line.label and _LETTER.search(line.text) and not _TAG.fullmatch(line.text)
    ]


def _label(tag: re.Match[str]) -> str:
    return _LABELS.get(tag["name"].replace("_", " ").casefold(), "")


def _in_tag(prompt: str) -> str | None:
    found = None
    for opened, closed in pairwise(_TAG.finditer(prompt)):
        if _label(opened) == _QUESTION and closed[0].casefold() == f"</{opened['name'].casefold()}>":
            found = prompt[opened.end() : closed.start()].strip() or found
    return found


def _around(prompt: str, texts: Iterable[str]) -> list[str]:
    """The parts of a prompt before, between and after the documents in it; the prompt alone where none is in it."""
    places: list[tuple[int, int]] = []
    for text in {stripped for text in texts if (stripped := text.strip()) and len(stripped) <= len(prompt)}:
        for written in (text, json.dumps(text)[1:-1]):
            place = prompt.find(written)
            if place >= 0:
                places.append((place, place + len(written)))
                break
    parts, end = [], 0
    for start, stop in sorted(places):
        if start >= end:
            parts.append(prompt[end:start])
        end = max(end, stop)
    return [*parts, prompt[end:]]


def _under_label(lines: Sequence[_Line], asked: Sequence[int]) -> str | None:
    """The only text under a label of a question that no answer follows, as in examples and in documents."""
    unanswered = set()
    for start in asked:
        said, place = [lines[start].text], start + 1
        while place < len(lines) and not lines[place].label and not said[-1].endswith(_QUESTION_MARKS):
            if not lines[place].text and any(said):
                break
            said.append(lines[place].text)
            place += 1
        rest = lines[place:]
        if not (rest and rest[0].label == _OTHER and rest[0].text):
            unanswered.add("\n".join(filter(None, said)))
    return unanswered.pop() or None if len(unanswered) == 1 else None


def _holds_documents(prompt: str, lines: Sequence[_Line]) -> bool:
    labels = {*(line.label for line in lines), *map(_label, _TAG.finditer(prompt))}
    texts = [line.text for line in lines if line.text]
    return _DOCUMENTS in labels or (len(texts) > 1 and any(map(_NUMBERED.match, texts)))
