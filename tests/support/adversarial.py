"""Texts on which a pattern that is not linear takes long, made from the pattern itself; and how to time one."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

SIZES = (16, 128, 1024, 8192)
"""Characters of the texts: each eight times the one before."""
RATIO = 12.0
"""What eight times the text may cost at most; a square would be 64."""
ENOUGH = 0.001
"""CPU seconds from which a ratio is looked at: below, noise would decide."""
LONG = 0.1
"""CPU seconds after which no longer text is tried. A repetition of a few hundred grows fast at first, and then not."""
ATTEMPTS = 3

GENERAL = (
    *(
        " ",
        "\n",
        "\t",
        "\u00a0",
        "0",
        "1",
        "9",
        "-",
        "-----",
        ".",
        ",",
        ":",
        ";",
        "[",
        "]",
        "[[",
        "[1]",
        "[1",
        "[1,",
        "(",
        ")",
    ),
    *(
        "{",
        "}",
        '{"',
        '["',
        '"',
        "\\",
        "/",
        "<",
        ">",
        "@",
        "a@",
        "a@a.",
        "`",
        "```",
        "```\n",
        "_",
        "*",
        "|",
        "#",
        "a",
        "A",
        "aA",
    ),
    *(
        "a ",
        "the ",
        "not ",
        "1 ",
        "1-",
        "1.",
        "é",
        "Σ",
        "'Σ",
        "\u0301",
        "\u0315\u0300",
        "\uff9e\u0301",
        "\u0345\u0301",
        "\u0f73\u0f71",
    ),
    *(
        "\ufdfa",
        "각",
        "\u1100\u1161",
        "文",
        "อั",
        "\ud83d",
        "\ude00",
        "\ud83d\ude00",
        "😀",
        "\0",
        "\x1b",
        "\u202e",
        "\u0660",
    ),
)
"""What is repeated whatever the pattern is."""


def _of_class(members: Sequence[Any], limit: int = 3) -> list[str]:
    """Some characters of a class."""
    kinds = {
        codes.CATEGORY_DIGIT: "0",
        codes.CATEGORY_NOT_DIGIT: "a",
        codes.CATEGORY_SPACE: " ",
        codes.CATEGORY_NOT_SPACE: "a",
        codes.CATEGORY_WORD: "a",
        codes.CATEGORY_NOT_WORD: "-",
    }
    found = []
    for code, value in members:
        if code is codes.LITERAL:
            found.append(chr(value))
        elif code is codes.RANGE:
            found.append(chr(value[0]))
        elif code is codes.CATEGORY:
            found.append(kinds[value])
    if members and members[0][0] is codes.NEGATE:
        found = [char for char in "a 0-\n" if char not in found]
    return found[:limit] or ["a"]


class _Pumps:
    """Walks a parsed pattern and collects what may be worth repeating."""

    def __init__(self) -> None:
        self.found: dict[str, None] = {}
        self.before: dict[str, None] = {"": None}

    def sequence(self, nodes: Sequence[Any], before: str = "") -> str:
        """A text the nodes match, mostly; its beginnings and nodes are worth repeating, and worth standing before."""
        text = ""
        for code, value in nodes:
            piece = self._node(code, value, before + text)
            text += piece
            self.found[text] = None
            if not piece.isalnum():  # letters of words would crowd out what is worth more
                self.found[piece] = None
        return text

    def _node(self, code: Any, value: Any, before: str) -> str:
        if code in (codes.LITERAL, codes.NOT_LITERAL):
            return chr(value) if code is codes.LITERAL else "a" if value != ord("a") else "b"
        if code is codes.ANY:
            return "a"
        if code is codes.IN:
            chars = _of_class(value)
            self.found.update(dict.fromkeys(chars))
            return chars[0]
        if code is codes.BRANCH:
            texts = [self.sequence(branch, before) for branch in value[1]]
            return texts[0]
        if code is codes.SUBPATTERN:
            return self.sequence(value[-1], before)
        if code is codes.ATOMIC_GROUP:
            return self.sequence(value, before)
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            least, most, body = value
            inner = self.sequence(body, before)
            if most > 1:
                self.before[before] = None
            return inner * max(1, min(least, 64))
        if code is codes.ASSERT:
            return self.sequence(value[1], before) and ""
        return ""


def pumps(pattern: re.Pattern[Any], general: Sequence[str] = GENERAL) -> list[tuple[str, str, str]]:
    """Beginnings, what is to be repeated, and ends, of texts that are hard for a pattern."""
    walk = _Pumps()
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    walk.before[walk.sequence(parser.parse(source, pattern.flags & ~re.DEBUG))] = None
    repeated = [pump for pump in walk.found if 0 < len(pump) <= 96]
    starts = [before for before in walk.before if len(before) <= 96]
    own = [(start, pump, end) for start in starts[:4] for pump in repeated[:24] for end in ("", "\0")]
    return own + [("", pump, "") for pump in general]


def text_of(start: str, pump: str, end: str, size: int) -> str:
    """A text of about a size."""
    return start + pump * (size // len(pump)) + end


class TooLongError(BaseException):
    """No `Exception`, so that nothing under test takes it for one of its own."""


@contextmanager
def ended_after(seconds: float) -> Iterator[None]:
    """Ends what takes more than some seconds of the processor: what is exponential never comes back.

    `re` looks for signals. The timer of the processor is not the one that ends tests.
    """

    def end(*_: object) -> None:
        raise TooLongError(f"took more than {seconds} seconds")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def cost(call: Callable[[Any], object], text: Any) -> float:
    """CPU seconds of one call; a refusal is an answer like any other."""
    begun = time.thread_time()  # that of the process is coarse while its timer runs
    with suppress(Exception):
        call(text)
    return time.thread_time() - begun


def growth(call: Callable[[Any], object], make: Callable[[int], Any]) -> str | None:
    """What is wrong with the time a call takes, as texts grow by a factor of eight; None where it is linear.

    Args:
        call: What reads the text.
        make: A text of about so many characters.
    """
    before = 0.0
    for size in SIZES:
        now = cost(call, make(size))
        if now >= LONG or (size == SIZES[-1] and now >= ENOUGH and now > RATIO * before):
            return _measured(call, make(size), make(size // 8), size)
        before = now
    return None


def _measured(call: Callable[[Any], object], text: Any, smaller: Any, size: int) -> str | None:
    """The same where one look was not enough: the best of several."""
    for _ in range(ATTEMPTS):
        now = cost(call, text)
        ratio = now / max(min(cost(call, smaller) for _ in range(3)), 1e-7)
        if ratio <= RATIO or now < ENOUGH:
            return None
    return f"{size} characters take {now:.4f} s, {ratio:.0f} times as long as {size // 8}"
