"""What shares its fate is one observation: what a release is told, and how often it is told wrong."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.config.load import defaults, load
from ragmon.core.policy import Gate, Policy
from ragmon.core.text import normalise_question
from ragmon.gates.releases import Clusters, judge
from ragmon.monitor.replay import ReleaseSplitter
from ragmon.scoring.minutes import CLUSTER
from ragmon.scoring.scorer import ReductionRules, Scorer, ScorerFactory
from ragmon.stats import betting
from ragmon.stats.betting import ALPHA, BETS, log_worse
from ragmon.testing import make_gold, make_record
from tests.support.alarming import write_config
from tests.support.random_records import worlds

COMPLIANCE = Gate("compliance", "compliance", 0.80, "at_least")
GROUNDED = Gate("grounded", "groundedness", 0.50, "at_least")
GERMAN = Gate("german", "compliance", 0.80, "at_least", where="lang=de")
GOLD = make_gold(*((f"q{i}", True) for i in range(40)))


def live(good=1, bad=0, **fields):
    """User requests of one build: good ones carry a list of citations, bad ones refuse in words of their own."""
    fields = {"source": "live", "build": "new", **fields}
    yield from (make_record(**fields) for _ in range(good))
    yield from (make_record(claim="I do not know.", **fields) for _ in range(bad))


def followed(*records, by="build", names=("new",), gates=(COMPLIANCE, GROUNDED), plan=None):
    """Releases after all of these records."""
    releases = ReleaseSplitter(plan or ScorerFactory(defaults(), (GOLD,)), by, names, gates)
    for record in itertools.chain(*records):
        assert releases.scorer.observe(record)
    return releases


def seen(releases, name="new", source="live", metric="compliance", gold="", where=""):
    """How often each mean of a cluster occurs."""
    release = releases.release(name)
    series = releases.scorer.snapshot().find("default", source, gold=gold, where=where)
    return release.clusters.scores(series, metric)


# --- clusters ---------------------------------------------------------------------------------------------------------


def alone(record, gold, rules):
    """What a record adds to each series, by itself: the labels of the series, its metrics' values, its gold item."""
    scorer = Scorer(gold, rules=rules)
    scorer.observe(record)
    for series in scorer.snapshot().series:
        held = {name: stat.sum / 1e6 for name, stat in series.metrics.items() if stat.n}
        yield (series.pipeline, series.source, series.gold, series.slice), held


def shares_fate(record, source, gold, number):
    """By the definition: its gold item, else its session, else its question, else what it is."""
    item = Scorer(gold).gold.match(record)
    if item is not None and source != "live":
        return item.qid
    if record.session:
        return "session", record.session
    return ("question", normalise_question(record.q)) if record.q is not None else number


@pytest.mark.slow
@given(worlds(), st.sampled_from([1, 8]), st.lists(st.sampled_from([None, "s", "t"]), min_size=1, max_size=7))
@settings(max_examples=80, deadline=None)
def test_every_cluster_counts_once_with_its_mean(world, shared, sessions):
    """Against a count of the records one by one, in every series and every metric."""
    gold, records = world
    rules = ReductionRules(slices={"lang": ("de",)})
    everything = [Gate(name, name, 0.5, "at_least", where="lang=de") for name in Scorer().table.metrics]
    table = Scorer().table
    clusters = Clusters(table, everything, lambda _: CLUSTER)
    scorer = Scorer(gold, metrics=table, rules=rules, clock=lambda: math.inf, observers=[clusters])
    held = defaultdict(lambda: defaultdict(list))
    with patch("ragmon.gates.releases.MAX_SHARED_REQUESTS", shared):
        for number, record in enumerate(records):
            record.session = sessions[number % len(sessions)]
            scorer.observe(record)
            if record.sampling is None or record.sampling.audit:
                for labels, scores in alone(record, gold, rules):
                    for metric, score in scores.items():
                        held[(labels, metric)][shares_fate(record, labels[1], gold, number)].append(score)
    for series in scorer.snapshot().series:
        if series.slice in ("", "lang=de"):
            for metric in series.metrics:
                means = held[((series.pipeline, series.source, series.gold, series.slice), metric)].values()
                expected = Counter(round(sum(x) / len(x), 5) for x in means)
                found = Counter()
                for score, count in clusters.scores(series, metric).items():
                    found[round(score, 5)] += count
                assert found == expected, (series.source, series.gold, metric)


def test_a_session_is_kept_together_over_minutes_and_days_and_without_a_time():
    day = 86_400.0
    releases = followed(live(3, 1, session="s", ts=day), live(4, 0, session="s", ts=9 * day), live(0, 2, session="s"))
    assert seen(releases) == {0.7: 1}


def test_a_question_outside_of_a_session_is_kept_together_however_it_is_written():
    releases = followed(live(1, q="How far?"), live(0, 1, q="how  far"), live(1, q="How far?", session="s"))
    assert seen(releases) == {0.5: 1, 1.0: 1}


def test_requests_that_name_nothing_count_one_by_one_and_a_note_says_so():
    releases = followed(live(3, 2), live(5, session="s"))
    assert seen(releases) == {0.0: 2, 1.0: 4}
    assert releases.notes() == [
        "5 requests of new have nothing that [metrics] cluster names: each counts as one observation"
    ]
    assert followed(live(5, session="s"), [make_record("q1", source="probe", build="new")]).notes() == []


def test_a_trace_that_was_told_twice_is_one_observation():
    assert seen(followed(live(2, trace_id="a" * 32), live(1, trace_id="b" * 32))) == {1.0: 2}


@pytest.mark.parametrize(
    ("cluster", "expected", "notes"),
    [
        ('["session"]', {1.0: 1, 0.5: 1}, 0),
        ('["question"]', {2 / 3: 1, 0.0: 1}, 0),
        ("[]", {1.0: 2, 0.0: 2}, 0),
    ],
)
def test_the_configuration_says_what_a_cluster_is(tmp_path, cluster, expected, notes):
    config = load(write_config(tmp_path, f"[metrics]\ncluster = {cluster}\n"))
    records = [
        *live(1, session="s", q="a"),
        *live(1, session="t", q="a"),
        *live(0, 1, session="t", q="b"),
    ]
    if cluster != '["session"]':
        records += live(0, 1, session="s", q="a")
    releases = followed(records, plan=ScorerFactory(config, ()))
    assert seen(releases) == pytest.approx(expected)
    assert len(releases.notes()) == notes


def test_a_slice_has_the_requests_of_a_session_that_belong_to_it(tmp_path):
    config = load(write_config(tmp_path, '[slices]\nlang = ["de", "en"]\n'))
    records = [*live(3, 1, session="s", tags={"lang": "de"}), *live(0, 4, session="s", tags={"lang": "en"})]
    releases = followed(records, plan=ScorerFactory(config, ()), gates=(COMPLIANCE, GERMAN))
    assert seen(releases) == {0.375: 1}
    assert seen(releases, where="lang=de") == {0.75: 1}


def test_gold_sets_are_never_pooled_where_gold_is_needed():
    sets = GOLD, make_gold(("z", True), name="other")
    records = [make_record(qid, source="probe", build="new") for qid in ("q1", "q1", "q2", "z", "stranger")]
    releases = followed(records, plan=ScorerFactory(defaults(), sets))
    precision = {
        gold: seen(releases, source="probe", metric="answer_precision", gold=gold) for gold in ("gold", "other")
    }
    assert precision == {"gold": {1.0: 2}, "other": {1.0: 1}}
    assert seen(releases, source="probe") == {1.0: 4}
    assert seen(releases, source="probe", metric="answer_precision") == {}


def test_scores_measured_on_the_text_are_averaged_too():
    sessions = (live(1, session=f"s{i % 2}", measures={"groundedness": i / 10}) for i in range(4))
    assert seen(followed(*sessions), metric="groundedness") == {0.1: 1, 0.2: 1}


# --- the follower -----------------------------------------------------------------------------------------------------


def test_each_release_is_kept_apart_and_others_are_scored_alone():
    builds = {"old": (1, 3), "new": (3, 1), "other": (5, 5), None: (2, 2)}
    records = [r for build, counts in builds.items() for r in live(*counts, build=build, session="s")]
    releases = followed(records[::2], records[1::2], names=("old", "new"))
    assert (seen(releases, "old"), seen(releases, "new")) == ({0.25: 1}, {0.75: 1})
    assert releases.scorer.scored == len(records)
    assert {key.build for key in releases.release("old").state.series} == {"old"}


def test_indexes_are_releases_as_well():
    records = [*live(2, index_hash="i1", session="s"), *live(0, 2, index_hash="i2", session="s")]
    releases = followed(records, by="index_hash", names=("i1", "i2"))
    assert (seen(releases, "i1"), seen(releases, "i2")) == ({1.0: 1}, {0.0: 1})


# --- how often a verdict is wrong -------------------------------------------------------------------------------------

RUNS = 400
DESIGNS = [
    (g, icc, n, minutes) for g in (0.50, 0.80, 0.95) for icc in (0.3, 0.6) for n in (5, 10) for minutes in (1, n)
]


def allowed(level, runs=RUNS):
    return level + 3 * math.sqrt(level * (1 - level) / runs)


def evidence(x, gate):
    """What every bet makes of an observation, on both sides: by the definition."""
    d = np.array(BETS)
    return np.stack([np.log1p(d * (x / gate - 1)), np.log1p(d * ((1 - x) / (1 - gate) - 1))])


def told(gate, icc, size, minutes, take, sessions=300, seed=1):
    """In which share of runs a mean on the gate is ever told a verdict, looking after each minute.

    A session begins every minute. All of its requests succeed with the same chance, whose mean over sessions is the
    gate and whose spread is such that two requests of a session correlate by `icc`. One observation is each `request`,
    each `minute` of a session, or the `whole` of it so far.
    """
    rng = np.random.default_rng(seed)
    more = 1 / icc - 1
    quality = rng.beta(gate * more, (1 - gate) * more, (RUNS, sessions))
    each = size // minutes
    good = rng.binomial(each, np.repeat(quality[..., None], minutes, axis=2))
    so_far = np.cumsum(good, axis=2)
    factors = np.stack([evidence(x, gate) for x in np.arange(size + 1) / size])  # by score, for a whole session
    wealth, ever = np.zeros((RUNS, 2, len(BETS))), np.zeros((RUNS, 2), bool)
    for now in range(sessions):
        for begun in range(max(0, now - minutes + 1), now + 1):
            minute = now - begun
            here, all_of_it = good[:, begun, minute], so_far[:, begun, minute]
            if take == "request":
                wealth += here[:, None, None] * factors[size] + (each - here)[:, None, None] * factors[0]
            elif take == "minute":
                wealth += factors[here * minutes]
            else:
                wealth += _of(all_of_it, (minute + 1) * each, gate)
                if minute:
                    wealth -= _of(so_far[:, begun, minute - 1], minute * each, gate)
        most = wealth.max(axis=2)
        ever |= most + np.log(np.exp(wealth - most[..., None]).mean(axis=2)) >= math.log(2 / ALPHA)
    return ever.any(axis=1).mean()


def _of(good, n, gate):
    return np.stack([evidence(x, gate) for x in np.arange(n + 1) / n])[good]


@pytest.mark.slow
def test_sessions_on_the_gate_are_told_wrong_at_most_as_often_as_allowed():
    """One observation a session: the mean of what it has come to, also while it goes on."""
    for gate, icc, size, minutes in DESIGNS:
        assert told(gate, icc, size, minutes, "whole") <= allowed(ALPHA), (gate, icc, size, minutes)


@pytest.mark.slow
@pytest.mark.parametrize(("take", "minutes", "least"), [("request", 1, 0.4), ("request", 10, 0.3), ("minute", 10, 0.3)])
def test_why_neither_requests_nor_minutes_are_observations(take, minutes, least):
    assert told(0.80, 0.3, 10, minutes, take) > least


def test_the_simulation_bets_as_verdicts_do():
    rng = np.random.default_rng(7)
    for _ in range(50):
        means = rng.integers(0, 6, 60) / 5
        wealth = sum(evidence(x, 0.6) for x in means)
        above, below = (math.log(np.exp(side).mean()) for side in wealth)
        assert above == pytest.approx(betting.log_above(Counter(means.tolist()), 0.6))
        assert below == pytest.approx(betting.log_below(Counter(means.tolist()), 0.6))


def session_log(rng, quality, number, size=10):
    """The records of one session."""
    good = int(rng.binomial(size, quality))
    return live(good, size - good, session=f"s{number}", q="How far?")


@pytest.mark.slow
def test_a_log_of_sessions_on_the_gate_is_told_wrong_at_most_as_often_as_allowed():
    """End to end; of the same requests taken one by one most runs would be told a verdict."""
    rng, runs, wrong, by_request = np.random.default_rng(3), 60, 0, 0
    for _ in range(runs):
        releases = ReleaseSplitter(ScorerFactory(defaults(), ()), "build", ["new"], (COMPLIANCE,))
        scorer, looked, decided = releases.scorer, set(), set()
        for number, quality in enumerate(rng.beta(0.8 * 2 / 3, 0.2 * 2 / 3, 120)):
            for record in session_log(rng, quality, number):
                scorer.observe(record)
            if number % 8 == 7:
                (outcome,) = judge(releases.release("new"), scorer.table, Policy((COMPLIANCE,)))
                looked.add(outcome.verdict)
                stat = scorer.snapshot().find("default", "live").metrics["compliance"]
                decided.add(betting.verdict(betting.shares(stat.sum / 1e6, stat.n), 0.80))
        wrong += looked != {"insufficient"}
        by_request += decided != {None}
    assert wrong / runs <= allowed(ALPHA, runs)
    assert by_request / runs > 0.5


@pytest.mark.slow
def test_equal_releases_of_sessions_are_called_worse_at_most_as_often_as_allowed():
    """Eight looks at up to 300 sessions of ten requests each."""
    rng, runs, bar = np.random.default_rng(4), 150, -math.log(ALPHA / 2)
    wrong, by_request = 0, 0
    for _ in range(runs):
        quality = rng.beta(0.8 * 2 / 3, 0.2 * 2 / 3, (2, 300, 1))
        good = (rng.random((2, 300, 10)) < quality).sum(axis=2)
        looks = [20, 40, 80, 120, 160, 200, 250, 300]
        means = [[Counter((side[:n] / 10).tolist()) for side in good] for n in looks]
        draws = [[betting.shares(int(side[:n].sum()), 10 * n) for side in good] for n in looks]
        wrong += any(log_worse(*pair) >= bar for pair in means)
        by_request += any(log_worse(*pair) >= bar for pair in draws)
    assert wrong / runs <= allowed(ALPHA / 2, runs)
    assert by_request / runs > 0.1
