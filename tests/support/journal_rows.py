"""Rows of a journal with records of every kind, of which most are plain, as they come to a server."""

from __future__ import annotations

import json
import random
from pathlib import Path

from ragmon.config.load import load
from ragmon.core.record import Answer, Label, Latency, Record, Sampling, TextFacts, Totals, encode
from ragmon.server.state import ServerState
from ragmon.stream.chunk import BatchCounts

NOON = 1_763_683_200.0
CONFIG = """[serve]
state_dir = "state"
[gold.main]
path = "gold.jsonl"
[gates.citation_scope]
at_least = 0.9
[gates.coverage]
at_least = 0.9
[gates.refusal_rate]
at_most = 0.2
"""
TEXTS = ("so it is", "I do not know", "not in context", "", 'Straße "7"\n')


def settings(folder: Path, more: str = ""):
    """The configuration of a server with a gold set of twenty questions."""
    with (folder / "gold.jsonl").open("w") as file:
        for number in range(20):
            item = {"qid": f"g{number}", "q": f"what is {number}?", "answerable": True}
            file.write(json.dumps({**item, "gold_citations": [f"d{number}"]}) + "\n")
    (folder / "ragmon.toml").write_text(CONFIG + more)
    return load(folder / "ragmon.toml", environ={})


class Rows:
    """Seeded rows.

    Args:
        seed: Where everything comes from.
    """

    def __init__(self, seed: int) -> None:
        self.rng, self.now, self.calls = random.Random(seed), NOON, 0

    def rows(self, count):
        """Arrival and entries of each row."""
        for _ in range(count):
            self.now += self.rng.choice([0.2] * 40 + [1, 1, 1, 2, 3, 20, 61, 400])
            entries = [self.record() for _ in range(self.rng.choice((3, 20, 60, 200)))]
            if self.rng.random() < 0.1:
                label = Label(trace_id=self.rng.choice(entries).trace_id, rater="ada", correct=True)
                entries.insert(self.rng.randrange(len(entries)), label)
            if self.rng.random() < 0.4:
                entries.insert(self.rng.randrange(len(entries)), self.totals())
            yield self.now, entries

    def totals(self):
        """What a producer has called so far."""
        names = {"pipeline": self.rng.choice(("support", "shop", "new")), "source": "live", "stratum": "rest"}
        self.calls += self.rng.randrange(1000)
        return Totals(ts=self.now, instance=self.rng.choice("abc"), started=NOON, calls=self.calls, kept=3, **names)

    def often(self, usual, *rare, share=0.03):
        """The usual value, or now and then a rare one."""
        return self.rng.choice(rare) if self.rng.random() < share else usual

    def facts(self):
        """What was decided about texts that stayed elsewhere."""
        one = self.rng.choice
        return TextFacts(
            answered=one((True, True, True, False, None)),
            refused=one((False, False, True, None)),
            refusal_like=one((None, False, True)),
            question_hash=self.often(None, "ab" * 32, "", share=0.1),
            question_chars=one((None, 17)),
            claim_chars=one((None, 230)),
            contexts=one((None, 3)),
            grounded=one((None, True, False)),
            cut=self.often(None, ["claim"]),
        )

    def time(self):
        """Just now, or now and then long ago, ahead, or unknown."""
        return self.often(self.now - self.rng.random(), self.now - 300, self.now - 4000, self.now + 400, None)

    def record(self):
        """A record, plain in most cases."""
        rng, one = self.rng, self.rng.choice
        ids = [f"d{rng.randrange(40)}" for _ in range(rng.randrange(6))]
        has_text = rng.random() < 0.3
        question = one(("Why?", f"Frage {rng.randrange(30)} ü?", f"what is {rng.randrange(20)}?"))
        sampling = Sampling(rng.random() < 0.8, self.often("rest", "error", "unknown_weight"), 0.1, 0.5)
        return Record(
            v=1,
            trace_id=f"{rng.getrandbits(128):032x}",
            ts=self.time(),
            pipeline=one(("support", "support", "shop")),
            source=self.often("live", "probe"),
            q=question if has_text else None,
            qid=self.often(None, "g3"),
            retrieved_ids=one((ids, ids, ids, None)),
            scores=[rng.random() * one((1, -1, 1e-7)) for _ in ids] if rng.random() < 0.6 else None,
            answer_json=one(
                (None, Answer(one(TEXTS) if has_text else None, one((None, [], ids[:2], ["elsewhere"]))), Answer())
            ),
            latency_ms=one((None, Latency(rng.random() * 1000, rng.random() * 10), Latency())),
            build=self.often("b1", "b2", None),
            index_hash=self.often("i1", None),
            model=self.often(None, "m1"),
            session=one((None, "", f"s{rng.randrange(15)}")),
            sampling=self.often(sampling, None),
            facts=None if has_text else self.facts(),
            partial=rng.random() < 0.1,
            exported=one((None, True, False)),
            error=self.often(None, "Boom", ""),
            measures=self.often(None, {"groundedness": 0.4}),
        )


def applied(configured, rows):
    """A server's state after some rows, with the requests that failed a gate."""
    state, failures = ServerState(configured), []
    for seq, (now, entries) in enumerate(rows, 1):
        state.apply(seq, now, BatchCounts(), entries, lines=b"".join(map(encode, entries)))
        failures += sorted(state.failures, key=lambda failure: failure.line)
        state.failures.clear()
        last = now
    state.engine.advance(last + 300)
    return state, failures
