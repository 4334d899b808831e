"""Detection of refusals: the exact token, and other wordings by patterns in ten languages.

An answer is a refusal in other words where an opening of `ragmon.core.refusal_patterns` stands in its first characters,
no answer stands before it, and none follows it after a turn ("However, as of 2021 ...").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple

from ragmon.core.constants import REFUSAL_TOKEN
from ragmon.core.errors import warn_once
from ragmon.core.refusal_patterns import (
    CHINESE,
    DUTCH,
    ENGLISH,
    FRENCH,
    GERMAN,
    ITALIAN,
    JAPANESE,
    KOREAN,
    PORTUGUESE,
    SPANISH,
)
from ragmon.core.text import fold

LANGUAGES: Final = (
    *(ENGLISH, GERMAN, FRENCH, SPANISH, PORTUGUESE, ITALIAN, DUTCH),
    *(JAPANESE, CHINESE, KOREAN),
)
REACH: Final = 160
"""Characters behind an opening in which an answer may follow."""
_MAX_OPENINGS: Final = 8
"""Openings that are looked at: the time grows no faster than the text."""
_QUOTES: Final = frozenset("\"'\u201c\u201e\u2018\u201a\u00ab\u300c\u300e")
"""An opening behind one of these is quoted."""
_SENTENCE_ENDS: Final = (". ", "! ", "? ", "] ", ": ", "\n", "\u3002", "!", "?")
_TO_WORDS: Final = bytes(ord(chr(byte).lower()) if chr(byte).isalnum() else 32 for byte in range(128)) + bytes(128)
"""A translation of ASCII: small letters, and a space for what stands between words."""
_NO_WORD: Final = re.compile(r"[\W_]")
_HEAD: Final = 3
"""First letters of a word by which openings are chosen."""
_AT_START: Final = "^"
_BY_CODE: Final = {language.code: language for language in LANGUAGES}
_TRIGGERS: Final = {
    trigger: [language.code for language in LANGUAGES if language.is_spaced and trigger in language.triggers.split()]
    for trigger in " ".join(language.triggers for language in LANGUAGES if language.is_spaced).split()
}
"""The languages of each trigger."""
_UNSPACED: Final = {language.code: language.triggers.split() for language in LANGUAGES if not language.is_spaced}
_NO_TRIGGER: Final = frozenset(_TRIGGERS).isdisjoint


class _Matchers(NamedTuple):
    """The compiled wordings of a language that take an opening back; the attributes are those of `Language`."""

    preambles: re.Pattern[str]
    turns: re.Pattern[str]
    unless: re.Pattern[str]
    hedges: re.Pattern[str]


@cache
def matchers(code: str) -> _Matchers:
    """The compiled wordings of a language; compiled when an opening was found, because that takes a while."""
    language = _BY_CODE[code]
    return _Matchers(
        re.compile(rf"\W*(?:{language.preambles})"),
        re.compile(language.turns),
        re.compile(language.unless),
        re.compile(language.hedges),
    )


@cache
def openings(code: str) -> list[tuple[frozenset[str], str]]:
    """The openings of a language that parts words by spaces: the heads of their first words, and an expression."""
    parts = (opening.partition(": ") for opening in _BY_CODE[code].openings)
    return [(frozenset(heads.split()), expression) for heads, _, expression in parts]


@cache
def _heads(code: str) -> frozenset[str]:
    """The heads of the words that an opening of a language may start with."""
    return frozenset[str]().union(*(heads for heads, _ in openings(code)))


@cache
def _pattern(code: str, head: str) -> re.Pattern[str]:
    """The compiled openings of a language that start with a head; compiled when a text first has such a word."""
    return re.compile(rf"\b(?=\w)(?:{_any_of([opening for heads, opening in openings(code) if head in heads])})")


@cache
def _unspaced(code: str) -> re.Pattern[str]:
    """The compiled openings of a language whose words are not parted by spaces."""
    return re.compile(_any_of(_BY_CODE[code].openings))


def _any_of(patterns: Sequence[str]) -> str:
    """An expression that finds what any of the patterns finds."""
    return "|".join(f"(?:{pattern})" for pattern in patterns)


def _spaced(text: str) -> str:
    """A text with a space in place of each character that is in no word."""
    if text.isascii():  # bytes are translated in a third of the time that an expression takes
        return text.encode().translate(_TO_WORDS).decode()
    return _NO_WORD.sub(" ", text)


def _openings(code: str, start: str, window: int, spaced: str, words: Sequence[str]) -> Iterator[re.Match[str]]:
    """The openings in the window of a text that do not overlap, from left to right.

    Args:
        code: A language.
        start: The text.
        window: Where in the text an opening may stand.
        spaced: The text with a space before, between and behind its words.
        words: Its words up to the last trigger.
    """
    heads, place = _heads(code), -1
    places = [(0, _AT_START)]
    for word in words:
        if (head := word[:_HEAD]) in heads:
            place = spaced.index(f" {word} ", place + 1)
            places.append((place, head))
    end = 0
    for place, head in places:
        if place >= end and (opening := _pattern(code, head).match(start, place, window)) is not None:
            end = opening.end()
            yield opening


def _opens(code: str, openings: Iterable[re.Match[str]], start: str) -> bool:
    """Whether one of the openings of a text stands without an answer before or behind it."""
    for opening in islice(openings, _MAX_OPENINGS):
        begin, end = opening.span()
        wordings = matchers(code)
        if begin and _is_taken_back(wordings, start[:begin]):
            continue
        behind = end + REACH
        if wordings.turns.search(start[end:behind]) is None and wordings.hedges.search(start[begin:behind]) is None:
            return True
    return False


def _is_taken_back(wordings: _Matchers, before: str) -> bool:
    """Whether the text before an opening quotes it, puts it under a condition, or has given an answer."""
    if before[-1] in _QUOTES:
        return True
    cut = max(before.rfind(end) + len(end) if end in before else 0 for end in _SENTENCE_ENDS)
    if cut and wordings.preambles.match(before) is None:
        return True
    sentence = before[cut:]
    return wordings.unless.match(sentence) is not None and wordings.preambles.match(sentence) is None


MATCH_SECONDS: Final = 0.1
"""CPU time of the process in which a pattern of a user is searched in one answer; usual ones take microseconds."""
_TRIAL: Final = 1000
"""Characters of the texts on which a pattern is tried, of which most windows have an eighth."""
_MAX_TRIED: Final = 32
"""Repeated parts that are tried."""


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


def _is_found(pattern: Any, folded: str, window: int) -> bool:
    try:
        return pattern.search(folded, 0, window, timeout=MATCH_SECONDS) is not None
    except TimeoutError:
        warn_once(f"[refusal] pattern {pattern.pattern!r} takes too long on some answers, which are judged without it")
        return False


@dataclass(frozen=True)
class RefusalRule:
    """What counts as a refusal.

    Args:
        tokens: An answer equal to one of these is a refusal (strip, NFKC, casefold).
        patterns: Regular expressions beside the shipped wordings; they match wherever they are found in the window.
        window: How many characters of the folded answer the matcher looks at for a refusal.
        matcher_counts: A refusal that only the matcher finds is *refused*, not *shipped*.
        replace: The patterns stand in place of the shipped wordings; without patterns the matcher is off.

    Examples:
        >>> rule = RefusalRule()
        >>> rule.is_token("not in context"), rule.is_like("i don't have enough information to answer.")
        (True, True)
        >>> rule.is_like("dazu konnte ich leider nichts finden.")
        True
    """

    tokens: tuple[str, ...] = (REFUSAL_TOKEN,)
    patterns: Sequence[str] = ()
    window: int = 120
    matcher_counts: bool = True
    replace: bool = False
    _folded: frozenset[str] = field(init=False, repr=False, compare=False)
    _own: tuple[Any, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_folded", frozenset(fold(token.strip()) for token in self.tokens))
        object.__setattr__(self, "_own", tuple(map(user_pattern, self.patterns)))

    def refuses(self, text: str) -> bool:
        """Whether an answer in other words than a token counts as refused; for a thread of the application.

        Args:
            text: The answer, neither stripped nor folded; only its start is read.
        """
        if not self.matcher_counts:
            return False
        start = text.lstrip()[: self.window]
        if not self._own and start.isascii() and _NO_TRIGGER(_spaced(start).split()):
            return False
        head = text[: 2 * (self.window + REACH)].strip()
        return self.is_like(head.lower() if head.isascii() else fold(head))

    def is_token(self, folded: str) -> bool:
        """Whether a stripped and folded answer is a refusal token."""
        return folded in self._folded

    def is_like(self, folded: str) -> bool:
        """Whether the matcher finds a refusal in a stripped and folded answer; False where the matcher is off."""
        if self._own and any(_is_found(pattern, folded, self.window) for pattern in self._own):
            return True
        if self.replace:
            return False
        window = folded[: self.window]
        spaced = _spaced(window)
        words = spaced.split()
        if window.isascii() and _NO_TRIGGER(words):
            return False
        start = folded[: self.window + REACH].replace("\u2019", "'")
        last = {code: place for place, word in enumerate(words) for code in _TRIGGERS.get(word, ())}
        for code, place in last.items():  # an opening holds a trigger, so it starts no later than the last one
            if _opens(code, _openings(code, start, self.window, f" {spaced} ", words[: place + 1]), start):
                return True
        return not window.isascii() and any(
            _opens(code, _unspaced(code).finditer(start, 0, self.window), start)
            for code, parts in _UNSPACED.items()
            if any(part in window for part in parts)
        )
