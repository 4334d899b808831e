"""Random records of every kind the contract allows, and gold items they may belong to."""

from __future__ import annotations

from ragmon.core import constants
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Latency, Record, Sampling, TextFacts
from ragmon.ingest.gold import GoldSet
from tests.support.oracle.draw import drawn
from tests.support.oracle.generators import AROUND, GOLD_CLAIMS, REFUSALS, SUBSTRINGS, TEXTS

IDS = tuple(f"p{number}#{part}" for number in (1, 2, 3) for part in (1, 2))
QIDS = ("a", "b", "c", "d")
NOON = 1_763_683_200.0
"""A multiple of an hour, so that hours and steps are easy to read."""


def item(draw, qid, match="contains"):
    """A gold item that names its documents by id, section or text, or not at all."""
    kind = draw.number(4)
    return GoldItem(
        qid=qid,
        question=f"Question {qid}?",
        answerable=draw.number(3) > 0,
        claim_substrings=draw.one((None, draw.some(SUBSTRINGS, 3))),
        gold_claim=draw.one((None, *GOLD_CLAIMS)),
        citations=draw.some(IDS, 3) if kind < 2 else None,
        sections=draw.some(("p1#", "p2#"), 2) if kind == 2 else None,
        contexts=draw.some(TEXTS, 3) if kind == 3 else None,
        tags=draw.one(({}, {"lang": "de"}, {"lang": "en", "topic": "rivers"})),
        match=match,
    )


def gold_set(draw, name="gold"):
    """A set of up to four items."""
    return GoldSet(name, tuple(item(draw, qid) for qid in draw.distinct(QIDS, 4)))


def told(draw):
    """Decisions that travelled in place of text; any of them may be missing."""
    known = lambda: draw.one((None, True, False))  # noqa: E731 - drawn per field
    fields = ("answered", "refused", "refusal_like", "contains_claim", "contains_gold_claim", "grounded")
    return TextFacts(gold_version=draw.one((None, None, "elsewhere")), **{name: known() for name in fields})


def claim(draw):
    """A refusal, a sentence, or nothing."""
    sentence = draw.one(AROUND) + draw.one(SUBSTRINGS) + draw.one(AROUND)
    return draw.one((sentence, draw.one(TEXTS), draw.one(REFUSALS), "I could not find that.", "", None))


def seconds(draw, spread):
    """A time in steps of half a second, up to `spread` seconds after noon; now and then none."""
    if draw.number(9) == 9:
        return None
    return NOON + (draw.number(255) * 256 + draw.number(255)) / 65536 * spread // 0.5 * 0.5


def record(draw, spread=7200):
    """One record."""
    return Record(
        ts=seconds(draw, spread),
        pipeline=draw.one((None, "support", "sales")),
        source=draw.one((None, *constants.SOURCES)),
        qid=draw.one((None, *QIDS)),
        q=draw.one((None, "question a", "Question B!", "another")),
        retrieved_ids=draw.one((draw.some(IDS, 8), None, [])),
        candidate_ids=draw.one((None, draw.some(IDS, 8, 0))),
        contexts=draw.one((None, draw.some(TEXTS, 4, 0))),
        answer_json=draw.one((Answer(claim(draw), draw.one((None, draw.some(IDS, 3, 0)))), None, Answer())),
        error=draw.one((None, None, None, "", "timeout")),
        latency_ms=draw.one((None, Latency(total=draw.number(255) * 10.0), Latency(retrieve=0.0, generate=7.5))),
        index_hash=draw.one((None, "i1", "i2")),
        build=draw.one((None, "b1")),
        sampling=draw.one((None, None, Sampling(), Sampling(audit=False, stratum="refusal", p_audit=0.1, p=0.5))),
        facts=draw.one((None, None, told(draw))),
        partial=draw.number(5) == 5,
        tags=draw.one((None, {"lang": "de"}, {"lang": "fr"}, {"topic": "rivers"})),
        verdicts=draw.one((None, None, [bool(draw.number(1)) for _ in range(draw.number(5))])),
        measures=draw.one((None, None, {"groundedness": draw.number(20) / 20}, {"answer_correct": draw.number(1)})),
    )


def worlds(most=30, spread=7200):
    """A gold set and records, some of them about its items."""
    return drawn(
        lambda draw: (gold_set(draw), [record(draw, spread) for _ in range(draw.number(most))]), 100 + 60 * most
    )


def pairs():
    """One gold item and one record about it."""
    return drawn(lambda draw: (item(draw, "a"), record(draw)), 160)
