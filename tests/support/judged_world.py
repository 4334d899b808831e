"""Days of a pipeline whose answers a judge scores and people label one or two days later; the judge may change."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.core.record import Label, Record
from ragmon.scoring.buckets import State
from ragmon.scoring.labels import LabelJoiner, Prediction, predictions
from ragmon.scoring.scorer import Scorer
from ragmon.testing import make_record

DAY = 86_400
BEGIN = 20_400 * DAY
TRUTH = 0.80
JUDGE = "judge_strict"


def delayed(rng: np.random.Generator, answered: float) -> float:
    """When a label comes: one to two days after its answer."""
    return answered + DAY * (1 + rng.random())


@dataclass(frozen=True)
class JudgedWorld:
    """A world of so many days.

    Attributes:
        days: How many.
        answers, labels: How many a day.
        changed: The day on which the judge becomes stricter by .30; None for a judge that stays as it is.
        versions: The version of the judge before and after that day.
        arrival: When a label comes.
        truth: The share of right answers by day; `TRUTH` unless it says otherwise.
        seed: Of the random numbers.
    """

    days: int = 14
    answers: int = 1_000
    labels: int = 100
    changed: float | None = None
    versions: tuple[str, str] = ("", "")
    arrival: Callable[[np.random.Generator, float], float] = delayed
    truth: Callable[[float], float] = lambda day: TRUTH
    seed: int = 0

    def entries(self) -> Iterator[tuple[float, Record | Label]]:
        """What arrives and when, in the order of time."""
        rng = np.random.default_rng(self.seed)
        waiting: list[tuple[float, int, Label]] = []
        total = self.days * self.answers
        for number in range(total):
            day = number / self.answers
            now = BEGIN + DAY * day
            while waiting and waiting[0][0] <= now:
                arrived, _, label = heapq.heappop(waiting)
                yield arrived, label
            right = rng.random() < self.truth(day)
            yes = rng.random() < (0.9 if right else 0.4)
            is_new = self.changed is not None and day >= self.changed
            score = float(yes and not (is_new and rng.random() < 0.375))
            version = self.versions[is_new]
            record = make_record(
                trace_id=f"{number + 1:032x}",
                ts=now,
                source="live",
                q=f"question {number}",
                measures={JUDGE: score},
                **({"judge_versions": {JUDGE: version}} if version else {}),
            )
            yield now, record
            if rng.random() < self.labels / self.answers:
                label = Label(trace_id=record.trace_id, rater="ada", correct=bool(right), answer=record)
                heapq.heappush(waiting, (self.arrival(rng, now), number, label))


TABLE = '[judges.strict]\nurl = "http://127.0.0.1:9/v1"\nmodel = "small"\nkind = "faithfulness"\n'


@cache
def judged_settings() -> Settings:
    """The defaults, with the judge as the proxy."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ragmon.toml"
        path.write_text(TABLE)
        return load(path, environ={})


def estimates(world: JudgedWorld) -> dict[float, Prediction]:
    """The estimate of the last 24 hours at the end of every day, counted without alarms."""
    scorer = Scorer(metrics=judged_settings().build_metrics(), state=State(retention=25 * 3600, is_live=True))
    joiner, due = LabelJoiner(scorer, lambda record, now: record), BEGIN + DAY
    found: dict[float, Prediction] = {}
    for now, entry in world.entries():
        while now >= due:
            _tell(found, scorer.state, due)
            due += DAY
        if isinstance(entry, Label):
            joiner.take(entry, now)
        else:
            scorer.observe(entry)
    _tell(found, scorer.state, due)
    return found


def _tell(found: dict[float, Prediction], state: State, now: float) -> None:
    for prediction in predictions(state, {"24h": DAY}, now, lambda _: JUDGE):
        found[(now - BEGIN) / DAY] = prediction
