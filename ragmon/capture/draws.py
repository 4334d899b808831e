"""The draws that decide which calls are kept, and how likely each was to be kept.

Imported on the request path: the standard library alone.
"""

from __future__ import annotations

import os
from random import Random
from typing import Final, NamedTuple

RANDOM_BITS: Final = 56
"""Bits of a trace id the audit draw is read from, so every service and replica decides alike (OTEP 235)."""
SPAN: Final = 1 << RANDOM_BITS

# Not the module's own generator: an application that seeds that one would decide what is kept, and be disturbed.
_generator: Final = Random()  # noqa: S311 - a sample, not a secret
random: Final = _generator.random
getrandbits: Final = _generator.getrandbits
os.register_at_fork(after_in_child=_generator.seed)


class Odds(NamedTuple):
    """How the audit draw of a call went, and how likely that was.

    Attributes:
        audit: The call won the draw.
        p_audit: The probability of winning it, over all calls.
        p_parent: The probability that the call was eligible at all: its parent was sampled where that is respected.
        known: Whether these probabilities are known.
    """

    audit: bool
    p_audit: float
    p_parent: float = 1.0
    known: bool = True

    def p(self, keep: float) -> float:
        """The probability that a call of a stratum is kept, by either draw.

        Args:
            keep: The rate at which its stratum is kept.

        Source: two independent draws, so 1 - (1 - audit)(1 - keep) among eligible calls.

        >>> round(Odds(audit=False, p_audit=0.05).p(0.2), 10)
        0.24
        """
        if not self.p_parent:
            return 1.0
        audit = min(1.0, self.p_audit / self.p_parent)
        return self.p_parent * (1.0 - (1.0 - audit) * (1.0 - keep))


def threshold(rate: float) -> int:
    """The smallest draw that is kept at a rate, so that a higher rate keeps a superset (OTEP 235).

    >>> threshold(1.0), threshold(0.0) == 1 << 56
    (0, True)
    """
    return SPAN - round(rate * SPAN)


def trace_id(bits: int, lowest: int, *, won: bool) -> int:
    """A trace id whose low bits say how the draw went.

    Args:
        bits: 136 random bits.
        lowest: The smallest draw that is kept.
        won: Whether the draw was won.

    >>> trace_id((1 << 136) - 1, threshold(0.25), won=False) % (1 << 56) < threshold(0.25)
    True
    """
    chance = bits & 0xFFFF_FFFF_FFFF_FFFF
    draw = lowest + (chance * (SPAN - lowest) >> 64) if won else chance * lowest >> 64
    return (bits >> 64 << RANDOM_BITS) | draw
