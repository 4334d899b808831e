"""The tokens of seed-004's groundedness.

The README says that stop words are removed and does not list them. The list below is ragmon's own: common English
function words, about as many as the original is said to hold. On a text where the two lists differ, so does the figure.
"""

from __future__ import annotations

import re
from typing import Final

_WORD = re.compile(r"[a-z0-9]+")

_WORDS = """
an the this that these those
am is are was were be been being has have had having do does did
can could may might must shall should will would
he him his she her it its we us our they them their you your my me
who whom whose which what when where why how
and or but nor so yet if than then because while as until
of to in on at by for from with into onto over under about between among through during before after
above below up down out off against without within
all any both each every few more most other some such no not only own same too very just also
here there again once ever
"""
STOP_WORDS: Final = frozenset(_WORDS.split())
"""English function words of two letters or more (shorter tokens are dropped anyway)."""


def tokens(text: str) -> list[str]:
    """Runs of ASCII letters and digits, lower case, without stop words and single characters, repeats kept.

    >>> tokens("The model's F1 is 0.91, a new high")
    ['model', 'f1', '91', 'new', 'high']
    """
    return [word for word in _WORD.findall(text.lower()) if len(word) > 1 and word not in STOP_WORDS]


def groundedness(answer: str, context: str) -> float:
    """Share of the answer's tokens, repeats counted, that occur in the context; 1 for an answer without tokens.

    >>> groundedness("Paris, Paris or Lyon", "Paris is the capital of France")
    0.6666666666666666
    """
    said = tokens(answer)
    if not said:
        return 1.0
    known = set(tokens(context))
    return sum(word in known for word in said) / len(said)
