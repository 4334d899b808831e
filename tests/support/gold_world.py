"""A server whose probes asked gold questions for eight hours, with labels of two people and a judge."""

from __future__ import annotations

import json
from contextlib import contextmanager

from ragmon.core.record import Answer, Record
from ragmon.server.state import Clock
from ragmon.testing import FakeClock
from tests.support.serving import accounted, post, send_body, serving, whole
from tests.support.waiting import wait_for

CONFIG = """
[pipelines.support]
[gold.main]
path = "gold.jsonl"
[judges.strict]
url = "http://127.0.0.1:9/v1"
model = "small"
kind = "faithfulness"
"""
ITEMS = 40
ASKED = 36
"""The first so many items are asked, once in ten minutes."""
NEVER = ("q1", "q2")
"""Items that are never answered rightly."""
BROKEN = {f"q{k}": 6 * 60 + 10 * (k - 10) for k in range(10, 16)}
"""Items that are wrong from a minute on."""
MENDED = {"q20": 5 * 60}
"""Items that are right from a minute on."""
UNANSWERABLE = "q30"
"""An item that is refused, and rightly so."""
TEXTS = ("zebra", "walrus", "narwhal", "okapi")
"""Words of gold questions, of answers, of questions of users, and of the question that cannot be answered."""
MINUTES = 8 * 60
BEGIN = 1_763_683_200.0
USERS = 240
"""Answers to users, half an hour before the end."""
RATED = 120
"""Answers that ada rates; bob rates every second of them, and says otherwise of every tenth."""


def is_wrong(qid, minute):
    """Whether an item is answered wrongly in a minute."""
    if qid in MENDED:
        return minute < MENDED[qid]
    return qid in NEVER or (qid in BROKEN and minute >= BROKEN[qid])


def probes(minute, now):
    """The answers to every item in a round."""
    for k in range(ASKED):
        qid = f"q{k}"
        refuses = is_wrong(qid, minute) or qid == UNANSWERABLE
        yield Record(
            v=1,
            trace_id=f"{(minute + 1) * 1000 + k:032x}",
            ts=now,
            pipeline="support",
            source="probe",
            qid=qid,
            answer_json=Answer(claim="not in context" if refuses else TEXTS[1], citations=[] if refuses else ["d"]),
            retrieved_ids=["d"],
            build="v1",
        )


def users(now):
    """Answers to users, which a judge scored."""
    for k in range(USERS):
        yield Record(
            v=1,
            trace_id=f"{10**9 + k:032x}",
            ts=now,
            pipeline="support",
            source="live",
            q=f"where is the {TEXTS[2]} {k}",
            answer_json=Answer(claim=TEXTS[1], citations=["d"]),
            measures={"judge_strict": 1.0 if k % 4 else 0.0},
            judge_versions={"judge_strict": "v7"},
        )


def labels(now):
    """What two people say of the answers."""
    for k in range(RATED):
        said = {"trace_id": f"{10**9 + k:032x}", "ts": now, "correct": bool(k % 4) != (k % 15 == 0)}
        yield {**said, "rater": "ada"}
        if k % 2 == 0:
            yield {**said, "rater": "bob", "correct": said["correct"] != (k % 10 == 0)}


@contextmanager
def gold_world(folder, config=CONFIG):
    """A server in this process; its clock stands still at the end.

    Args:
        folder: Where its configuration and its state lie.
        config: The configuration.
    """
    item = {"gold_claim_substr": [TEXTS[1]], "gold_citations": ["d"], "answerable": True}
    rows = [{"qid": f"q{k}", "question": f"what is {TEXTS[0]} {k}", **item} for k in range(ITEMS)]
    rows[int(UNANSWERABLE[1:])] = {"qid": UNANSWERABLE, "question": f"who knows the {TEXTS[3]}", "answerable": False}
    (folder / "gold.jsonl").write_text("\n".join(map(json.dumps, rows)))
    moved = FakeClock(BEGIN)
    with serving(folder, config, clock=Clock(wall=moved, passed=moved)) as running:
        for minute in range(0, MINUTES, 10):
            sent = list(probes(minute, moved.now))
            if minute == MINUTES - 30:
                sent += users(moved.now)
            send_body(running, whole(sent))
            moved.advance(600.0)
        accounted(running)
        said = list(labels(moved.now))
        status, told = post(f"{running.otlp}/v1/labels", said)
        assert status == 200, told
        wait_for(running.status, lambda status: sum(status["labels"].values()) == len(said))
        running.moved = moved
        yield running
