"""Is this answer a refusal? The exact token is the contract; a matcher finds the wordings around it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ragmon.names import REFUSAL_TOKEN
from ragmon.text import fold

DEFAULT_PATTERNS: Final = (
    r"\b(?:i|we) (?:do not|don['’]t|did not|didn['’]t) (?:have|find|know|see)\b",
    r"\b(?:i|we)(?: am| are|['’]m|['’]re) (?:sorry|unable|not able|not sure|not aware)\b",
    r"\b(?:i|we) (?:cannot|can ?not|can['’]t|could not|couldn['’]t) (?:find|answer|provide|determine|help|confirm|say)\b",
    r"\bno (?:\w+ )?(?:information|evidence|mention|answer|data)\b[^.]{0,40}\b(?:found|available|given|provided|context)\b",
    r"\bthere is(?: currently)? (?:no|not enough) (?:\w+ )?(?:information|evidence|data|record|answer)\b",
    r"\b(?:is|are|was|were)(?: not|n['’]t) (?:mentioned|specified|stated|provided|given|available|known|clear|included)\b",
    r"\b(?:does|do|did)(?: not|n['’]t) (?:mention|specify|state|provide|contain|include|say|appear)\b",
    r"\bnot (?:in|found in|part of) the (?:provided |given )?(?:context|documents?|sources?|text)\b",
    r"\b(?:it is|it['’]s) (?:not (?:possible|clear)|unclear|impossible|difficult) to\b",
    r"\bunable to (?:find|answer|determine|provide|confirm)\b",
    r"\b(?:cannot|can['’]t) be (?:answered|determined|found)\b",
    r"\b(?:need|require) more (?:information|context|details)\b",
    r"\bas an ai\b",
)
"""English openings of refusals that are not the token."""

_TRIGGERS: Final = ("not", "n't", "n’t", "no ", "unable", "sorry", "unclear", "impossible", "difficult", "more ", "an ai")
"""Every default pattern needs one of these: looking for them first spares most answers the regular expression."""


@dataclass(frozen=True)
class RefusalRule:
    """What counts as a refusal.

    Args:
        tokens: Answers that are refusals when they are equal to one of these (strip, NFKC, casefold).
        patterns: Regular expressions tried on the start of the folded answer; empty switches the matcher off.
        window: How many characters of the answer the patterns see.
        matcher_counts: A refusal only the matcher finds is *refused*, not *shipped*.
    """

    tokens: tuple[str, ...] = (REFUSAL_TOKEN,)
    patterns: Sequence[str] = DEFAULT_PATTERNS
    window: int = 120
    matcher_counts: bool = False
    _folded: frozenset[str] = field(init=False, repr=False, compare=False)
    _matcher: re.Pattern[str] | None = field(init=False, repr=False, compare=False)
    _triggers: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        folded = frozenset(fold(token.strip()) for token in self.tokens)
        object.__setattr__(self, "_folded", folded)
        triggers = _TRIGGERS if self.patterns is DEFAULT_PATTERNS else ("",)
        object.__setattr__(self, "_triggers", triggers)
        combined = "|".join(f"(?:{pattern})" for pattern in self.patterns)
        object.__setattr__(self, "_matcher", re.compile(combined) if combined else None)

    def is_token(self, folded: str) -> bool:
        """Whether a stripped and folded answer is a refusal token."""
        return folded in self._folded

    def is_like(self, folded: str) -> bool:
        """Whether the matcher calls a folded answer a refusal; False where the matcher is off."""
        if self._matcher is None:
            return False
        start = folded[: self.window]
        for trigger in self._triggers:
            if trigger in start:
                return self._matcher.search(start) is not None
        return False
