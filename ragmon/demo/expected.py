"""What kind of answer a question asks for: a time, a price, a colour, a count of something.

A sentence can share every word with a question and still not answer it; a sentence without any price never answers
"how much is …". Rules of this kind are the classical half of question answering before neural readers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ragmon.demo.terms import STOP_WORDS, term, words

_NUMBER_WORDS: Final = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty hundred thousand"
)
_N: Final = rf"(?:\d[\d.,]{{0,15}}|{'|'.join(_NUMBER_WORDS.split())}|half|a)"
_NUMBER: Final = re.compile(rf"^(?:\d[\d.,:]*|{'|'.join(_NUMBER_WORDS.split())})$")
_COUNT: Final = re.compile(r"\bhow many\b(.*)")
_REACH: Final = 3

_YEAR: Final = r"\b1\d{3}\b|\b20\d\d\b"
_MONTH: Final = r"\b(?:january|february|march|april|may|june|july|august|september|october|november|december)\b"
_DAY: Final = r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b(?!each|every)\w{4,} day\b"
_TIME: Final = rf"\d\d:\d\d|\bnoon\b|\bmidnight\b|\bsun(?:rise|set)\b|\b{_N} hours? before\b|{_YEAR}|{_MONTH}|{_DAY}"
_SPAN: Final = rf"\b{_N}(?: \w+)? (?:seconds?|minutes?|hours?|days?|nights?|weeks?|months?|years?)\b"
_LENGTH: Final = rf"\b{_N} (?:nautical )?(?:centi|milli|kilo)?(?:metres?|miles?)\b(?! an hour)"
_MONEY: Final = (
    r"\bcrowns?\b|\bpenn(?:y|ies)\b|\bfree\b|\bnothing\b|\bno (?:cost|charge)\b|\bthe (?:\w+ )?fare\b|\bpercent\b"
)
_COLOUR: Final = r"\b(?:black|white|gr[ae]y|red|green|blue|yellow|orange|purple|pink|brown|cream)\b"
_PLACE: Final = r"\b(?:in|at|on|by|under|behind|beside|near|from|over|below|above)\b"
_MATERIAL: Final = (
    r"\b(?:of|from|with|in|on) (?:\w+ ){0,2}(?:wood|oak|elm|larch|ash|teak|pine|wool|cotton|canvas|leather|goatskin"
    r"|paper|stone|granite|slate|brick|concrete|iron|steel|copper|brass|aluminium|glass|turf|bone|leaves|seaweed)\b"
)
_NUMERIC: Final = rf"\d|\b{_N} \w+|\bhalf\b"
_PRICE_CUE: Final = (
    r"\bhow much (?=(?:is|are|was|were|do|does|did)\b)|\b(?:costs?|prices?|fares?|fees?|charges?|charged|pay|paid)\b"
)
_LASTING: Final = r"\b(?:takes?|last|lasts|lasted|stay|held|kept|keep|wait|waits|valid|halt|mature|ripen|need)\b"
_DIMENSIONS: Final = {
    "long": r"\blong\b|\blength\b",
    "high": r"\bhigh(?:er)?\b|\btall\b|\bheight\b",
    "wide": r"\bwide\b|\bwidth\b|\bacross\b|\bdiameter\b",
    "deep": r"\bdeep\b|\bdepth\b",
}


def _along(dimension: str) -> str:
    """A length that the sentence does not give for another dimension: 85 metres wide is no depth."""
    others = "|".join(named for other, named in _DIMENSIONS.items() if other != dimension)
    return rf"^(?:(?=.*(?:{_DIMENSIONS[dimension]}))|(?!.*(?:{others}))).*(?:{_LENGTH})"


_KINDS: Final = tuple(
    (re.compile(question), re.compile(answer))
    for question, answer in (
        (r"\bwhere\b", _PLACE),
        (r"\bmaterial\b|\bwood\b|\b(?:made|built) (?:of|from)\b", _MATERIAL),
        (r"\bhow old\b", rf"{_YEAR}|\bage\b|\byears\b"),
        (r"\bhow often\b", r"\bevery\b|\btimes\b|\bonce\b|\btwice\b|\bdaily\b"),
        (r"\b(?:what|which) (?:years?|winters?)\b", _YEAR),
        (r"\b(?:what|which) months?\b", _MONTH),
        (r"\b(?:what|which) (?:days?(?: of the week)?|evenings?|holidays?)\b", _DAY),
        (r"\bwhat times?\b|\bwhen\b|\bopening hours\b", _TIME),
        (r"\b(?:what|which) colou?r\b", _COLOUR),
        (rf"\bhow long\b(?=.*{_LASTING})", _SPAN),
        (r"\bhow long\b|\blength\b", _along("long")),
        (r"\bhow (?:high|tall)\b|\bheight\b", _along("high")),
        (r"\bhow wide\b|\bwidth\b", _along("wide")),
        (r"\bhow deep\b|\bdepth\b", _along("deep")),
        (r"\bhow (?:far|thick)\b", _LENGTH),
        (r"\bhow heavy\b|\bheaviest\b|\bweigh(?:t|s)?\b", rf"\b{_N} (?:tonnes?|kilograms?)\b"),
        (r"\bhow fast\b|\bspeed\b", r"\bknots?\b|\bkilometres an hour\b"),
        (r"\bhow (?:warm|cold|hot)\b|\btemperature\b", r"\bdegrees?\b"),
        (_PRICE_CUE, _MONEY),
        (r"\bhow (?:much|big|large|strong)\b|\bwhat number\b|\bage\b", _NUMERIC),
    )
)


@dataclass(frozen=True, slots=True)
class Expected:
    """What the question expects of an answer.

    Args:
        cues: Terms of the question that only announce the kind of answer ("price", "colour"); the evidence need not
            cover them.
        pattern: What a sentence of that kind contains; None accepts every sentence.
        counted: For "how many": the term a number must stand before.
    """

    cues: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    counted: str | None = None

    def met_by(self, sentence: str) -> bool:
        """Whether the sentence holds an answer of the expected kind."""
        if self.counted is not None:
            return _counts(sentence, self.counted)
        return self.pattern is None or bool(self.pattern.search(sentence.casefold()))


def expected(question: str) -> Expected:
    """Read off the wording of a question what its answer must look like.

    >>> expected("What colour is the hull?").met_by("Her hull is yellow.")
    True
    >>> expected("How many seats are there?").met_by("The cabin has seats, and a crossing takes 18 minutes.")
    False
    """
    folded = question.casefold()
    if count := _COUNT.search(folded):
        counted = [term(word) for word in words(count[1]) if word not in STOP_WORDS]
        return Expected(counted=counted[0]) if counted else Expected(pattern=re.compile(_NUMERIC))
    for asks, answers in _KINDS:
        if asks.search(folded):
            found = frozenset(term(word) for match in asks.finditer(folded) for word in words(match[0]))
            return Expected(found, answers)
    return Expected()


def _counts(sentence: str, counted: str) -> bool:
    """Whether a number stands at most three words before the counted term."""
    spoken = words(sentence)
    return any(
        _NUMBER.match(word) and counted in {term(near) for near in spoken[at + 1 : at + 1 + _REACH]}
        for at, word in enumerate(spoken)
    )
