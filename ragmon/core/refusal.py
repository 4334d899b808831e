"""Detection of refusals: the exact token, and other wordings by patterns in ten languages.

An answer is a refusal in other words where an opening of `ragmon.core.refusal_patterns` stands in its first characters,
no answer stands before it, and none follows it after a turn ("However, as of 2021 ...").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple

from ragmon.core.constants import REFUSAL_TOKEN
from ragmon.core.log import warn_once
from ragmon.core.refusal_patterns import CHINESE, DUTCH, ENGLISH, GERMAN, JAPANESE, KOREAN, Language
from ragmon.core.refusal_patterns_romance import FRENCH, ITALIAN, PORTUGUESE, SPANISH
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
_WORD: Final = re.compile(r"[^\W_]+")
_SPACED: Final = {
    language: frozenset(language.triggers.encode().split()) for language in LANGUAGES if language.is_spaced
}
_UNSPACED: Final = {language: language.triggers.split() for language in LANGUAGES if not language.is_spaced}
_TRIGGERS: Final = frozenset[bytes]().union(*_SPACED.values())


class _Matchers(NamedTuple):
    """The compiled wordings of a language; the attributes are those of `Language`."""

    openings: re.Pattern[str]
    preambles: re.Pattern[str]
    turns: re.Pattern[str]
    unless: re.Pattern[str]
    hedges: re.Pattern[str]


@cache
def matchers(language: Language) -> _Matchers:
    """The compiled wordings of a language; compiled when a text may hold one, because that takes a while."""
    at_start = _any_of([opening[1:] for opening in language.openings if opening.startswith("^")])
    anywhere = _any_of([opening for opening in language.openings if not opening.startswith("^")])
    # Those for the start of a text are one alternative, and all others begin a word: the search is twice as fast.
    return _Matchers(
        re.compile(rf"\b(?=\w)(?:^(?:{at_start})|{anywhere})" if language.is_spaced else f"^(?:{at_start})|{anywhere}"),
        re.compile(rf"\W*(?:{language.preambles})"),
        re.compile(language.turns),
        re.compile(language.unless),
        re.compile(language.hedges),
    )


def _any_of(patterns: Sequence[str]) -> str:
    """An expression that finds what any of the patterns finds."""
    return "|".join(f"(?:{pattern})" for pattern in patterns)


def _words(start: str) -> list[bytes]:
    """The words of a text in UTF-8; splitting bytes takes a third of the time that an expression takes."""
    if start.isascii():
        return start.encode().translate(_TO_WORDS).split()
    return [word.encode("utf-8", "replace") for word in _WORD.findall(start)]


def _languages(start: str) -> Iterator[Language]:
    """The languages of which the start of an answer holds a trigger; usually there are none."""
    words = _words(start)
    if not _TRIGGERS.isdisjoint(words):
        for language, triggers in _SPACED.items():
            if not triggers.isdisjoint(words):
                yield language
    if not start.isascii():
        for language, parts in _UNSPACED.items():
            if any(part in start for part in parts):
                yield language


def _opens(language: Language, start: str, window: int) -> bool:
    """Whether an opening stands in the window of a text, and no answer before or behind it."""
    wordings = matchers(language)
    for opening in islice(wordings.openings.finditer(start, 0, window), _MAX_OPENINGS):
        begin, end = opening.span()
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
    words = _WORD.findall(plain)
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
        if not self._own and start.isascii() and _TRIGGERS.isdisjoint(_words(start)):
            return False
        head = text[: 2 * (self.window + REACH)].strip()
        return self.is_like(head.lower() if head.isascii() else fold(head))

    def is_token(self, folded: str) -> bool:
        """Whether a stripped and folded answer is a refusal token."""
        return folded in self._folded

    def is_like(self, folded: str) -> bool:
        """Whether the matcher finds a refusal in a stripped and folded answer; False where the matcher is off."""
        if any(_is_found(pattern, folded, self.window) for pattern in self._own):
            return True
        if self.replace:
            return False
        start = folded[: self.window + REACH]
        if not start.isascii():
            start = start.replace("\u2019", "'")
        return any(_opens(language, start, self.window) for language in _languages(start[: self.window]))
