"""Detection of refusals: the exact token, and other wordings by expressions in 29 languages (refusals.toml).

What wraps an answer comes off first: thoughts, JSON, fences (`core/answers.py`), quotes, a label, an interjection. An
answer is a refusal in other words where an opening stands in its first characters, no answer stands before the opening,
and none follows it after a turn ("However, as of 2021 ..."). After "No," only what the speaker says of themselves is a
refusal: "No, the files do not contain personal data" is an answer.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import islice, pairwise
from typing import Any, Final

from ragmon.core.answers import OPENINGS, parse
from ragmon.core.constants import REFUSAL_TOKEN
from ragmon.core.errors import warn_once
from ragmon.core.text import fold, fold_lines

REACH: Final = 160
"""Characters behind an opening in which an answer may follow."""
TOKEN, WORDING, POLICY = "token", "wording", "policy"
"""How an answer refuses: by the exact token, in other words, because a policy forbids the answer."""
MATCH_SECONDS: Final = 0.1
"""CPU time of the process in which a pattern of a user is searched in one answer; usual patterns take microseconds."""
_MAX_OPENINGS: Final = 8  # looked at in a text, so that the time grows no faster than the text
_QUOTES: Final = frozenset("\"'\u201c\u201e\u2018\u201a\u00ab\u300c\u300e")
_SENTENCE_ENDS: Final = (". ", "! ", "? ", "] ", ": ", "\n", "\u3002", "!", "?", "\u061f", "\u0964")
_TO_WORDS: Final = bytes(ord(chr(byte).lower()) if chr(byte).isalnum() else 32 for byte in range(128)) + bytes(128)
_NO_WORD: Final = re.compile(r"[\W_]")
_FRAGMENT: Final = re.compile(r"\{([a-z_]+)\}")

_LABEL: Final = re.compile(
    r"(?:(?:(?:the|my|final|short) )?(?:answer|response|reply|output|result)|a|assistant|ai|bot|chatbot|model|system"
    r"|antwort|réponse|respuesta|resposta|risposta|antwoord|odpowiedź|svar|vastaus|odpověď|odpoveď|válasz|răspuns|cevap"
    r"|yanit|ответ|відповідь|απάντηση|jawaban|jawapan|trả lời|câu trả lời|תשובה|الإجابة|الجواب|إجابة|उत्तर|जवाब|คําตอบ"
    r"|回答|答え|答案|答|답변|답) ?:\s*(?=\S)"
)
_INTERJECTION: Final = re.compile(
    r"(?:h{1,9}m{1,9}|u{1,9}(?:h{1,9}m{0,9}|m{1,9})|[ao]{1,9}h{1,9}|oops|well|okay|ok|alas|ähm?|naja|bueno|euh"
    r"|えっと|うーん|嗯|음)[,.!;:、。… ]{1,9}(?=\w)"
)
_PAIRS: Final = {'"': '"', "'": "'", "(": ")", "[": "]", "<": ">"}
_LAYERS: Final = 6  # of wrapping that come off

_HEAD: Final = 3  # first letters of a word by which openings are chosen
_AT_START: Final = "^"
_NEVER: Final = "(?!)"  # what a language does not have
_TRIAL: Final = 1000  # characters of the texts on which a pattern of a user is tried
_MAX_TRIED: Final = 32  # repeated parts that are tried


class Language:
    """The wordings of a language, or of a policy in it; expressions are compiled when a text first needs them."""

    def __init__(self, code: str, wordings: Mapping[str, Any]) -> None:
        fragments: dict[str, str] = {}

        def expand(expression: str) -> str:
            return _FRAGMENT.sub(lambda name: fragments[name[1]], expression.replace("\n", ""))

        for name, expression in wordings["fragments"].items():
            fragments[name] = expand(expression)
        self.code, _, policy = code.partition("-")
        self.kind = POLICY if policy else WORDING
        self.is_spaced: bool = wordings.get("is_spaced", True)
        self.triggers: list[str] = wordings["triggers"].split()
        self.openings: list[tuple[list[str], str]] = []
        """The heads of the words that an opening may start with, and its expression."""
        for opening in map(expand, wordings["openings"]):
            heads, _, expression = opening.partition(": ") if self.is_spaced else ("", "", opening)
            self.openings.append((heads.split(), expression))
        self.heads = frozenset(head for heads, _ in self.openings for head in heads)
        names = ("preambles", "turns", "unless", "hedges", "particles", "speaker")
        self._expressions = {name: expand(wordings.get(name, _NEVER)) for name in names}
        self._compiled: dict[str, re.Pattern[str]] = {}

    def matcher(self, name: str) -> re.Pattern[str]:
        """The compiled expression of a key such as `preambles`."""
        if (compiled := self._compiled.get(name)) is None:
            expression = self._expressions[name]
            compiled = re.compile(rf"\W*(?:{expression})" if name == "preambles" else expression)
            self._compiled[name] = compiled
        return compiled

    def opening(self, head: str = "") -> re.Pattern[str]:
        """The openings whose first word starts with a head; all openings where no spaces part the words."""
        if (compiled := self._compiled.get(head)) is None:
            found = (expression for heads, expression in self.openings if head in heads or not self.is_spaced)
            any_of = "|".join(f"(?:{expression})" for expression in found) or _NEVER
            compiled = self._compiled[head] = re.compile(rf"\b(?=\w)(?:{any_of})" if self.is_spaced else any_of)
        return compiled

    def find_openings(self, start: str, window: int, spaced: str, words: Sequence[str]) -> Iterator[re.Match[str]]:
        """The openings in the window of a text that do not overlap, from left to right."""
        position, candidates = -1, [(0, _AT_START)]
        for word in words:
            if (head := word[:_HEAD]) in self.heads:
                position = spaced.index(f" {word} ", position + 1)
                candidates.append((position, head))
        end = 0
        for position, head in candidates:
            if position >= end and (opening := self.opening(head).match(start, position, window)) is not None:
                end = opening.end()
                yield opening

    def refuses(self, openings: Iterable[re.Match[str]], start: str) -> bool:
        """Whether one of the openings of a text stands without an answer before or behind it."""
        for opening in islice(openings, _MAX_OPENINGS):
            preambles, turns, unless, hedges = map(self.matcher, ("preambles", "turns", "unless", "hedges"))
            begin, end = opening.span()
            before, behind = start[:begin], end + REACH
            if before:
                if before[-1] in _QUOTES:
                    continue
                sentence = max(before.rfind(mark) + len(mark) if mark in before else 0 for mark in _SENTENCE_ENDS)
                if sentence and preambles.match(before) is None:
                    continue
                if unless.match(before[sentence:]) and not preambles.match(before[sentence:]):
                    continue
            if self.matcher("particles").match(start) and not self.matcher("speaker").search(start, begin, end):
                continue
            if turns.search(start[end:behind]) is None and hedges.search(start[begin:behind]) is None:
                return True
        return False


@cache
def languages() -> list[Language]:
    """The languages whose wordings are shipped."""
    tables = tomllib.loads(resources.files(__package__).joinpath("refusals.toml").read_text(encoding="utf-8"))
    found = []
    for code, wordings in tables.items():
        language = tables[code.partition("-")[0]]
        fragments = language["fragments"] | wordings["fragments"]
        found.append(Language(code, language | wordings | {"fragments": fragments}))
    return found


@cache
def _triggers() -> dict[str, list[Language]]:
    """The languages of each trigger that is a word."""
    triggers: dict[str, list[Language]] = {}
    for language in languages():
        for trigger in language.triggers if language.is_spaced else ():
            triggers.setdefault(trigger, []).append(language)
    return triggers


def spaced_words(text: str) -> str:
    """A text with a space in place of each character that is in no word."""
    if text.isascii():  # bytes are translated in a third of the time that an expression takes
        return text.encode().translate(_TO_WORDS).decode()
    return _NO_WORD.sub(" ", text)


def user_pattern(pattern: str) -> Any:
    """A compiled pattern of a user; its search takes a `timeout`, which those of `re` do not."""
    import regex  # noqa: PLC0415 - most processes have no such pattern

    return regex.compile(pattern, regex.VERSION0)


@cache
def explodes(pattern: str) -> bool:
    """Whether a pattern of a user takes too long on one of some hard texts: a repeated part, and what breaks it off."""
    compiled = user_pattern(pattern)
    plain = pattern.replace("\\", "")
    words = _NO_WORD.sub(" ", plain).split()
    phrases = (f"{first} {second} " for first, second in pairwise(words))
    for part in islice(dict.fromkeys(("a", "0", "a ", "a0", *words, *phrases, *plain)), _MAX_TRIED):
        run = (part * _TRIAL)[:_TRIAL]
        try:
            for end in ("", "!", f"!{plain}"):
                compiled.search(run + end, timeout=10 * MATCH_SECONDS)
        except TimeoutError:
            return True
    return False


@dataclass(frozen=True)
class RefusalRule:
    """What counts as a refusal.

    Args:
        tokens: An answer that folds to the same text as a token is a refusal.
        patterns: Regular expressions beside the shipped wordings; they match wherever they are found in the window.
        window: How many characters of the folded answer the matcher looks at for a refusal.
        matcher_counts: A refusal that only the matcher finds is *refused*, not *shipped*.
        replace: The patterns stand in place of the shipped wordings; without patterns the matcher is off.

    Examples:
        >>> rule = RefusalRule()
        >>> rule.kind("not in context"), rule.kind("I don't have enough information to answer.")
        ('token', 'wording')
        >>> rule.kind("I cannot fulfill your request.")
        'policy'
    """

    tokens: tuple[str, ...] = (REFUSAL_TOKEN,)
    patterns: Sequence[str] = ()
    window: int = 120
    matcher_counts: bool = True
    replace: bool = False
    _folded: frozenset[str] = field(init=False, repr=False, compare=False)
    _own: tuple[Any, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_folded", frozenset(fold(token) for token in self.tokens))
        object.__setattr__(self, "_own", tuple(map(user_pattern, self.patterns)))
        _triggers()  # reads refusals.toml here, so that no call of the application waits for it

    def refuses(self, text: str) -> bool:
        """Whether an answer in other words than a token counts as refused; for a thread of the application."""
        if not self.matcher_counts:
            return False
        start = text.lstrip()[: self.window]
        may_be_wrapped = start[:1] in OPENINGS or "<" in text or "[/" in text  # the ends of thoughts
        is_plain = not self._own and start.isascii() and not may_be_wrapped
        if is_plain and _triggers().keys().isdisjoint(spaced_words(start).split()):
            return False
        return self.kind(text) is not None

    def kind(self, answer: str, folded: str | None = None) -> str | None:
        """How an answer refuses: `TOKEN`, `WORDING` or `POLICY`; None where it does not.

        Args:
            answer: The answer; its start is searched for wordings.
            folded: The folded answer of a record, which its reader has taken apart.

        >>> RefusalRule().kind('Answer: "Not in context"'), RefusalRule().kind("Hmm, I'm not sure.")
        ('token', 'wording')
        """
        text = answer.strip()
        if folded is None and (reply := parse(text)) is not None and reply.claim is not None:
            text = reply.claim.strip()
        # Lines end sentences, so they are folded one by one.
        head = fold_lines(text[: 2 * (self.window + REACH)]) if folded is None or "\n" in text else folded
        head = _unwrapped(head)
        if head.replace("\n", " ") in self._folded:
            return TOKEN
        return self._wording(head)

    def _wording(self, folded: str) -> str | None:
        """Whose wordings refuse, of the user, of a language or of a policy."""
        for pattern in self._own:
            try:
                if pattern.search(folded, 0, self.window, timeout=MATCH_SECONDS) is not None:
                    return WORDING
            except TimeoutError:
                warn_once(
                    f"[refusal] pattern {pattern.pattern!r} takes too long on some answers, which are judged without it"
                )
        if self.replace:
            return None
        window = folded[: self.window]
        spaced = spaced_words(window)
        words = spaced.split()
        triggers = _triggers()
        triggering = ((index, word) for index, word in enumerate(words) if word in triggers)
        last = {language: index for index, word in triggering for language in triggers[word]}
        if not last and window.isascii():
            return None
        start = folded[: self.window + REACH]
        found: str | None = None
        for language, index in last.items():  # an opening holds a trigger, so it starts no later than the last one
            if language.refuses(language.find_openings(start, self.window, f" {spaced} ", words[: index + 1]), start):
                found = language.kind
                if found == POLICY:
                    break
        if found is None and not window.isascii():
            for language in languages():
                is_likely = not language.is_spaced and any(part in window for part in language.triggers)
                if is_likely and language.refuses(language.opening().finditer(start, 0, self.window), start):
                    return language.kind
        return found


def _unwrapped(folded: str) -> str:
    """Folded lines without the label, the interjection and the quotes or brackets around them."""
    for _ in range(_LAYERS):
        wrapped = folded
        for prefix in (_LABEL, _INTERJECTION):
            if (found := prefix.match(folded)) is not None:
                folded = folded[found.end() :]
        if len(folded) > 1 and _PAIRS.get(folded[0]) == folded[-1] and folded[0] not in folded[1:-1].replace("n't", ""):
            folded = folded[1:-1].strip()
        if folded == wrapped:
            break
    return folded
