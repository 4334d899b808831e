"""Text into terms: words, stop words, a light suffix stripper and a few synonyms.

The same function reads passages and questions, so only their agreement matters: a stem need not be a word.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

_WORD: Final = re.compile(r"[^\W_]+(?:[.,:](?=\d)\d+)*(?:'s\b)?")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")
_SUFFIX: Final = re.compile(r"(?:ings?|ed|es|e|s)$")
_SHORTEST_STEM: Final = 3

_FUNCTION_WORDS: Final = """
    a about after all also am an and any anyone anything are as at be been before being but by can could did do does
    doing each else ever every for from had has have having he her hers him his how i if in into is it its just like
    many may me might more most much must my no not of on one only or other our out own shall she should so some still
    such than that the their them then there these they this those to too up us very was we were what when where which
    while who whom whose why will with would you your
"""
_LIGHT_WORDS: Final = """
    bring brings call called currently exactly find fit fits found get gets getting give given go goes going got happen
    happens held hold holds keep keeps kept kind let look looks made make makes maximum mean minimum need needs normal
    normally possible ring roughly send sent sort stay stays take taken takes thing things use used usual usually want
"""
_COURTESIES: Final = """
    advance bother excuse good hello hi know morning please question quick say sorry tell thank thanks wonder wondering
"""
STOP_WORDS: Final = frozenset((_FUNCTION_WORDS + _LIGHT_WORDS + _COURTESIES).split())
"""Words that say nothing about the subject of a question."""

_SYNONYMS: Final = (
    "build built building construct",
    "passenger people person traveller",
    "bicycle bike cycle",
    "price cost fare fee",
    "leave leaves left depart departure",
    "child children kid",
    "write written",
    "pay paid",
    "allow permit",
    "start begin began begun",
    "colour color",
    "dog pet",
    "inhabitant resident",
    "freeze froze frozen",
    "burn burnt fire",
    "sale sell sold",
    "lie lies lay laid",
    "car automobile",
)


@cache
def stem(word: str) -> str:
    """The word without its plural or verb ending, so that forms of one word meet.

    >>> stem("ferries") == stem("ferry"), stem("charging") == stem("charges"), stem("stopped") == stem("stops")
    (True, True, True)
    """
    if word[0].isdigit():
        return word
    if word.endswith("ies") and len(word) > len("ties"):
        return word[:-3] + "y"
    bare = word if word.endswith("ss") else _SUFFIX.sub("", word)
    if len(bare) < _SHORTEST_STEM:
        return word
    doubled = bare[-1] == bare[-2] and bare[-1] not in "lsz" and word.endswith(("ed", "ing"))
    return bare[:-1] if doubled else bare


_CANONICAL: Final = {stem(word): stem(group.split()[0]) for group in _SYNONYMS for word in group.split()}


def words(text: str) -> list[str]:
    """The words and numbers of a text, folded, without possessive endings."""
    return [word.removesuffix("'s") for word in _WORD.findall(text.casefold().replace("\u2019", "'"))]


def term(word: str) -> str:
    """The one form under which a word and its synonyms are indexed."""
    bare = stem(word)
    return _CANONICAL.get(bare, bare)


def terms(text: str) -> list[str]:
    """The content terms of a text, in order, repetitions kept.

    >>> terms("How many bikes can the Grey Heron's rack hold?")
    ['bicycl', 'grey', 'heron', 'rack']
    """
    return [term(word) for word in words(text) if word not in STOP_WORDS]


def sentences(text: str) -> list[str]:
    """The sentences of a passage."""
    return _SENTENCE_END.split(text)
