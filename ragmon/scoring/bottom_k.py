"""Bottom-k samples: of too many clusters, those whose names have the smallest hashes are kept.

The sample is uniform over clusters, and it adds up: a name among the k smallest of a whole is among the k smallest of
every part that has it, so everything about it was kept there. What is cut and merged in any order is therefore what a
cut of the whole would be (bottom-k sketches; Cohen and Kaplan 2007, "Summarizing data using bottom-k sketches").
What was left out once may come back for a while, and is left out again at the next cut: k smaller ones stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from msgspec.structs import astuple

from ragmon.scoring.membership import HASH_DIGITS, Membership, names_of

CLUSTERS: Final = 4096
"""Clusters of one place that a minute keeps: with so many observations a minute decides what it ever can."""
MEMBERS: Final = 16
"""Memberships of one cluster that a minute keeps: a session that asks more questions a minute is a crawler."""
_MIX: Final = 0x9E37_79B9_7F4A_7C15
_MASK: Final = (1 << 64) - 1
"""An odd factor that spreads numbers over 64 bits (multiplicative hashing; Knuth, volume 3, section 6.4): names that
look like hashes and are counted up are no worse than hashes."""
ROOM: Final = 2 * CLUSTERS
"""Memberships from which a cut is made in the middle of a minute."""


@lru_cache(2 * ROOM)  # a name is ranked wherever it is counted, and at every cut
def rank(name: str) -> int:
    """The hash of a name, the same in every process: names with the smallest are kept.

    >>> rank("a") == rank("a") != rank("b")
    True
    """
    if len(name) == HASH_DIGITS:  # sessions and questions are hashes already
        try:
            return int(name, 16) * _MIX & _MASK
        except ValueError:
            pass
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def left_out(members: Iterable[Membership], clusters: int = CLUSTERS, most: int = MEMBERS) -> list[Membership]:
    """The memberships that are not kept.

    Args:
        members: The memberships.
        clusters: Names that are kept at most.
        most: Memberships of one name that are kept at most.
    """
    every = list(members)
    names = names_of(every)
    found, sizes = list[Membership](), Counter(names)
    if len(sizes) > clusters:
        ranks = list(map(rank, sizes))
        largest = sorted(ranks)[clusters - 1]
        kept = {name for name, ranked in zip(sizes, ranks, strict=True) if ranked <= largest}
        found = [member for member, name in zip(every, names, strict=True) if name not in kept]
        sizes = Counter({name: sizes[name] for name in kept})
    crowded: dict[str, list[Membership]] = {name: [] for name, size in sizes.items() if size > most}
    for member, name in zip(every, names, strict=True) if crowded else ():
        if name in crowded:
            crowded[name].append(member)
    for together in crowded.values():
        found += sorted(together, key=_rank_within)[most:]
    return found


def _rank_within(member: Membership) -> int:
    """The rank of a membership among those of its name."""
    return rank("\0".join(astuple(member)))
