"""Fourteen days of two pipelines with six gates each, request by request, in which nothing ever breaks a gate.

What pages in them is a false alarm. Requests are drawn as whole arrays from a seed; they go through the project's own
scorer and alarms, minute by minute of the clock of a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import pi

import numpy as np

from ragmon.alarms.pipelines import AlarmEngine
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Latency, Record
from ragmon.ingest.gold import GoldSet
from ragmon.scoring.scorer import ScorerFactory
from ragmon.testing import FakeClock

DAYS, DAY = 14, 86_400.0
START = 1_763_942_400.0
"""A Monday, midnight."""
BOUND = 3_000.0
"""The latency that `answered_within` allows, in milliseconds."""
PIPELINES = {"search": (0.2, 0.1), "support": (1.0, 0.4)}
"""User requests and gold questions a minute, by pipeline."""
ALLOWED = {
    "compliance": 0.02,
    "answer_precision": 0.40,
    "error_rate": 0.05,
    "citation_hit_rate": 0.15,
    "answered_within": 0.05,
    "recall@5": 0.10,
}
"""The share of failures that each gate allows."""
LABELS, WRONG = "answer_correct", 0.2
"""The gate on labels, which only worlds with labels have, and the share of failures that it allows."""
GOLDEN = ("answer_precision", "citation_hit_rate", "recall@5")
"""The gates on the gold set."""
MARGINS = {"at the gate": 1.0, "slightly above": 0.9, "comfortably above": 0.4}
"""How many of the failures that a gate allows there are."""

ANSWERABLE, UNANSWERABLE = 48, 12
OVER, UNDER = 0.03, 0.02
"""Shares of refused answerable and of answered unanswerable gold questions."""
HARDER = 0.03
"""By how much half of the gold items are harder than the mean; the others are as much easier."""
SHIPPED = 1 + UNANSWERABLE * UNDER / (ANSWERABLE * (1 - OVER))
"""Shipped answers to gold questions for each of them to an answerable one; the others are wrong."""
LABELLED = 200
"""Answers a day that people label."""

Curve = Callable[[np.ndarray], np.ndarray]
"""A property of the traffic by time, in days since the start."""


def constant(value: float) -> Curve:
    """Always the same."""
    return lambda days: np.full(len(days), value)


ONCE, SOME, NEVER = constant(1.0), constant(0.08), constant(0.0)


@dataclass(frozen=True)
class Sessions:
    """How many requests a session has, how many minutes it lasts, and the correlation of failures within it."""

    size: int
    minutes: float
    icc: float


@dataclass(frozen=True)
class World:
    """In what a fortnight differs from two weeks of the same.

    Args:
        volume: Times as many user requests.
        failures: Times as many failures of user requests; above 1 there are hours beyond a gate.
        refused: The share of refusals.
        clock: How many seconds the clock of the server is ahead.
        sessions: How user requests come together; None: each alone.
        label_days: The days on which all labels since the last such day arrive in one minute.
        days: How many days.
    """

    volume: Curve = ONCE
    failures: Curve = ONCE
    refused: Curve = SOME
    clock: Curve = NEVER
    sessions: Sessions | None = None
    label_days: tuple[int, ...] = ()
    days: int = DAYS


def _busy(days: np.ndarray) -> np.ndarray:
    """How busy the hour is: 0 at three in the morning, 1 at three in the afternoon, half of that at weekends."""
    return np.where(days % 7 >= 5, 0.5, 1.0) * (1 - np.cos(2 * pi * (days - 0.125))) / 2


WORLDS = {
    "stationary": World(),
    "cycles of volume and mix": World(
        volume=lambda days: 0.05 + 1.8 * _busy(days),
        failures=lambda days: 0.8 + 0.2 * _busy(days),
        refused=lambda days: 0.07 + 0.02 * _busy(days),
    ),
    "covariate drift": World(
        volume=lambda days: 1 + days / DAYS,
        failures=lambda days: 1 - 0.2 * days / DAYS,
        refused=lambda days: 0.05 + 0.05 * days / DAYS,
    ),
    # Ten minutes ahead on the third day, three hours back on the sixth, an hour ahead on the tenth.
    "clock steps": World(clock=lambda days: 600.0 * (days >= 3) - 10_800.0 * (days >= 6) + 13_800.0 * (days >= 10)),
    "label backlogs": World(label_days=(1, 2, 3, 4, 7, 11, 13)),
    "sessions of 10 over 10 minutes": World(sessions=Sessions(10, 10.0, 0.3)),
    "sessions of 20 over 30 minutes": World(sessions=Sessions(20, 30.0, 0.6)),
}


def allowed(world):
    """The share of failures that each gate of a world allows."""
    return ALLOWED | {LABELS: WRONG} if world.label_days else ALLOWED


def configuration(world):
    """The text of a ragmon.toml with the gates of a world for each pipeline."""
    lines = []
    for name in PIPELINES:
        lines += [f"[pipelines.{name}.metrics]", 'answered_within = "3s"', "citations_required = true", "k = [5]"]
        lines += [f"[pipelines.{name}.gates]"]
        for gate, share in allowed(world).items():
            bound = f"at_most = {share}" if gate == "error_rate" else f"at_least = {round(1 - share, 6)}"
            lines += [f'"{gate}" = {{ {bound} }}']
    return "\n".join(lines)


def gold_set(name):
    """The gold set of a pipeline; every question has four documents."""
    documents = ["d1", "d2", "d3", "d4"]
    items = [
        GoldItem(f"a{n}", f"What is {n}?", True, claim_substrings=["right"], citations=documents)
        for n in range(ANSWERABLE)
    ]
    items += [GoldItem(f"u{n}", f"Who is {n}?", answerable=False) for n in range(UNANSWERABLE)]
    return GoldSet(name, tuple(items), pipeline=name)


@dataclass
class Fortnight:
    """What happened in a world.

    Attributes:
        fired: The day, the severity and the alert of every alarm that began.
        failures: By pipeline and gate: the failures there were, and those that the margin of the gate makes expect.
    """

    fired: list[tuple[int, str, str]] = field(default_factory=list)
    failures: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)

    def of(self, severity):
        """How often each alarm of a severity began."""
        return Counter(alert for _, urgent, alert in self.fired if urgent == severity)

    def most_a_day(self, severity):
        """The most alarms of a severity that began on one day."""
        return max(Counter(day for day, urgent, _ in self.fired if urgent == severity).values(), default=0)


class _Requests:
    """The requests of one pipeline: when each came, and a record of its kind with what is its own.

    Args:
        name: The pipeline.
        world: What is different.
        failing: The share of failures of each gate.
        rng: Draws everything.
    """

    def __init__(self, name, world, failing, rng):
        self._name, self._world, self._failing, self._rng = name, world, failing, rng
        self._live, self._gold = PIPELINES[name]

    def all(self):
        """Every request with the time it came, in seconds since the start; in no order."""
        yield from self._users()
        yield from self._probes()
        yield from self._labels()

    def _record(self, source, answer=None, **fields):
        return Record(pipeline=self._name, source=source, answer_json=answer, **fields)

    def _users(self):
        """User requests; what fails in a session is drawn with the session's own chance."""
        rng, world = self._rng, self._world
        size = world.sessions.size if world.sessions else 1
        most = 2.0
        begun = rng.uniform(0, world.days, rng.poisson(self._live * most * world.days * 1440 / size))
        begun = begun[rng.random(len(begun)) * most < world.volume(begun)]
        share = {
            name: self._failing[name] * world.failures(begun)
            for name in ("compliance", "error_rate", "answered_within")
        }
        if world.sessions:
            strength = 1 / world.sessions.icc - 1
            share = {name: rng.beta(strength * p, strength * (1 - p)) for name, p in share.items()}
        lasts = world.sessions.minutes / 1440 if world.sessions else 0.0
        of = np.repeat(np.arange(len(begun)), size)
        days = begun[of] + lasts * rng.random(len(of))
        failed = {name: rng.random(len(of)) < p[of] for name, p in share.items()}
        refused = rng.random(len(of)) < world.refused(days)
        quick = np.minimum(rng.lognormal(6.8, 0.35, len(of)), 0.99 * BOUND)
        latency = np.where(failed["answered_within"], BOUND * (1.01 + rng.exponential(0.5, len(of))), quick)
        kinds = np.where(failed["compliance"], 1, np.where(refused, 2, 3)) * ~failed["error_rate"]
        answers = (None, Answer("that is right", None), Answer("not in context", []), Answer("that is right", ["d1"]))
        columns = (of, days, kinds, latency)
        for number, (session, day, kind, took) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            yield (
                DAY * day,
                self._record(
                    "live",
                    answers[kind],
                    error=None if kind else "TimeoutError",
                    session=f"s{session}" if world.sessions else None,
                    trace_id=f"t{number}",
                    retrieved_ids=["d1", "d2"],
                    latency_ms=Latency(total=took),
                ),
            )

    def _probes(self):
        """Gold questions, each drawn at random; half of the items are harder than the others."""
        rng = self._rng
        days = self._world.days
        n = rng.poisson(self._gold * days * 1440)
        days, items = rng.uniform(0, days, n), rng.integers(0, ANSWERABLE + UNANSWERABLE, n)
        harder = np.where(items % 2, HARDER, -HARDER)
        right = SHIPPED * (1 - self._failing["answer_precision"]) - harder
        cites = SHIPPED * (1 - self._failing["citation_hit_rate"]) - harder
        lost = rng.random(n) < 2 * (self._failing["recall@5"] + harder)
        lost = lost * rng.integers(1, 4, n)  # one, two or three of four documents: half of them in the mean
        draw = rng.random(n)
        kinds = np.where(draw < right, 3, np.where(draw < cites, 2, 1)) * (rng.random(n) >= OVER)
        kinds = np.where(items < ANSWERABLE, kinds, 3 * (rng.random(n) < UNDER))
        answers = (
            Answer("not in context", []),
            Answer("that is wrong", ["x"]),
            Answer("that is wrong", ["d1"]),
            Answer("that is right", ["d1"]),
        )
        found = [["x", *("d1", "d2", "d3", "d4")[: 4 - fewer]] for fewer in range(4)]
        for day, item, kind, fewer in zip(days.tolist(), items.tolist(), kinds.tolist(), lost.tolist(), strict=True):
            qid = f"a{item}" if item < ANSWERABLE else f"u{item - ANSWERABLE}"
            yield DAY * day, self._record("probe", answers[kind], qid=qid, retrieved_ids=found[fewer])

    def _labels(self):
        """Labels of 0, .5 and 1, which say nothing of when they come: at nine, all in one minute."""
        rng, last = self._rng, 0
        for day in self._world.label_days:
            n = LABELLED * (day - last)
            draw, last = rng.random(n) / self._failing[LABELS], day
            for number, score in enumerate(np.where(draw < 0.5, 0.0, np.where(draw < 1.5, 0.5, 1.0)).tolist()):
                label = self._record("label", Answer("that is right", ["d1"]), trace_id=f"l{day}-{number}")
                label.measures = {LABELS: score}
                yield DAY * (day + 9 / 24) + 60 * number / n, label


def margins(place, shift):
    """Which of `MARGINS` each gate of a pipeline has: every third gate the same, another one in each pipeline."""
    names = [*ALLOWED, LABELS]
    return dict(zip(names, np.resize(np.roll([*MARGINS.values()], shift + place), len(names)).tolist(), strict=True))


def fortnight(settings, world, seed, shift=0):
    """Simulate the days of a world.

    Args:
        settings: As loaded from `configuration`.
        world: What is different.
        seed: Of everything that is drawn.
        shift: Deals `MARGINS` out to the gates in another way.
    """
    rng, found, clock = np.random.default_rng(seed), Fortnight(), FakeClock(START)
    factory = ScorerFactory(settings, tuple(map(gold_set, PIPELINES)))
    table = factory.table()
    alarms = AlarmEngine(settings, table)
    scorer = factory(table=table, observers=[alarms.steps], clock=clock)
    requests = []
    for place, name in enumerate(PIPELINES):
        failing = {gate: share * margins(place, shift)[gate] for gate, share in (ALLOWED | {LABELS: WRONG}).items()}
        requests += _Requests(name, world, failing, rng).all()
    requests.sort(key=lambda request: request[0])
    ahead = world.clock(np.array([time / DAY for time, _ in requests])).tolist()
    minute = 0
    for (time, record), offset in zip(requests, ahead, strict=True):
        clock.now = record.ts = START + time + offset
        if time // 60 != minute:
            minute = time // 60
            fired = [edge for edge in alarms.advance(clock.now) if edge.state == "firing"]
            found.fired += [(int(time // DAY), edge.severity, f"{edge.pipeline}/{edge.alert}") for edge in fired]
        if record.source == "label":
            scorer.observe_label(record, None, record.ts)
        else:
            assert scorer.observe(record)
    found.failures = _failures(scorer, world, shift)
    return found


def _failures(scorer, world, shift):
    """By pipeline and gate: the failures there were, and those that the margin of the gate makes expect."""
    found, snapshot = {}, scorer.snapshot()
    for place, name in enumerate(PIPELINES):
        for gate, share in allowed(world).items():
            source = "label" if gate == LABELS else "probe" if gate in GOLDEN else "live"
            stat = snapshot.find(name, source, gold=None if gate in GOLDEN else "").metrics[gate]
            failed = stat.value if gate == "error_rate" else 1 - stat.value
            found[name, gate] = failed * stat.n, margins(place, shift)[gate] * share * stat.n
    return found
