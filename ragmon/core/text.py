"""Operations on text: folding, phrase search, normalised questions and contexts.

The results are deterministic and independent of language where possible. The texts are untrusted: the time of every
function grows no faster than the length of a text. Paths lead into JSON, and into the arguments and results of a traced
function: `request.messages[-1].content`.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final

from ragmon.core.errors import RagmonError, shorten

ANYWHERE: Final = 5
"""Phrases of at least this many characters match anywhere; shorter ones need word boundaries."""
READ: Final = 65_536
"""Characters of one text (a question, a claim, a context) that are read for facts."""
_END: Final = "\0"

DIGITS: Final = {chr(ord(zero) + digit): str(digit) for zero in "٠۰०০੦૦୦௦౦೦൦๐໐༠၀០" for digit in range(10)}
"""The digits of other scripts, which NFKC keeps."""
# What reads as a quote, an apostrophe or a dash; NFKC would take some of it apart.
_ALIKE_AS: Final = {
    **dict.fromkeys("«»“”„‟″‶「」『』〝〞〟ˮ❝❞״＂", '"'),
    **dict.fromkeys("´ʹʻʼʽ‘’‚‛′‵‹›❛❜ꞌ׳＇｀", "'"),
    **dict.fromkeys("‐‑‒–—―⁃−➖⸺⸻〜〰֊־︱︲﹘﹣－～", "-"),
    **dict.fromkeys("İı", "i"),  # Turkish writes one word with either, by its case
    **dict(zip("٫٬٪؟", ".,%?", strict=True)),
    **DIGITS,
}
# The general category Cf and Default_Ignorable_Code_Point (Unicode), but for a few historic scripts: nobody sees them.
# And the vowel points of Arabic and Hebrew, and Arabic's long line: they may stand or not (Lucene's ArabicNormalizer).
_INVISIBLE: Final = (
    "\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u0652\u0670"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
_ALIKE: Final = re.compile(f"[{_INVISIBLE}{''.join(_ALIKE_AS)}]")

_MARKDOWN_MARK: Final = re.compile(r"(\\[!-/:-@\[-`{-~]|\*+|_+|~~+|`+|\n[^\S\n]*\n)")
_LINK: Final = re.compile(r"!?\[([^\[\]\n]*)\]\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?:[ \t]+\"[^\"\n]*\")?\)")

_NUMBER: Final = re.compile(r"\d[\d.,]*")
_NUMBER_BEFORE: Final = re.compile(r"(?:\d|\d[.,])\Z")
_NUMBER_BEHIND: Final = re.compile(r"\d|[.,]\d")

UNSPACED: Final = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u0f00-\u0fff"  # Tibetan
    "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u1950-\u19df\u1a20-\u1aaf"  # Tai Le, New Tai Lue, Tai Tham
    "\ua980-\ua9df"  # Javanese
    "\u2e80-\u312f\u31a0-\u31ff\U0001b000-\U0001b16f"  # kana, Bopomofo; between them Hangul letters, which are spaced
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
"""Of a character class: scripts without spaces between words."""
_UNSPACED: Final = re.compile(f"[{UNSPACED}]")
# What Korean joins to the end of a word: particles, and forms of "is".
_PARTICLE: Final = re.compile(
    r"(?:은|는|이|가|을|를|에|에서|에는|에게|의|도|로|으로|와|과|만|부터|까지|께|이나|나|(?:이|라)?라는"
    r"|입니다|이에요|예요|이다|이며|이고|였습니다|이었습니다)(?![가-힣])"
)
_CUT_QUESTION: Final = "…"  # ends the key of a cut question; no other key contains punctuation
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_PUNCTUATION = string.punctuation.encode("ascii")

# Unicode's Stream-Safe Text Format (UAX #15, section 13).
_JOINER: Final = "\u034f"  # COMBINING GRAPHEME JOINER: invisible, and it ends a run of non-starters
_MAX_MARKS: Final = 30
# A shorter run is safe: each of its characters decomposes to at most two marks, and the letter before it to three.
_SAFE_RUN: Final = 14
# Characters whose class is starter but which decompose to non-starters.
_DECOMPOSING_STARTERS: Final = "\u0f73\u0f75\u0f81\uff9e\uff9f"
# A range with all marks beyond the Basic Multilingual Plane is found 60 times as fast as the exact set.
_BEYOND_BMP: Final = "\U000101fd-\U0001ffff"


def head(text: str) -> str:
    """The part of a text that is read for facts: its first `READ` characters without leading white space.

    >>> head("  an answer "), len(head("a" * 100_000))
    ('an answer', 65536)
    """
    return text.strip()[:READ]


def is_cut(text: str) -> bool:
    """Whether `head` leaves out a part of a text: a phrase not found in it may then occur in the rest."""
    return len(text) > READ and len(text.strip()) > READ


@lru_cache(maxsize=1)
def _runs_of_marks() -> re.Pattern[str]:
    # Runs of combining marks that may be too long, from Python's Unicode tables.
    marks = "".join(char for char in map(chr, range(0x300, 0x10000)) if unicodedata.combining(char))
    mark = f"[{marks}{_DECOMPOSING_STARTERS}{_BEYOND_BMP}]"
    return re.compile(f"{mark}{mark}{{{_SAFE_RUN - 1},}}")  # writing the first mark separately makes the search fast


def stream_safe(text: str) -> str:
    r"""Text in Unicode's Stream-Safe Text Format: at most 30 combining marks (non-starters) follow one another.

    Normalising a longer run takes time that grows with the square of its length. No language needs one.

    Source: UAX #15, section 13, Stream-Safe Text Process.

    >>> len(stream_safe("a" + 31 * "\u0301")), len(stream_safe("a" + 30 * "\u0301"))
    (33, 31)
    """

    def with_joiners(run: re.Match[str]) -> str:
        count, parts = 0, []
        # The marks that the letter before the run decomposes to count as well.
        for char in run.string[max(0, run.start() - 1) : run.end()]:
            decomposed = unicodedata.normalize("NFKD", char)
            leading = sum(1 for _ in takewhile(unicodedata.combining, decomposed))
            if count + leading > _MAX_MARKS:
                parts.append(_JOINER)
                count = 0
            parts.append(char)
            trailing = sum(1 for _ in takewhile(unicodedata.combining, reversed(decomposed)))
            count = trailing if leading < len(decomposed) else count + leading
        return "".join(parts if run.start() == 0 else parts[1:])

    return _runs_of_marks().sub(with_joiners, text)


def fold(text: str) -> str:
    r"""Text made comparable: what people read as the same text is the same afterwards.

    NFKC and casefold; white space becomes one space, dashes and minus signs `-`, quotes and apostrophes `"` and `'`;
    format characters and other invisible ones go; of Markdown's emphasis, code ticks and links the text stays. Too long
    runs of combining marks are broken first (`stream_safe`).

    >>> fold("RÖNTGEN’s  **Straße** ①"), fold("2019–2020, see [the report](https://example.org)")
    ("röntgen's strasse 1", '2019-2020, see the report')
    """
    folded = fold_characters(text)
    if "*" in folded or "_" in folded or "`" in folded or "\\" in folded or "](" in folded or "~~" in folded:
        folded = _without_markdown(folded)
    # A printable text has no white space but U+0020; most have single ones alone.
    if "  " in folded or not folded.isprintable() or folded[:1] == " " or folded[-1:] == " ":
        folded = " ".join(folded.split())
    return folded


def fold_characters(text: str) -> str:
    """The same of the characters alone: white space and Markdown stay."""
    if text.isascii():
        return text.lower()  # exactly NFKC and casefold together, in a fifth of the time
    text = _ALIKE.sub(lambda found: _ALIKE_AS.get(found[0], ""), text)
    if not unicodedata.is_normalized("NFKC", text):
        text = unicodedata.normalize("NFKC", stream_safe(text))
    return text.casefold()


def fold_lines(text: str) -> str:
    """The same, with the ends of lines kept: a line may be a sentence that no full stop ends."""
    return "\n".join(filter(None, map(fold, text.splitlines())))


def _without_markdown(text: str) -> str:
    """The text of Markdown's links, emphasis and code; a mark without its partner stays."""
    text = _LINK.sub(lambda link: f"[{link[1]}]" if link[1].strip(" ^").isdecimal() else link[1], text)
    pieces = _MARKDOWN_MARK.split(text)  # every second piece is a mark
    opened: dict[str, int] = {}
    for index in range(1, len(pieces), 2):
        mark = pieces[index]
        if mark[0] == "\\":
            pieces[index] = mark[1:]
            continue
        before, after = pieces[index - 1][-1:] or " ", pieces[index + 1][:1] or " "
        if mark[0] == "\n":
            opened.clear()
        elif before.isdecimal() and after.isdecimal():  # 5*3, 2**3
            continue
        elif (begin := opened.get(mark)) is not None and (not before.isspace() or mark[0] == "`"):
            if mark[0] == "_" and _is_spaced_letter(after):
                continue
            pieces[begin] = pieces[index] = ""
            del opened[mark]
        elif not (mark[0] in "_`" and _is_spaced_letter(before)) and (not after.isspace() or mark[0] == "`"):
            opened[mark] = index
        elif mark == "`" and _is_spaced_letter(after):
            pieces[index] = "'"
    return "".join(pieces)


def clean(text: str) -> str:
    """Text that can be encoded: an unpaired surrogate becomes a question mark, and a subclass of str a plain str.

    >>> clean("half of a pair: " + chr(0xD83D))
    'half of a pair: ?'
    """
    text = str.__str__(text)  # of a subclass the text alone, whatever its methods do
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def contains_phrase(folded: str, phrase: str) -> bool:
    """Whether a folded phrase occurs in a folded text, by the rule for gold phrases.

    A phrase whose edge is a digit must not be part of a longer number, to which `.` and `,` between digits belong.
    Beside that, five characters or more match anywhere. A shorter phrase must not be part of a longer word: it does not
    match where its edge and the neighbouring character are both letters or digits of a script written with spaces,
    unless what follows is a particle of Korean.

    >>> contains_phrase("itv holds the rights", "itv"), contains_phrase("situation", "itu")
    (True, False)
    >>> contains_phrase("tighten it to 15 nm", "15 nm"), contains_phrase("tighten it to 115 nm", "15 nm")
    (True, False)
    """
    if not phrase:
        return False
    is_short = len(phrase) < ANYWHERE
    is_number = phrase[0].isdecimal(), phrase[-1].isdecimal()
    start = folded.find(phrase)
    while start >= 0:
        end = start + len(phrase)
        if is_number[0] and _NUMBER_BEFORE.search(folded, max(0, start - 2), start):
            number = _NUMBER.match(folded, start)
            start = folded.find(phrase, number.end() if number is not None else end)
            continue
        is_part = is_number[1] and _NUMBER_BEHIND.match(folded, end) is not None
        if is_short and not is_part:
            is_part = (start > 0 and _is_spaced_letter(folded[start - 1]) and _is_spaced_letter(phrase[0])) or (
                end < len(folded)
                and _is_spaced_letter(folded[end])
                and _is_spaced_letter(phrase[-1])
                and _PARTICLE.match(folded, end) is None
            )
        if not is_part:
            return True
        start = folded.find(phrase, start + 1)
    return False


def _is_spaced_letter(char: str) -> bool:
    # Part of a word in a script that separates words by spaces.
    return _in_word(char) and not _UNSPACED.match(char)


def _in_word(char: str) -> bool:
    # Indic vowel signs are combining marks.
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
    """The key of a question: folded, without punctuation, with single spaces.

    The key of a question of more than `READ` characters is made of the first `READ` and ends in a special character: a
    question that was not read to its end must differ from the shorter question it begins with.

    >>> normalise_question("  What is   Röntgen's “unit”? ")
    'what is röntgens unit'
    """
    if len(text) <= READ:
        return _question_key(text)
    key = _question_key(head(text))
    return key + _CUT_QUESTION if is_cut(text) else key


@lru_cache(maxsize=64)  # the key of a record's question is needed for the gold lookup and for its minute's clusters
def _question_key(text: str) -> str:
    if text.isascii():
        letters = text.lower().encode("ascii").translate(None, _PUNCTUATION)  # four times faster than on a string
        return " ".join(letters.decode("ascii").split())
    kept = (
        char
        for char in fold(text.strip())
        if char not in string.punctuation and not unicodedata.category(char).startswith("P")
    )
    return " ".join("".join(kept).split())


def normalise_context(text: str) -> str:
    """A context as seed 003 compares it: lower case, no ASCII punctuation, no articles, single spaces.

    >>> normalise_context("The C++  book, an old one")
    'c book old one'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


Path = tuple[str | int, ...]
"""Member names and sequence indices, outermost first."""

_NAME: Final = r"[^.\[\]\s]+"
_INDEX: Final = r"\[-?\d+\]"
_PATH: Final = re.compile(rf"(?:{_NAME}|{_INDEX})(?:\.{_NAME}|{_INDEX})*")
_STEP: Final = re.compile(rf"({_NAME})|\[(-?\d+)\]")


def parse(text: str, parameter: str) -> Path:
    """Parse a path.

    >>> parse("messages[-1].content", "question")
    ('messages', -1, 'content')
    """
    if not isinstance(text, str) or not _PATH.fullmatch(text):
        raise RagmonError(f"{parameter} is not a path: {shorten(text)}", hint="a path such as messages[-1].content")
    return tuple(name or int(index) for name, index in _STEP.findall(text))


def look_up(value: Any, path: Path) -> Any:
    """Follow a path through the objects and arrays of JSON; None where a step does not exist.

    >>> look_up({"messages": [{"content": "Is it?"}]}, ("messages", -1, "content"))
    'Is it?'
    """
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, Mapping) else None
        else:
            exists = isinstance(value, list | tuple) and -len(value) <= step < len(value)
            value = value[step] if exists else None
    return value
