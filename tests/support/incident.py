"""A server with two hours of traffic and an incident at the end, for tests that look at its pages."""

from __future__ import annotations

import json
import random
from contextlib import contextmanager

from ragmon.core.record import Answer, Latency, Record
from ragmon.server.state import Clock
from ragmon.testing import FakeClock
from tests.support.serving import accounted, send_body, serving, whole
from tests.support.waiting import wait_for

NASTY = ["<script>alert(1)</script>", "\u202egnp.exe", "x" * 10_000]
"""Names of builds that try to become something else than text."""
CONFIG = """
[pipelines.support]
[pipelines.harbour]
[gold.main]
path = "gold.jsonl"
[links]
trace = "https://token:secret@traces.example/{trace_id}"
"""
GOLD = {"gold_claim_substr": ["x"], "gold_citations": ["d"], "answerable": True}
BEGIN = 1_763_683_200.0
"""When its traffic begins, seconds since the epoch."""
MINUTES = 120
BROKE = 90
"""The minute in which build v2 comes, which refuses a third of the questions."""
PER_MINUTE = 12


def records(minute, now, rng, builds):
    """The requests of a minute."""
    for k in range(PER_MINUTE):
        item, number = rng.randrange(30), minute * PER_MINUTE + k
        refuses = rng.random() < (0.35 if minute >= BROKE else 0.02)
        yield Record(
            v=1,
            trace_id=f"{number + 1:032x}",
            ts=now + k,
            pipeline="support",
            source=("live", "probe")[k % 2],
            qid=f"q{item}" if k % 2 else None,
            q=f"what is {item}",
            answer_json=Answer(claim="not in context" if refuses else "x", citations=[] if refuses else ["d"]),
            retrieved_ids=["d", "e"][: 1 + k % 2],
            latency_ms=Latency(total=300.0 + 10 * item, retrieve=40.0),
            build=builds[minute >= BROKE],
            index_hash="index-1",
        )


@contextmanager
def incident(folder, builds=("v1", "v2")):
    """A server in this process that has seen an incident; its clock stands still at the end.

    Args:
        folder: Where its configuration and its state lie.
        builds: The build before the incident, and the one that brings it.
    """
    items = [
        {
            "qid": f"q{k}",
            "question": f"what is {k}",
            "gold_claim_substr": ["x"],
            "gold_citations": ["d"],
            "answerable": True,
        }
        for k in range(30)
    ]
    (folder / "gold.jsonl").write_text("\n".join(map(json.dumps, items)))
    moved, rng = FakeClock(BEGIN), random.Random(19)
    clock = Clock(wall=moved, passed=moved)
    with serving(folder, CONFIG, clock=clock) as running:
        for minute in range(MINUTES):
            sent = list(records(minute, moved.now, rng, builds))
            moved.advance(60.0)
            send_body(running, whole(sent))
        accounted(running)
        wait_for(running.status, lambda status: status["alarms"])
        running.moved, running.folder = moved, folder
        yield running
