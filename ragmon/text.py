"""What ragmon does to text: folding, phrase search, normalised questions and contexts, citation marks.

All of it is deterministic and language-agnostic where it can be; nothing here reads a clock or a file.
"""

from __future__ import annotations

import re
import string
import unicodedata
from functools import lru_cache
from typing import Final

ANYWHERE: Final = 5
"""Phrases of this many characters match anywhere; shorter ones need a word boundary."""
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
_CITATIONS = re.compile(r"citations\s*:\s*\[([^\]]*)\]", re.IGNORECASE)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def fold(text: str) -> str:
    """Text made comparable: NFKC, then casefold.

    >>> fold("RÖNTGEN Straße ①")
    'röntgen strasse 1'
    """
    # For ASCII both steps together are exactly lower(), at a fifth of the price.
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


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


@lru_cache(maxsize=64)  # a record's question is looked up in the gold and told apart from others of its minute
def normalise_question(text: str) -> str:
    """A question as a key: folded, punctuation dropped, spaces squeezed.

    >>> normalise_question("  What is   Röntgen's “unit”? ")
    'what is röntgens unit'
    """
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
    if not found:
        return answer, None
    ids = [part for part in re.split(r"[,\s]+", found.group(1).strip()) if part]
    rest = answer[: found.start()].rstrip(" \t\r\n-*") + answer[found.end() :]
    return rest.strip().removeprefix("- ").strip(), ids
