"""Random groups of clusters: which of 64 groups a request falls into, and counts by group that add up.

What rows keep of clusters is bounded whatever the number of sessions: for each tuple of facts, how many requests fell
into each group. A group follows from the session or the question alone, so the counts are a function of the set of
records: the same in any order, on any machine, in any number of processes.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from ragmon.core.constants import LABEL
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record, is_redacted
from ragmon.core.text import normalise_question
from ragmon.stats.design_effect import GROUPS

Packed = int
"""Numbers by group in one integer, so that adding two of them adds all groups at once."""

_COUNT_BITS: Final = 32
_SUM_BITS: Final = 64
COUNT: Final = tuple(1 << _COUNT_BITS * group for group in range(GROUPS))
"""One request in each group, packed."""
SUM: Final = tuple(1 << _SUM_BITS * group for group in range(GROUPS))
"""A micro-unit of score in each group, packed."""
_counts: Final = struct.Struct(f"<{GROUPS}I")
_sums: Final = struct.Struct(f"<{GROUPS}Q")
_SESSION, _QUESTION, _HASH = range(3)


def group_of(record: Record, item: GoldItem | None, source: str, by: Collection[str]) -> int | None:
    """The group of a record's cluster: its session, or all requests with the same question.

    Requests of a gold item without a session are in none: a number on gold is about this set, and an answer is an
    observation, or about questions like these, and the table of items has the clusters. A label does not keep the
    question of its answer.

    Args:
        record: The record.
        item: Its gold item, or the one a label implies.
        source: The source it is counted under.
        by: Which of `session` and `question` are used.

    Returns:
        The group; None for a record that is a cluster of its own.
    """
    session = record.session
    if session and "session" in by:
        return _group(session, _SESSION)
    if item is not None or source == LABEL or "question" not in by:
        return None
    question, facts = record.q, record.facts
    if question is not None and (facts is None or not is_redacted(record, "q")):
        return _group(normalise_question(question), _QUESTION)
    if facts is not None and facts.question_hash is not None:
        return _group(facts.question_hash, _HASH)
    return None


def _group(text: str, kind: int) -> int:
    """A checksum of a text, mixed: numbered sessions must not spread more evenly than chance.

    Source: the last steps of MurmurHash3 (Appleby, 2011, public domain).
    """
    x = crc32(text.encode("utf-8", "surrogatepass"), kind)
    x = (x ^ x >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    x = (x ^ x >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return (x ^ x >> 16) % GROUPS  # two rounds: of one, groups of numbered sessions are too even


def counts_of(packed: Packed) -> tuple[int, ...]:
    """The requests of each group.

    >>> counts_of(COUNT[0] + 2 * COUNT[3])[:4]
    (1, 0, 0, 2)
    """
    return _counts.unpack(packed.to_bytes(_counts.size, "little"))


def sums_of(packed: Packed) -> tuple[int, ...]:
    """The sum of scores of each group in micro-units."""
    return _sums.unpack(packed.to_bytes(_sums.size, "little"))


def packed_text(packed: Packed) -> str:
    """Packed counts as text, for the saved state, where integers have 64 bits.

    >>> packed_text(COUNT[0] + 12 * COUNT[3])
    '0:1,3:c'
    """
    return ",".join(f"{group}:{n:x}" for group, n in enumerate(counts_of(packed)) if n)


def packed_sums_text(packed: Packed) -> str:
    """Packed sums as text."""
    return ",".join(f"{group}:{n:x}" for group, n in enumerate(sums_of(packed)) if n)


def from_text(text: str, unit: tuple[Packed, ...] = COUNT) -> Packed:
    """Undo `packed_text`; with `SUM`, undo `packed_sums_text`."""
    pairs = (part.split(":") for part in text.split(",") if part)
    return sum(unit[int(group)] * int(n, 16) for group, n in pairs)


@dataclass(slots=True)
class Spread:
    """The scores of one metric by group.

    Attributes:
        by_score: Packed counts of the requests with each score, in micro-units.
        counts: Packed counts of requests with measured scores.
        sums: Packed sums of these scores.
    """

    by_score: dict[int, Packed] = field(default_factory=dict)
    counts: Packed = 0
    sums: Packed = 0

    def add(self, score: int, counts: Packed) -> None:
        """Add requests with one score."""
        self.by_score[score] = self.by_score.get(score, 0) + counts

    def add_measured(self, packed: Iterable[Packed]) -> None:
        """Add counts and sums of measured scores."""
        counts, sums = packed
        self.counts += counts
        self.sums += sums

    def __bool__(self) -> bool:
        return bool(self.by_score or self.counts)

    def totals(self) -> tuple[list[int], list[int]]:
        """The requests of each group, and the sums of their scores in micro-units."""
        counts, totals = list(counts_of(self.counts)), list(sums_of(self.sums))
        for score, packed in self.by_score.items():
            for group, n in enumerate(counts_of(packed)):
                counts[group] += n
                totals[group] += n * score
        return counts, totals
