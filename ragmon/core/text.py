"""What ragmon does to text: folding, phrase search, normalised questions and contexts, citation marks.

All of it is deterministic and language-agnostic where it can be; nothing here reads a clock or a file. The texts are
strangers': every function takes time that grows with the length of a text and no faster.
"""

from __future__ import annotations

import re
import string
import unicodedata
from functools import lru_cache
from itertools import takewhile
from typing import Final

ANYWHERE: Final = 5
"""Phrases of this many characters match anywhere; shorter ones need a word boundary."""
READ: Final = 65_536
"""Characters of one text (a question, a claim, a context) that are read for facts."""
_END: Final = "\0"

# Scripts written without spaces: a boundary means nothing there, so a short phrase matches anywhere.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff"  # Thai, Lao
    "\u0f00-\u0fff"  # Tibetan
    "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u1950-\u19df\u1a20-\u1aaf"  # Tai Le, New Tai Lue, Tai Tham
    "\ua980-\ua9df"  # Javanese
    "\u2e80-\u312f\u31a0-\u31ff\U0001b000-\U0001b16f"  # kana, Bopomofo; between them Hangul letters, which are spaced
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"  # Han
)
_CITATIONS = re.compile(r"citations\s*:\s*\[", re.IGNORECASE)
_CUT_QUESTION: Final = "…"
"""Ends the key of a question that was cut: no other key holds punctuation."""
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)

# Unicode's Stream-Safe Text Format (UAX #15, section 13).
_JOINER: Final = "\u034f"  # COMBINING GRAPHEME JOINER: it shows nothing and breaks a run of non-starters
_MOST_MARKS: Final = 30
_FEW_MARKS: Final = 14
"""A run of fewer characters is safe: each decomposes to two marks at most, and a letter before them ends in three."""
_DISGUISED: Final = "\u0f73\u0f75\u0f81\uff9e\uff9f"
"""Starters by their class that decompose to non-starters."""
_BEYOND: Final = "\U000101fd-\U0001ffff"
"""Holds all marks beyond the Basic Multilingual Plane: one range is found sixty times as fast as what is in it."""


def head(text: str) -> str:
    """The part of a text that is read for facts: its first `READ` characters after the space it begins with.

    >>> head("  an answer "), len(head("a" * 100_000))
    ('an answer', 65536)
    """
    return text.strip()[:READ]


def is_cut(text: str) -> bool:
    """Whether `head` leaves out a part of a text: then what was not found in it is not known to be missing."""
    return len(text) > READ and len(text.strip()) > READ


@lru_cache(maxsize=1)
def _runs_of_marks() -> re.Pattern[str]:
    """Finds what may be too long a run of combining marks, by the tables of this Python's Unicode; made when needed."""
    marks = "".join(char for char in map(chr, range(0x300, 0x10000)) if unicodedata.combining(char))
    mark = f"[{marks}{_DISGUISED}{_BEYOND}]"
    return re.compile(f"{mark}{mark}{{{_FEW_MARKS - 1},}}")  # the first one apart: it makes the search fast


def stream_safe(text: str) -> str:
    """Text in Unicode's Stream-Safe Text Format: no more than 30 combining marks (non-starters) follow one another.

    To normalise a longer run takes time that grows with its square. No language needs one.

    Source: UAX #15, section 13, Stream-Safe Text Process.

    >>> len(stream_safe("a" + 31 * "\u0301")), len(stream_safe("a" + 30 * "\u0301"))
    (33, 31)
    """
    return _runs_of_marks().sub(_broken, text)


def _broken(run: re.Match[str]) -> str:
    """A run of marks with joiners in it, in view of the marks that the letter before it decomposes to."""
    count = 0
    parts: list[str] = []
    for char in run.string[max(0, run.start() - 1) : run.end()]:
        decomposed = unicodedata.normalize("NFKD", char)
        leading = sum(1 for _ in takewhile(unicodedata.combining, decomposed))
        if count + leading > _MOST_MARKS:
            parts.append(_JOINER)
            count = 0
        parts.append(char)
        starts = leading < len(decomposed)
        count = sum(1 for _ in takewhile(unicodedata.combining, reversed(decomposed))) if starts else count + leading
    return "".join(parts if run.start() == 0 else parts[1:])


def fold(text: str) -> str:
    """Text made comparable: NFKC, then casefold; too long runs of combining marks are broken before (`stream_safe`).

    >>> fold("RÖNTGEN Straße ①")
    'röntgen strasse 1'
    """
    # For ASCII the steps together are exactly lower(), at a fifth of the price.
    return text.lower() if text.isascii() else _normalised(text).casefold()


def _normalised(text: str) -> str:
    """NFKC in time that grows with the text; where it is that already, only looking takes time."""
    return text if unicodedata.is_normalized("NFKC", text) else unicodedata.normalize("NFKC", stream_safe(text))


def clean(text: str) -> str:
    """Text as it is written: half a surrogate pair has no UTF-8 form and becomes a question mark, a subclass its text.

    >>> clean("half of a pair: " + chr(0xD83D))
    'half of a pair: ?'
    """
    return text if type(text) is str and text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def contains_phrase(folded: str, phrase: str) -> bool:
    """Whether a folded phrase occurs in a folded text, by the rule for gold phrases.

    Five characters or more match anywhere. A shorter phrase must not continue a word: it is no match where its
    edge and the neighbouring character are both letters or digits of a script written with spaces.

    >>> contains_phrase("itv holds the rights", "itv"), contains_phrase("situation", "itu")
    (True, False)
    """
    if len(phrase) >= ANYWHERE:
        return phrase in folded
    if not phrase:
        return False
    start = folded.find(phrase)
    while start >= 0:
        end = start + len(phrase)
        left_open = start == 0 or not (_joins(folded[start - 1]) and _joins(phrase[0]))
        right_open = end == len(folded) or not (_joins(folded[end]) and _joins(phrase[-1]))
        if left_open and right_open:
            return True
        start = folded.find(phrase, start + 1)
    return False


def _joins(char: str) -> bool:
    """Whether a character is part of a word in a script that separates words by spaces."""
    return _in_word(char) and not _UNSPACED.match(char)


def _in_word(char: str) -> bool:
    """Whether a character is a letter, a digit, or a mark on one: Indic vowel signs are marks."""
    return char.isalnum() or unicodedata.category(char).startswith("M")


def claim_phrases(gold_claim: str) -> tuple[str, ...]:
    """The phrases of a gold claim: its longest runs of letters, digits, hyphens and spaces, folded.

    A run starts with a letter or digit and has at least five characters. Letters of every script count.

    >>> claim_phrases("Denmark, Iceland & Norway (3 of 9)")
    ('denmark', 'iceland', 'norway', '3 of 9')
    """
    runs, run = [], ""
    for char in fold(gold_claim) + _END:
        if char.isalnum() or (run and (char == "-" or char.isspace() or _in_word(char))):
            run += char
        else:
            runs.append(run.strip())
            run = ""
    return tuple(run for run in runs if len(run) >= ANYWHERE)


def normalise_question(text: str) -> str:
    """A question as a key: folded, punctuation dropped, spaces squeezed.

    The key of a question of more than `READ` characters is made of those, and ends as no other key does: what nobody
    has read to the end is not the question it begins with.

    >>> normalise_question("  What is   Röntgen's “unit”? ")
    'what is röntgens unit'
    """
    key = _question_key(head(text))
    return key + _CUT_QUESTION if is_cut(text) else key


@lru_cache(maxsize=64)  # a record's question is looked up in the gold and told apart from others of its minute
def _question_key(text: str) -> str:
    if text.isascii():
        return " ".join(text.lower().translate(_NO_PUNCTUATION).split())
    return " ".join("".join(char for char in fold(text) if not _is_punctuation(char)).split())


def _is_punctuation(char: str) -> bool:
    return char in string.punctuation or unicodedata.category(char).startswith("P")


def normalise_context(text: str) -> str:
    """A context as seed 003 compares it: lower case, no ASCII punctuation, no articles, single spaces.

    >>> normalise_context("The C++  book, an old one")
    'c book old one'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def split_citations(answer: str) -> tuple[str, list[str] | None]:
    r"""An answer text and the citations written into it as `citations: [a, b]`.

    Args:
        answer: The whole text.

    Returns:
        The text without that part, and the ids; None where there is no such part.

    >>> split_citations("- Rollo\n- citations: [normans#1, normans#2]")
    ('Rollo', ['normans#1', 'normans#2'])
    """
    found = _CITATIONS.search(answer)
    # Where no bracket closes the first list, none closes a later one: one search for it is enough.
    end = answer.find("]", found.end()) if found else -1
    if found is None or end < 0:
        return answer, None
    ids = answer[found.end() : end].replace(",", " ").split()
    rest = answer[: found.start()].rstrip(" \t\r\n-*") + answer[end + 1 :]
    return rest.strip().removeprefix("- ").strip(), ids
