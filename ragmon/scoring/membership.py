"""Which requests belong together: session and question, hashed, because a checkpoint holds no text."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec

from ragmon.core.constants import ALSO_LIVE_SOURCES, LIVE
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record, is_redacted
from ragmon.core.text import normalise_question

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
