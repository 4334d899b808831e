"""Saved states, as they come back from a checkpoint, and traffic that fills every part of one."""

from __future__ import annotations

import random
from dataclasses import astuple
from itertools import groupby

import msgspec

from ragmon.core.record import Label, Totals
from ragmon.stream.chunk import BatchCounts
from tests.support.alarming import mixed

SAVED_AFTER = 67 * 60 + 10
"""Batches, one a second, after which a checkpoint is written: in the middle of a minute, while ten alarms fire."""


def saved(state, kind=None):
    """A state after it was saved and read by another process; it shares nothing with the first."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=kind or type(state))


def batches():
    """An hour and a half of three pipelines with every fault, with labels, builds and the totals of producers."""
    rng = random.Random(7)
    for number, (second, records) in enumerate(groupby(mixed(11, minutes=90), key=lambda record: int(record.ts))):
        entries, arrival = [], float(second + 1)
        for record in records:
            build = f"1.{number // 2000}" if rng.random() < 0.9 else None
            measures = {"groundedness": rng.random()} if rng.random() < 0.2 else None
            record = msgspec.structs.replace(record, build=build, measures=measures)  # noqa: PLW2901 - the same record
            entries.append(record)
            if rng.random() < 0.05:
                answer = record if rng.random() < 0.7 else None
                trace_id = f"{rng.getrandbits(128):032x}" if answer is None else answer.trace_id
                rater = f"r{rng.randrange(5)}"
                entries.append(Label(trace_id=trace_id, rater=rater, correct=True, answer=answer))
        totals = {"pipeline": "support", "source": "live", "stratum": "rest", "latency_ms": {4: number}}
        instance = f"i{number % 3}"
        entries.append(Totals(ts=arrival, instance=instance, started=1.0, calls=number + 1, kept=number // 2, **totals))
        yield number + 1, arrival, BatchCounts(received=len(entries), native=len(entries)), entries


def account(server_state):
    """What a server has come to, in JSON."""
    engine = server_state.engine
    return {
        "seq": server_state.seq,
        "digest": engine.scorer.state.digest(),
        "transitions": [list(astuple(transition)) for transition in engine.transitions],
        "alarms": [list(astuple(state)) for state in engine.alarms.states()],
        "labels": dict(sorted(engine.labels.store.results.items())),
        "waiting": engine.labels.store.pending,
        "errors": sorted([*key, n] for key, n in engine.errors.items()),
        "calls": sorted([*key, n] for key, n in server_state.producers.calls().items()),
        "whole": sorted([*key, *count] for key, count in engine.scorer.state.calls.totals().items()),
        "counts": msgspec.to_builtins(server_state.counts),
    }
