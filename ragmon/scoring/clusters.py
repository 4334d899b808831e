"""Which requests belong together: those of a session or with the same question, hashed: a checkpoint holds no text.

Windows keep of clusters into which of 64 random groups they fall: for each tuple of facts, how many requests fell into
each group, which is bounded whatever the number of sessions. A group follows from the session or the question alone, so
the counts are a function of the set of records: the same in any order, on any machine, in any number of processes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final
from zlib import crc32

import msgspec

from ragmon.core.constants import ALSO_LIVE_SOURCES, LABEL, LIVE
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record, is_redacted
from ragmon.core.text import normalise_question
from ragmon.stats.clusters import GROUPS

CLUSTER: Final = ("session", "question")
"""What makes one observation of several requests."""
HASH_DIGITS: Final = 16
"""Hexadecimal digits of the hash of a session or a question."""
_RECENT: Final = 4096
"""Sessions and questions whose hashes are cached: a request that matches gold is counted twice."""


class Membership(msgspec.Struct, frozen=True, order=True, gc=False, cache_hash=True, array_like=True):
    """The groups a request is in. Requests in the same groups of a step are counted together.

    A minute holds tens of thousands of them: the garbage collector does not visit them, and each is hashed once.

    Attributes:
        session: The hash of its session; "" without one.
        question: The hash of its question, or the id of its gold item; "" without one.
        alone: What makes it a cluster of its own in every step: its gold item if its order is ours, else its trace id
            where nothing else is known.
    """

    session: str = ""
    question: str = ""
    alone: str = ""

    @property
    def item(self) -> str:
        """The id of its gold item, where it has one."""
        return self.question or self.alone

    @property
    def name(self) -> str:
        """What it is kept or left out with: its session, so that a session is there as a whole."""
        return self.session or self.question or self.alone


def names_of(members: Iterable[Membership]) -> list[str]:
    """The name of each membership; a call for each would double what a cut of a minute costs."""
    return [member.session or member.question or member.alone for member in members]


def cluster_of(record: Record, item: GoldItem | None, by: Collection[str] = CLUSTER) -> str:
    """The cluster of a record: its gold item, its session, or all requests with the same question.

    Sessions and questions are hashed, because a checkpoint holds no text.

    Args:
        record: The record.
        item: Its gold item.
        by: Which of `session` and `question` are used.
    """
    if item is not None:
        return item.qid
    return _session(record, by) or _question(record, by) or record.trace_id or ""


def membership(record: Record, item: GoldItem | None, source: str, by: Collection[str] = CLUSTER) -> Membership:
    """The groups of a record. Who asks the gold items of a run or of probes is us: each item is a cluster there.

    Args:
        record: The record.
        item: Its gold item.
        source: The source it is counted under.
        by: Which of `session` and `question` are used.
    """
    if item is not None:
        users = source == LIVE or source in ALSO_LIVE_SOURCES
        return Membership(_session(record, by), item.qid) if users else Membership("", "", item.qid)
    session, question = _session(record, by), _question(record, by)
    return Membership(session, question, "" if session or question else record.trace_id or "")


def _session(record: Record, by: Collection[str]) -> str:
    session = record.session
    return _digest("s", session) if session and "session" in by else ""


def _question(record: Record, by: Collection[str]) -> str:
    return question_of(record) if "question" in by else ""


def question_of(record: Record) -> str:
    """The hash of a record's question; "" where the question is not known."""
    question, facts = record.q, record.facts
    if question is not None and (facts is None or not is_redacted(record, "q")):
        return _digest("q", normalise_question(question))
    if facts is not None and facts.question_hash is not None:
        return facts.question_hash[:HASH_DIGITS]
    return ""


@lru_cache(_RECENT)
def _digest(kind: str, text: str) -> str:
    return blake2b(f"{kind}{text}".encode("utf-8", "surrogatepass"), digest_size=HASH_DIGITS // 2).hexdigest()


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
