"""Random groups of clusters: which of 64 groups a request falls into.

What buckets keep of clusters is bounded whatever the number of sessions: for each tuple of facts, how many requests
fell into each group. A group follows from the session or the question alone, so the counts are a function of the set of
records: the same in any order, on any machine, in any number of processes.
"""

from __future__ import annotations

from collections.abc import Collection
from zlib import crc32

from ragmon.core.constants import LABEL
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record, is_redacted
from ragmon.core.text import normalise_question
from ragmon.stats.design_effect import GROUPS

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
