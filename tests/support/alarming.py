"""What tests of alarms share: a small pipeline that is well until it is told otherwise, minute by minute."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import chain, count

import msgspec

from ragmon.alarms.pipelines import AlarmEngine, as_alert_line
from ragmon.config.load import defaults
from ragmon.core.gold_item import GoldItem
from ragmon.core.policy import Gate
from ragmon.core.record import Answer, Latency, Record
from ragmon.ingest.gold import GoldSet
from ragmon.monitor.embedded import Monitor
from ragmon.scoring.scorer import ScorerFactory
from ragmon.testing import FakeClock

NOON = 29_394_720
"""A minute since the epoch, and a whole hour."""
GOLD = GoldSet(
    "gold",
    (
        *(GoldItem(f"a{n}", f"What is {n}?", True, claim_substrings=["right"], citations=["d1"]) for n in range(30)),
        *(GoldItem(f"u{n}", f"Who is {n}?", answerable=False) for n in range(10)),
    ),
)
USUAL = {
    "error": 0.01,
    "empty": 0.01,
    "refused": 0.10,
    "own_words": 0.01,
    "uncited": 0.04,
    "foreign": 0.01,
    "listless": 0.0,
    "wrong": 0.04,
    "missed": 0.02,
    "over": 0.03,
    "under": 0.01,
}
"""Shares of what goes wrong on a good day: of all user requests, of gold answers, of questions nobody can answer."""


def said(claim, citations, retrieved=("d1", "d2")):
    """The part of a record that says what was answered from what."""
    return {
        "retrieved_ids": list(retrieved),
        "answer_json": Answer(claim, None if citations is None else list(citations)),
    }


GOOD = said("that is right", ["d1"])
REFUSAL = said("not in context", [])
FAULTS = {
    "empty": said("that is right", [], retrieved=()),
    "refused": REFUSAL,
    "own_words": said("I could not find that.", ["d1"]),
    "uncited": said("that is right", []),
    "foreign": said("that is right", ["d404"]),
    "listless": said("that is right", None),
}


class Traffic:
    """Seeded requests.

    Args:
        seed: Of everything that is drawn.
        live, gold: Requests of users and of gold questions a minute.
        fields: Of every record.
    """

    def __init__(self, seed=1, *, live=60, gold=10, **fields):
        self._rng = random.Random(seed)
        self._live, self._gold, self._fields = live, gold, fields
        self._number = count()

    def minute(self, minute, *, slow=1.0, index="i1", question="How is that?", **shares):
        """The records of one minute, in time order.

        Args:
            minute: Since the epoch.
            slow: Times as long as usual.
            index: The index that answers.
            question: What a user question looks like; a number makes it its own.
            shares: What goes wrong in place of `USUAL`.
        """
        shares = {**USUAL, **shares}
        kinds = ["live"] * self._live + ["probe"] * self._gold
        self._rng.shuffle(kinds)
        for place, source in enumerate(kinds):
            found = self._user(shares, question) if source == "live" else self._probe(shares)
            yield Record(
                ts=60.0 * minute + round(60 * place / len(kinds), 3),
                trace_id=f"{next(self._number):032x}",
                source=source,
                index_hash=index,
                latency_ms=Latency(total=round(slow * self._rng.lognormvariate(6.7, 0.4), 1)),
                **{**found, **self._fields},
            )

    def _user(self, shares, question):
        draw, asked = self._rng.random(), {"q": f"{question} {self._rng.randrange(10**9)}"}
        for kind in ("error", *FAULTS):
            draw -= shares[kind]
            if draw < 0:
                return {**asked, "error": "TimeoutError"} if kind == "error" else {**asked, **FAULTS[kind]}
        return {**asked, **GOOD}

    def _probe(self, shares):
        item, draw = self._rng.choice(GOLD.items), self._rng.random()
        asked = {"qid": item.qid}
        if not item.answerable:
            return {**asked, **(GOOD if draw < shares["under"] else REFUSAL)}
        for kind, found in (
            ("over", REFUSAL),
            ("missed", said("that is right", ["d2"], retrieved=["d2", "d3"])),
            ("wrong", said("quite something else", ["d1"])),
        ):
            draw -= shares[kind]
            if draw < 0:
                return {**asked, **found}
        return {**asked, **GOOD}


def mixed(seed, minutes=80):
    """Three pipelines with user traffic, probes and replays, sessions, slices, questions of the gold set, any fault.

    Args:
        seed: Of everything that is drawn.
        minutes: How many.
    """
    rng = random.Random(seed)
    traffics = [Traffic(rng.random(), gold=8, pipeline=pipeline) for pipeline in ("support", "sales", None)]
    faults = [(rng.randrange(minutes), rng.choice([*USUAL]), rng.random(), rng.randrange(3)) for _ in range(8)]
    for number in range(minutes):
        under_way = [(place, kind, share) for begin, kind, share, place in faults if begin <= number < begin + 15]
        records = [
            traffic.minute(NOON + number, **{kind: share for where, kind, share in under_way if where == place})
            for place, traffic in enumerate(traffics)
        ]
        for record in sorted(chain(*records), key=lambda record: record.ts):
            yield _varied(record, rng, replays=record.pipeline == "sales" and number < minutes * 0.7)


def _varied(record, rng, *, replays):
    """A record in one of the slices; of a user also in a session, or with a question of the gold set."""
    changed = {"tags": {"lang": rng.choice(("de", "en", "fr"))}}
    if record.source == "live":
        changed["session"] = rng.choice((None, None, f"s{rng.randrange(500)}"))
        changed["q"] = f"What is {rng.randrange(30)}?" if rng.random() < 0.1 else record.q
        changed["source"] = "replay" if replays else "live"
    return msgspec.structs.replace(record, **changed)


def with_template():
    """The default settings of pipelines whose answers must carry a list of citations, with a gate on that."""
    settings = defaults()

    def required(pipeline):
        gates = (*pipeline.resolved_gates, Gate("compliance", "compliance", 0.98, "at_least"))
        metrics = pipeline.metrics.model_copy(update={"citations_required": True})
        return pipeline.model_copy(update={"metrics": metrics, "resolved_gates": gates})

    pipelines = {name: required(pipeline) for name, pipeline in settings.pipelines.items()}
    return replace(settings, pipelines=pipelines, unconfigured=required(settings.unconfigured))


class World:
    """A scorer and its alarms, fed minute by minute with the records' own time as the time they come.

    Args:
        settings: The configuration; default: `with_template`.
        gold: The gold sets.
        traffic: Where the records of `run` come from.

    Attributes:
        minute: The next one.
        edges: What began and ended so far.
    """

    def __init__(self, settings=None, *, gold=(GOLD,), traffic=None):
        settings = settings if settings is not None else with_template()
        plan = ScorerFactory(settings, tuple(gold))
        table = plan.table()
        self.alarms = AlarmEngine(settings, table)
        self.scorer = plan(table=table, observers=[self.alarms.steps])
        self.minute = NOON
        self.edges = []
        self._traffic = traffic or Traffic()

    def feed(self, records):
        """One minute of these records; returns what began and ended."""
        for record in records:
            assert self.scorer.observe(record)
        self.minute += 1
        found = self.alarms.advance(60.0 * self.minute)
        self.edges += found
        return found

    def run(self, minutes, **changed):
        """So many minutes of traffic, different from the usual as `Traffic.minute` says; returns what changed."""
        return [edge for _ in range(minutes) for edge in self.feed(self._traffic.minute(self.minute, **changed))]

    @property
    def firing(self):
        """The alerts that fire, with their pipelines unless that is the default one."""
        return {f"{s.pipeline}/{s.alert}".removeprefix("default/") for s in self.alarms.states() if s.firing}

    def state(self, alert, pipeline="default"):
        """How one alarm stands."""
        (found,) = (s for s in self.alarms.states() if (s.pipeline, s.alert) == (pipeline, alert))
        return found


def shown(edges):
    """Edges as they are written, one text each."""
    return [
        " ".join(str(as_alert_line(edge)[key]) for key in ("ts", "state", "severity", "alert", "metric"))
        for edge in edges
    ]


SEVERAL = """
[alarms]
baseline = { learn = "20m" }
[metrics]
cluster = ["session"]
citations_required = true
[slices]
lang = ["de", "en"]
[gold.gold]
path = "gold.jsonl"
[pipelines.support.gates.compliance]
at_least = 0.97
severity = "ticket"
[pipelines.support.gates.german]
metric = "error_rate"
at_most = 0.05
slice = { lang = "de" }
[pipelines.sales.gates]
preset = "wfgy-live"
"""
"""A configuration for `mixed`: two pipelines of three, gold, a slice, gates of every kind."""


def write_config(folder, text=SEVERAL):
    """Write a configuration, and `GOLD` beside it; returns its path."""
    rows = (
        {
            "qid": item.qid,
            "question": item.question,
            "answerable": item.answerable,
            "gold_claim_substr": list(item.claim_substrings or ()),
            "gold_citations": list(item.citations or ()),
        }
        for item in GOLD
    )
    (folder / "gold.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    path = folder / "ragmon.toml"
    path.write_text(text, encoding="utf-8")
    return path


def live(settings, records, look=None):
    """The edge lines of a monitor whose clock is where the records are.

    Args:
        settings: The configuration.
        records: In time order.
        look: Where random moments come from at which somebody reads everything; None: nobody ever does.
    """
    clock = FakeClock(0.0)
    monitor = Monitor(settings, clock=clock)
    for record in records:
        while look is not None and look.random() < 0.002:
            clock.now = look.uniform(clock.now, record.ts) if clock.now else record.ts
            look.choice((monitor.snapshot, monitor.transitions))()
        clock.now = record.ts
        monitor.submit(record)
    clock.now += 60
    return [as_alert_line(edge) for edge in monitor.transitions()]
