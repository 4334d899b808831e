"""Seeded trace files of the shape production writes: version-1 records, ten ids each, against 2,000 gold items."""

from __future__ import annotations

import random
from pathlib import Path

from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Latency, Record, Sampling, encode
from ragmon.ingest.gold import GoldSet

ITEMS = 2000
DOCUMENTS = 700
START = 1_763_683_200.0
RATE = 50.0
"""Traces a second of event time."""


def gold_set() -> GoldSet:
    """Two thousand items, a third of them unanswerable."""
    return GoldSet("gold", tuple(_item(i) for i in range(ITEMS)))


def _item(i: int) -> GoldItem:
    answerable = i % 3 != 0
    return GoldItem(
        qid=f"q{i:05d}",
        question=f"what is the value of thing {i} in the handbook?",
        answerable=answerable,
        claim_substrings=[f"value {i} of"] if answerable else None,
        citations=[f"doc{i % DOCUMENTS}#{i % 9}"] if answerable else None,
    )


def write_traces(path: Path, count: int, gold: GoldSet) -> None:
    """Write a file of traces; the same count gives the same bytes."""
    rng = random.Random(7)
    with path.open("wb") as file:
        for place in range(count):
            file.write(encode(_record(rng, place, rng.choice(gold.items))))


TEXT = """
the fee is five euros and due on Monday unless a branch says so since cards were sent by post in May of last year
to all who had none before while others keep theirs until they expire which no later rule has changed so far
"""
WORDS = TEXT.split()


def write_varied(path: Path, count: int, gold: GoldSet) -> None:
    """Write a file of traces of which no two are alike: a third live without gold, one in twenty with contexts."""
    rng = random.Random(11)
    with path.open("wb") as file:
        for place in range(count):
            record = _record(rng, place, rng.choice(gold.items))
            answer = record.answer_json
            if answer is not None and answer.citations:
                record.answer_json = Answer(f"{answer.claim} {_words(rng, 5, 30)}.", answer.citations)
            if place % 3 == 0:
                record.source, record.qid, record.session = "live", None, f"s{rng.randrange(count // 20 + 1)}"
                record.q = f"what about {_words(rng, 4, 9)}?"
            if place % 20 == 7:
                record.contexts = [_words(rng, 80, 80) for _ in range(10)]
            record.ts = START + place + rng.random()
            file.write(encode(record))


def _words(rng: random.Random, least: int, most: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most)))


def _record(rng: random.Random, place: int, item: GoldItem) -> Record:
    ids = [f"doc{rng.randrange(DOCUMENTS)}#{rng.randrange(9)}" for _ in range(10)]
    if item.citations and rng.random() < 0.9:
        ids[min(9, int(rng.expovariate(0.5)))] = item.citations[0]
    refused = rng.random() < (0.1 if item.answerable else 0.93)
    cited = item.citations[0] if item.citations and rng.random() < 0.85 else ids[0]
    claim = f"According to the handbook the value {int(item.qid[1:])} of the thing is set by its rules."
    answer = Answer("not in context", []) if refused else Answer(claim, [cited])
    retrieve, generate = round(rng.lognormvariate(3, 0.3), 1), round(rng.lognormvariate(5.9, 0.5), 1)
    return Record(
        v=1,
        trace_id=f"{rng.getrandbits(128):032x}",
        ts=START + place / RATE,
        pipeline="support",
        source="probe",
        qid=item.qid,
        q=item.question,
        retrieved_ids=ids,
        answer_json=answer,
        latency_ms=Latency(total=round(retrieve + generate, 1), retrieve=retrieve, generate=generate),
        index_hash="3f9a2c81",
        build="2026.11.1",
        sampling=Sampling(audit=True, stratum="rest", p_audit=1.0, p=1.0),
    )
