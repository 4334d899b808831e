"""Detection of refusals: the exact token is the contract; a matcher finds other wordings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ragmon.core.constants import REFUSAL_TOKEN
from ragmon.core.text import fold

_NOT: Final = r"(?: not|n['\u2019]t)"
_CANNOT: Final = rf"(?:cannot|can not|can['\u2019]t|could{_NOT})"
_I_AM: Final = r"(?:i am|i['\u2019]m|we are|we['\u2019]re)"
_SOURCES: Final = (
    r"(?:contexts?|passages?|documents?|documentation|sources?|texts?|articles?|excerpts?|snippets?|materials?|results?"
    r"|references?|knowledge base|information)"
)
_THE_SOURCES: Final = rf"(?:the|this|these|any|your|any of the) (?:\w+ ){{0,2}}{_SOURCES}"
_KNOWLEDGE: Final = r"(?:information|mention|data|details?|context|indication|answer|evidence|knowledge|documents?)"
_FIND: Final = (
    r"(?:find|locate|answer|provide|give|determine|tell|say|confirm|verify|identify|infer|help|assist|comment|respond)"
)
_MENTION: Final = (
    r"(?:mention|specify|state|provide|contain|include|say|discuss|address|cover|give|indicate|describe|answer|explain"
    r"|list|offer|have|reveal|name|clarify|detail|refer|appear|talk)"
)
_HAS: Final = r"(?:contains?|has|have|makes?|provides?|gives?|includes?|offers?)"
_HARD: Final = r"(?:not possible|impossible|difficult|hard)"
_HEDGE: Final = r"(?! (?:access to )?(?:real-time|current|personal))"
"""Not after "I do not have": there a model speaks of itself and then answers."""

DEFAULT_PATTERNS: Final = (
    # The speaker: does not know, does not have, cannot find, is sorry.
    rf"\bi do{_NOT} know\b",
    rf"\b(?:i|we) (?:do|did){_NOT} (?:\w+ )?(?:have|find|see){_HEDGE}[^.]{{0,40}}\b{_KNOWLEDGE}\b",
    rf"\b(?:i|we) (?:have no|lack)(?: the| any)? (?:\w+ )?(?:{_KNOWLEDGE}|idea)\b",
    rf"\b(?:i|we) {_CANNOT} (?:\w+ )?{_FIND}\b",
    rf"\b{_I_AM} (?:unable|not able) to (?:\w+ )?{_FIND}\b",
    rf"\b{_I_AM} (?:not (?:sure|aware|certain)|afraid)\b",
    rf"^(?:unfortunately,? )?(?:{_I_AM} )?(?:\w+ )?(?:sorry|unable to)\b",
    r"^(?:my apologies|i apologi[sz]e)\b",
    # The sources: do not say, say nothing, are not enough.
    rf"\b{_SOURCES}\b[^.]{{0,60}} (?:do|does|did){_NOT} (?:\w+ )?{_MENTION}\b",
    rf"\b{_SOURCES}\b[^.]{{0,60}} {_HAS} no (?:\w+ )?{_KNOWLEDGE}\b",
    rf"\b{_SOURCES}\b[^.]{{0,60}} (?:lacks?|silent|insufficient)\b",
    rf"\bnone of {_THE_SOURCES}\b",
    rf"\b(?:not|\w+n['\u2019]t) (?:\w+ ){{0,2}}(?:in|by|from|within) {_THE_SOURCES}\b",
    # The answer: is not there.
    rf"\b(?:is|are|was|were){_NOT} (?:\w+ly )?(?:mentioned|specified|stated|disclosed|addressed|discussed)\b",
    rf"\b{_KNOWLEDGE}(?: is| are| was| were)? not (?:available|found|provided|given|included|present)\b",
    rf"\bno (?:\w+ ){{0,2}}{_KNOWLEDGE}\b[^.]{{0,60}}\b(?:found|available|given|provided|retrieved|{_THE_SOURCES})\b",
    (
        r"\bthere(?: is| are|['\u2019]s| (?:seems|appears) to be)(?: \w+ly)? no (?:\w+ )?"
        r"(?:information|mention|data|details?|indication)\b"
    ),
    rf"\b(?:not|\w+n['\u2019]t) (?:any|enough|sufficient) (?:\w+ )?{_KNOWLEDGE}\b",
    rf"\binsufficient (?:\w+ )?{_KNOWLEDGE}\b",
    rf"\b{_CANNOT} be (?:\w+ly )?(?:answered|determined|found|inferred|established|verified|confirmed)\b",
    rf"\bit(?: is|['\u2019]s) (?:not clear|unclear|{_HARD}) [^.]{{0,60}}{_THE_SOURCES}\b",
    rf"\bit(?: is|['\u2019]s) {_HARD} to (?:answer|say|tell)\b",
    r"^(?:not (?:found|mentioned|specified|stated|provided|answerable|in context)|no answer|unanswerable)\b",
    r"^(?:unknown|n/a)\W*$",
    # The question: asks too little, or too much.
    rf"\b(?:need|require|provide|without) (?:more|additional|further) (?:\w+ )?{_KNOWLEDGE}\b",
    r"\bcould you (?:please )?(?:clarify|rephrase|specify)\b",
    r"\b(?:outside|beyond) (?:of )?(?:my (?:knowledge|scope)|the scope of (?:the|this|these|my))\b",
)
"""English openings of refusals that are not the token, tried on the folded answer.

Each starts at the first letter of a word and needs one of `_TRIGGERS`; both make the search faster.
"""

_TRIGGERS: Final = (
    *("not", "n't", "n\u2019t", "no ", "none of", "unable", "sorry", "afraid", "apolog", "lack", "silent"),
    *("insufficient", "unclear", "impossible", "difficult", "hard ", "unanswerable", "unknown", "n/a"),
    *("more ", "additional ", "further ", "could you", "outside ", "beyond "),
)


def _compile(patterns: Sequence[str]) -> re.Pattern[str] | None:
    """One expression that finds what any of the patterns finds; None without patterns."""
    if not patterns:
        return None
    any_of = "|".join(f"(?:{pattern})" for pattern in patterns)
    return re.compile(rf"\b(?=\w)(?:{any_of})" if patterns is DEFAULT_PATTERNS else any_of)


@dataclass(frozen=True)
class RefusalRule:
    """What counts as a refusal.

    Args:
        tokens: An answer equal to one of these is a refusal (strip, NFKC, casefold).
        patterns: Regular expressions tried on the start of the folded answer; empty switches the matcher off.
        window: How many characters of the answer the patterns see.
        matcher_counts: A refusal that only the matcher finds is *refused*, not *shipped*.

    Example:
        >>> rule = RefusalRule()
        >>> rule.is_token("not in context"), rule.is_like("i don't have enough information to answer.")
        (True, True)
    """

    tokens: tuple[str, ...] = (REFUSAL_TOKEN,)
    patterns: Sequence[str] = DEFAULT_PATTERNS
    window: int = 120
    matcher_counts: bool = False
    _folded: frozenset[str] = field(init=False, repr=False, compare=False)
    _matcher: re.Pattern[str] | None = field(init=False, repr=False, compare=False)
    _triggers: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        patterns = DEFAULT_PATTERNS if tuple(self.patterns) == DEFAULT_PATTERNS else self.patterns
        object.__setattr__(self, "_folded", frozenset(fold(token.strip()) for token in self.tokens))
        object.__setattr__(self, "_matcher", _compile(patterns))
        # The triggers of custom patterns are unknown; the empty string is in every answer.
        object.__setattr__(self, "_triggers", _TRIGGERS if patterns is DEFAULT_PATTERNS else ("",))

    def is_token(self, folded: str) -> bool:
        """Whether a stripped and folded answer is a refusal token."""
        return folded in self._folded

    def is_like(self, folded: str) -> bool:
        """Whether the matcher finds a refusal in a stripped and folded answer; False where the matcher is off."""
        if self._matcher is None:
            return False
        start = folded[: self.window]
        for trigger in self._triggers:
            if trigger in start:
                return self._matcher.search(start) is not None
        return False
