"""Who asks what when, and how long the answer takes: a simulated day around recorded answers."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.scenario.faults import FAULTS
from bench.scenario.incidents import BURST, LATENCY, TOPIC, UNANSWERABLE, Incident
from bench.scenario.pool import Reply, pool
from ragmon.core.constants import LIVE, PROBE
from ragmon.core.record import Latency, Record

_DAY: Final = 86_400.0
_SWING: Final = 0.5
"""The busiest hour has half as much again as the mean, the quietest half as much."""
_RETRIEVE: Final = (math.log(45), 0.35)
_GENERATE: Final = (math.log(750), 0.45)
"""Lognormal milliseconds: logarithm of the median, and sigma."""
_UNANSWERABLE_SHARE: Final = 0.8
"""Share of user questions without an answer while they ask for what the corpus does not hold."""


@dataclass
class Traffic:
    """The requests of one stream.

    Args:
        incidents: What happens to it.
        start: Its first second, since the epoch.
        end: Where it ends, seconds since the epoch.
        rps: Requests a second, as the mean over a day without bursts.
        probe_share: Share of the requests that ask a gold question.
        rng: Where all chance comes from; used up by one pass.
        topic: The article everybody asks about during a topic shift.
    """

    incidents: Sequence[Incident]
    start: float
    end: float
    rps: float
    probe_share: float
    rng: random.Random
    topic: Sequence[Reply] = field(init=False)

    def __post_init__(self) -> None:
        topics = pool().topics
        self.topic = topics[self.rng.choice(list(topics))]

    def records(self) -> Iterator[Record]:
        """Every request as a record, in time order."""
        ts, rng = self.start, self.rng
        active: list[Incident] = []
        while True:
            ts += rng.expovariate(self._rate(ts, active))
            if ts >= self.end:
                return
            active = [incident for incident in self.incidents if incident.start <= ts < incident.end]
            probe = rng.random() < self.probe_share
            reply = rng.choice(pool().probes) if probe else self._asked(active)
            yield self.record(ts, reply, active, probe=probe)

    def _rate(self, ts: float, active: Sequence[Incident]) -> float:
        """Requests a second."""
        rate = self.rps * (1 + _SWING * math.sin(2 * math.pi * (ts - self.start) / _DAY))
        for incident in active:
            if incident.kind == BURST:
                rate *= incident.factor(ts)
        return rate

    def _asked(self, active: Sequence[Incident]) -> Reply:
        """What a user asks."""
        kinds = {incident.kind for incident in active}
        if TOPIC in kinds:
            return self.rng.choice(self.topic)
        if UNANSWERABLE in kinds and self.rng.random() < _UNANSWERABLE_SHARE:
            return self.rng.choice(pool().unanswerable)
        return self.rng.choice(pool().organic)

    def record(self, ts: float, reply: Reply, active: Sequence[Incident], *, probe: bool) -> Record:
        """What comes of a question at a time, while some incidents last."""
        rng = self.rng
        retrieve, generate = rng.lognormvariate(*_RETRIEVE), rng.lognormvariate(*_GENERATE)
        for incident in active:
            if incident.kind == LATENCY:
                generate *= incident.factor(ts)
            elif incident.kind in FAULTS and reply.error is None and rng.random() < incident.share(ts):
                reply = FAULTS[incident.kind](reply, rng)
        return Record(
            trace_id=f"{rng.getrandbits(128):032x}",
            ts=round(ts, 3),
            source=PROBE if probe else LIVE,
            # Nobody knows the gold question behind what a user asks.
            qid=reply.qid if probe else None,
            q=reply.question,
            retrieved_ids=reply.retrieved_ids,
            answer_json=reply.answer,
            error=reply.error,
            latency_ms=Latency(round(retrieve + generate, 1), round(retrieve, 1), round(generate, 1)),
        )
