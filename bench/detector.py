"""What alarms cost: microseconds a detector's step, and a whole pipeline's minute.

`python -m bench.detector`: CPU time, the best of some rounds, beside `json.loads` on a trace line in the same run.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from time import process_time

from bench.data import gold_set
from bench.groundedness import texts
from ragmon.alarms.detector import Alarm, Detector
from ragmon.alarms.observations import Observations
from ragmon.alarms.pipelines import AlarmEngine, PipelineAlarms
from ragmon.alarms.plan import AlarmRule
from ragmon.config.load import defaults
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Latency, Record, encode
from ragmon.scoring.minutes import Minute
from ragmon.scoring.scorer import Scorer, ScorerFactory

START = 1_763_683_200.0
WARM, TIMED = 120, 300
"""Minutes until every baseline is in use, and minutes that are timed."""
ROUNDS = 5
REPEATS = 20_000
MOST = 5.0
"""The budget of an update, in microseconds."""
STEPS = {
    "3 observations": Observations(ones=2, zeros=1),
    "60 observations": Observations(ones=49, zeros=11),
    "3 observations, one of them graded": Observations(ones=1, zeros=1, parts=(0.4,)),
    "60 observations, ten of them graded": Observations(ones=42, zeros=8, parts=tuple(i / 11 for i in range(1, 11))),
}


def microseconds(work: Callable[[], object], times: int) -> float:
    """CPU microseconds of one of so many repetitions that `work` does."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = process_time()
        work()
        best = min(best, process_time() - started)
    return best / times * 1e6


def update(seen: Observations) -> None:
    """The same step again and again, at one level."""
    detector = Detector()
    for _ in range(REPEATS):
        detector.update(seen, 0.8)
        detector.clear()  # the wealth would outgrow a double


def step(seen: Observations) -> None:
    """The same step of a silent alarm again and again: its detector's, and what its proof would rest on."""
    rule = AlarmRule("precision", "answer_precision", "page", at_least=True, kind="gate", threshold=1e6)
    alarm = Alarm()
    for minute in range(REPEATS):
        alarm.step(rule, minute, seen, 0.3)


def loads(line: bytes) -> None:
    """`json.loads`, again and again."""
    for _ in range(REPEATS):
        json.loads(line)


class Traffic:
    """A healthy pipeline: every minute 60 user questions and 3 gold questions."""

    def __init__(self) -> None:
        self.rng = random.Random(7)
        self.gold = gold_set()
        self.items = self.gold.items
        self.questions = texts(self.rng, 5_000, 60)

    def minute(self) -> Iterator[Record]:
        """Its records, without their time."""
        for question in self.rng.sample(self.questions, 60):
            yield self._record("live", question, "According to the handbook it is set by its rules.", None)
        for item in self.rng.sample(self.items, 3):
            claim = f"According to the handbook the {item.claim_substrings[0]} it." if item.claim_substrings else None
            yield self._record("probe", item.question or "", claim, item)

    def _record(self, source: str, question: str, claim: str | None, item: GoldItem | None) -> Record:
        rng = self.rng
        ids = [f"doc{rng.randrange(700)}#{rng.randrange(9)}" for _ in range(10)]
        if item is not None and item.citations and rng.random() < 0.97:
            ids[0] = item.citations[0]
        refused = claim is None or rng.random() < 0.03
        return Record(
            v=1,
            trace_id=f"{rng.getrandbits(128):032x}",
            source=source,
            qid=None if item is None else item.qid,
            q=question,
            retrieved_ids=ids,
            scores=sorted((rng.uniform(0.5, 0.9) for _ in ids), reverse=True),
            answer_json=Answer("not in context", []) if refused else Answer(claim, ids[:1]),
            latency_ms=Latency(total=round(rng.lognormvariate(6.6, 0.45), 1)),
            index_hash="3f9a2c81",
            build="2026.11.1",
        )


def armed(traffic: Traffic) -> tuple[Scorer, AlarmEngine]:
    """A scorer, and the alarms of a configuration without any setting."""
    plan = ScorerFactory(defaults(), (traffic.gold,))
    table = plan.table()
    alarms = AlarmEngine(plan.settings, table)
    return plan(table=table, observers=[alarms.steps]), alarms


def closed_minutes(traffic: Traffic) -> tuple[list[Minute], bytes]:
    """So many minutes as alarms are handed them, and a line of the traces."""
    scorer, alarms = armed(traffic)
    line = b""
    for minute in range(WARM + TIMED):
        for place, record in enumerate(traffic.minute()):
            record.ts = START + 60 * minute + 0.9 * place
            scorer.observe(record)
            line = encode(record)
    return [step for _, step in alarms.steps.close(float("inf"))], line


def judged(traffic: Traffic, closed: list[Minute]) -> tuple[float, PipelineAlarms]:
    """Microseconds a minute when every baseline is in use, and the alarms afterwards."""
    best = float("inf")
    for _ in range(ROUNDS):
        alarms = armed(traffic)[1].of("default")
        for step in closed[:WARM]:
            alarms.step(step)
        started = process_time()
        for step in closed[WARM:]:
            alarms.step(step)
        best = min(best, process_time() - started)
    return best / len(closed[WARM:]) * 1e6, alarms


def main() -> None:
    """Print the costs."""
    traffic = Traffic()
    closed, line = closed_minutes(traffic)
    unit = microseconds(partial(loads, line), REPEATS)
    print(f"json.loads on a trace line of {len(line)} bytes: {unit:.1f} us")
    for name, seen in STEPS.items():
        took = microseconds(partial(update, seen), REPEATS)
        print(f"  a detector's step of {name}: {took:.1f} us (at most {MOST:.0f}), x {took / unit:.2f} of json.loads")
        print(f"    an alarm's, with its proof: {microseconds(partial(step, seen), REPEATS):.1f} us")
    took, alarms = judged(traffic, closed)
    working = sum(alarm.detector.mean > 0 for alarm in alarms.state.alarms.values())
    print(
        f"  a minute of 60 live and 3 gold records, {working} of {len(alarms.rules)} detectors at work: {took:.0f} us,"
    )
    print(f"    {took / working:.1f} us a detector, x {took / unit / 63:.2f} of json.loads on its 63 lines")


if __name__ == "__main__":
    main()
