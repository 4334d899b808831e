"""The recorded answers every stream draws from: questions of SQuAD 2.0 and what real systems said to them."""

from __future__ import annotations

import gzip
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bench.scenario.published import passes
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer
from ragmon.ingest.gold import GoldSet

DATA: Final = Path(__file__).parents[2] / "tests" / "data" / "squad2"
SYSTEM: Final = "bert"
"""The system in production."""
GUESSER: Final = "extractive"
"""The system whose answers stand in for made-up ones: it answers where the other refuses."""

ITEMS: Final = 600
FAILING: Final = 30
"""Gold items the system gets wrong on the day of its release: one in twenty."""
_CHOICE: Final = 20_251_121
"""Seed of the gold set: every stream has the same one."""
_TOPIC: Final = 150
"""Questions an article must have more than to be what everybody asks about."""


class Reply(NamedTuple):
    """What a system answered to one question. Replies are shared: nobody changes the lists in them.

    Attributes:
        qid: The question's id.
        question: Its text.
        retrieved_ids: Ids in rank order.
        claim: The answer's text.
        citations: The ids it cites; None where it gave no list.
        error: What went wrong instead of an answer.
    """

    qid: str
    question: str
    retrieved_ids: list[str]
    claim: str
    citations: list[str] | None
    error: str | None = None

    @property
    def answer(self) -> Answer | None:
        """The answer as the trace contract has it."""
        return Answer(self.claim, self.citations) if self.error is None else None


@dataclass(frozen=True, eq=False)
class Pool:
    """What a stream may ask.

    Attributes:
        gold: The sentinel gold set.
        probes: The replies to its questions.
        organic: The replies to all other questions; users ask these.
        unanswerable: Those of them that are known to have no answer.
        topics: Those of them by article, where an article has many.
        replies: All of them.
        guesses: The other system's replies to the same questions, by qid.
    """

    gold: GoldSet
    probes: tuple[Reply, ...]
    organic: tuple[Reply, ...]
    unanswerable: tuple[Reply, ...]
    topics: Mapping[str, tuple[Reply, ...]]
    replies: tuple[Reply, ...]
    guesses: Mapping[str, Reply]


@cache
def pool() -> Pool:
    """The recorded answers, read once."""
    replies, written = _replies(SYSTEM), GoldSet.load(DATA / "gold.jsonl.gz")
    gold = _sentinel(written, replies)
    chosen, items = {item.qid for item in gold}, {item.qid: item for item in written}
    organic = tuple(reply for qid, reply in replies.items() if qid not in chosen)
    topics: dict[str, list[Reply]] = {}
    for reply in organic:
        item = items.get(reply.qid)
        named = (item.citations if item else None) or reply.retrieved_ids
        topics.setdefault(named[0].rpartition("#")[0], []).append(reply)
    return Pool(
        gold=gold,
        probes=tuple(replies[item.qid] for item in gold),
        organic=organic,
        unanswerable=tuple(r for r in organic if r.qid in items and not items[r.qid].answerable),
        topics={name: tuple(topics[name]) for name in sorted(topics) if len(topics[name]) > _TOPIC},
        replies=tuple(replies.values()),
        guesses=_replies(GUESSER),
    )


def _sentinel(written: GoldSet, replies: Mapping[str, Reply]) -> GoldSet:
    """A gold set as a team keeps it: mostly questions the system answers, and a few it is known to fail."""
    right: list[GoldItem] = []
    wrong: list[GoldItem] = []
    for item in written:
        reply = replies[item.qid]
        (right if passes(reply.answer, reply.retrieved_ids, item) else wrong).append(item)
    rng = random.Random(_CHOICE)
    return GoldSet("gold", (*rng.sample(right, ITEMS - FAILING), *rng.sample(wrong, FAILING)))


class _Said(msgspec.Struct):
    claim: str
    citations: list[str]


class _Line(msgspec.Struct):
    qid: str
    q: str
    retrieved_ids: list[str]
    answer_json: _Said


def _replies(system: str) -> dict[str, Reply]:
    """What one system said, by qid, in the order of the data set."""
    with gzip.open(DATA / "traces" / f"{system}.jsonl.gz") as file:
        lines = msgspec.json.Decoder(_Line).decode_lines(file.read())
    return {
        line.qid: Reply(line.qid, line.q, line.retrieved_ids, line.answer_json.claim, line.answer_json.citations)
        for line in lines
    }
