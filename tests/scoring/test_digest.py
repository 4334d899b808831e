"""One digest of everything that decides a number: in any order, with any jobs, and longer than rows are kept."""

from __future__ import annotations

import json
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.config.load import load
from ragmon.core.constants import HOUR
from ragmon.core.record import Answer, Latency, Record, Sampling, Totals, encode
from ragmon.ingest.gold import GoldSet, load_gold
from ragmon.metrics.base import build
from ragmon.monitor.embedded import Monitor
from ragmon.monitor.replay import Run, run_files
from ragmon.scoring.buckets import CELLS, CallTotals
from ragmon.scoring.scorer import Scorer, ScorerFactory
from ragmon.server.state import ServerState
from ragmon.stream.chunk import BatchCounts
from tests.support.examples import cases
from tests.support.random_records import NOON
from tests.support.saved import saved

HOURS = 72
"""The length of a run, three times as long as rows are kept."""
RELEVANT = [f"r{n}" for n in range(14)]
GOLD = GoldSet.from_rows(
    [{"qid": "a", "question": "Q?", "answerable": True, "gold_claim_substr": ["x"], "gold_citations": RELEVANT}]
)
METRICS = ("answer_precision", "citation_hit_rate", "coverage", "groundedness", "hit_rate")
law = settings(max_examples=cases(100), deadline=None, derandomize=True)


# --- live and replay --------------------------------------------------------------------------------------------------


def world(seed, step=300):
    """`(arrival, entry)` of 72 hours: users, matches, probes, labels' sources, late records, two producers' totals."""
    chance = Random(seed)
    for number in range(HOURS * HOUR // step):
        arrival = NOON + number * step
        late = chance.choice((0, 5, 200, 4000, 20 * HOUR)) if chance.random() < 0.3 else chance.random() * 20
        yield (
            arrival,
            Record(
                trace_id=f"{chance.getrandbits(128):032x}",
                ts=arrival - late,
                pipeline=chance.choice(("support", "sales")),
                source=chance.choice(("live", "live", "probe")),
                qid=chance.choice(("a", "b", None)),
                q="Q?",
                retrieved_ids=chance.sample(("d1", "d2", "d3", "d4"), chance.randrange(5)),
                answer_json=Answer(chance.choice(("x", "not in context", "y")), chance.choice(([], ["d1"], None))),
                latency_ms=Latency(total=chance.randrange(1, 4000)),
                build=chance.choice(("1", "2")),
                sampling=Sampling(audit=chance.random() < 0.9, stratum=chance.choice(("rest", "slow"))),
            ),
        )
        producers = ("one",) if number > 100 else ("one", "two")  # the second is silent for long, and given up
        for producer in producers:
            sent = arrival - chance.random() * 9
            stratum = {"pipeline": "support", "source": "live", "stratum": "rest"}
            counted = {"calls": 3 * number + 3, "kept": number + 1}
            yield arrival, Totals(ts=sent, instance=producer, started=NOON - 9.0, **stratum, **counted)


@pytest.fixture
def configured(tmp_path):
    rows = [
        {"qid": name, "question": f"Q{name}?", "answerable": True, "gold_claim_substr": ["x"], "gold_citations": ["d1"]}
        for name in "ab"
    ]
    (tmp_path / "gold.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "ragmon.toml").write_text('[pipelines.support]\n[pipelines.sales]\n[gold.gold]\npath = "gold.jsonl"\n')
    return load(tmp_path / "ragmon.toml", environ={})


def replayed(settings, entries):
    """The scorer of a replay of the lines of a trace log."""
    run = Run(ScorerFactory(settings, load_gold(settings.gold))())
    run.feed(entries)
    return run.scorer.state


@pytest.mark.slow
def test_three_days_live_are_three_days_replayed(configured, tmp_path):
    """By a monitor, by a server that is restarted from its saved state every few hours, and by any number of jobs."""
    arrivals = list(world(1))
    now = [NOON]
    monitor = Monitor(configured, clock=lambda: now[0])
    server = ServerState(configured)
    for number, (arrival, entry) in enumerate(arrivals):
        now[0] = arrival
        monitor.report([entry]) if isinstance(entry, Totals) else monitor.submit(entry)
        server.apply(number, arrival, BatchCounts(), [entry])
        if number % 100 == 99:
            data, server = server.dump(), ServerState(configured)
            server.load(data)
    digest = monitor.digest()
    entries = [entry for _, entry in arrivals]
    assert monitor.snapshot().stages["score"].dropped == {}
    assert server.engine.scorer.state.digest() == digest
    assert any(series.past.count for series in server.engine.scorer.state.series.values())
    assert replayed(configured, entries).digest() == digest
    assert replayed(configured, Random(2).sample(entries, len(entries))).digest() == digest
    (tmp_path / "log.jsonl").write_bytes(b"".join(encode(entry) + b"\n" for entry in entries))
    make = ScorerFactory(configured, load_gold(configured.gold))
    for jobs in (1, 2, 3):
        assert run_files([str(tmp_path / "log.jsonl")], make, jobs=jobs).scorer.state.digest() == digest


def changed(entries, place, **fields):
    """The entries with another one in a place."""
    return [*entries[:place], msgspec.structs.replace(entries[place], **fields), *entries[place + 1 :]]


@pytest.mark.slow
def test_whatever_decides_a_number_is_in_it(configured):
    """Of what is older than the retention, all but its time."""
    entries = [entry for _, entry in world(3)]
    first = next(n for n, entry in enumerate(entries) if isinstance(entry, Record) and entry.qid == "a")
    last = max(n for n, entry in enumerate(entries) if isinstance(entry, Record) and entry.qid == "a")
    totals = max(n for n, entry in enumerate(entries) if isinstance(entry, Totals))
    digests = {
        replayed(configured, other).digest()
        for other in (
            entries,
            changed(entries, first, answer_json=Answer("z", ["d1"])),
            changed(entries, last, ts=entries[last].ts - 600.0),
            changed(entries, first, latency_ms=Latency(total=9000)),
            changed(entries, first, qid="b"),
            changed(entries, first, sampling=Sampling(audit=False, stratum="error")),
            changed(entries, totals, calls=entries[totals].calls + 1),
            changed(entries, totals, ts=entries[totals].ts - 900.0),
            changed(entries, totals, started=1.0),
            changed(entries, totals, stratum="slow"),
            entries[:-1],
        )
    }
    assert len(digests) == 11


# --- more facts than a row keeps --------------------------------------------------------------------------------------


def with_many_facts(number, seed=0, seconds=300.0):
    """Records whose facts are almost all distinct."""
    chance = Random(seed)
    for n in range(number):
        ids = [name if chance.random() < 0.5 else f"x{name}" for name in RELEVANT]
        yield Record(
            ts=NOON + chance.random() * seconds,
            qid="a",
            retrieved_ids=[*ids, *(f"y{n}" for n in range(chance.randrange(8)))],
            answer_json=Answer("x", ["r1"]),
            measures={"groundedness": n % 5 / 4},
        )


def scorer_of_gold():
    """With some of the metrics: to score thousands of different facts by all of them would take most of the time."""
    return Scorer(GOLD, metrics={name: metric for name, metric in build().items() if name in METRICS})


def counted(records):
    scorer = scorer_of_gold()
    for record in records:
        scorer.observe(record)
    return scorer


@pytest.mark.slow
def test_in_any_order_with_more_facts_than_a_row_keeps():
    """More than 20,000 in five minutes: in order, shuffled, all late, in parts."""
    records = list(with_many_facts(24_000))
    later = Record(ts=NOON + 3 * HOUR, qid="a", answer_json=Answer("x", []))
    scorers = [
        counted(some)
        for some in ([*records, later], [later, *records], [*Random(1).sample(records, len(records)), later])
    ]
    parts = counted([later, *records[:9000]])
    parts.state.merge(counted(records[9000:]).state)
    whole = scorers[0].state
    assert {scorer.state.digest() for scorer in scorers} == {parts.state.digest()}
    rows = [row for series in whole.series.values() for row in series.folded.values()]
    assert max(len(row.cells) for row in rows) == CELLS
    assert sum(row.spilled for row in rows) > 20_000 - CELLS  # 98 % of the facts are distinct
    metrics = [scorer.snapshot().find("default", "replay", gold="gold").metrics for scorer in (*scorers, parts)]
    assert metrics[0] == metrics[1] == metrics[2] == metrics[3]
    assert metrics[0]["groundedness"].n == len(records)


@pytest.mark.slow
def test_several_processes_with_more_facts_than_a_row_keeps(tmp_path):
    later = Record(ts=NOON + 3 * HOUR, qid="a", answer_json=Answer("x", []))
    records = [*with_many_facts(2000, seed=1), later, *with_many_facts(5000, seed=2)]
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(encode(record) + b"\n" for record in records))
    runs = [run_files([str(path)], scorer_of_gold, jobs=jobs).scorer.state for jobs in (1, 2, 3)]
    assert {state.digest() for state in runs} == {runs[0].digest()}
    assert any(row.spilled for series in runs[0].series.values() for row in series.folded.values())


# --- calls ------------------------------------------------------------------------------------------------------------

reports = st.lists(
    st.tuples(st.integers(0, 400), st.sampled_from("ab"), st.sampled_from(("rest", "slow"))), max_size=25
)


@law
@given(reports, st.lists(st.integers(0, 40), max_size=4), st.integers(0, 2**32 - 1).map(Random))
def test_all_calls_have_the_same_rows_whatever_is_kept_of_them(lines, folds, chance):
    """Counts grow; lines come in any order, twice, and steps expire once all of their lines have come."""
    kept_since = 0.0
    growing = sorted(set(lines))
    totals = [
        Totals(
            ts=NOON + 97.0 * step,
            instance=name,
            started=NOON,
            pipeline="support",
            source="live",
            stratum=stratum,
            calls=n + 1,
            kept=n // 2,
        )
        for n, (step, name, stratum) in enumerate(growing)
    ]
    whole, expiring = CallTotals(), CallTotals()
    for line in chance.sample([*totals, *totals[:3]], len(totals) + len(totals[:3])):
        whole.see(line)
    for place, line in enumerate(totals):
        expiring.see(line)
        oldest = line.ts - 2 * HOUR - (folds[0] * 300 if folds else 0)
        if folds and chance.random() < 0.3 and not come_back(totals[: place + 1], totals[place + 1 :], oldest):
            expiring.fold(line.ts - HOUR, oldest)
            expiring, kept_since = saved(expiring), max(kept_since, oldest)
    assert expiring.to_rows(kept_since) == whole.to_rows(kept_since)


def come_back(seen, later, oldest):
    """Whether a producer that has been silent since a time reports again; it is summed up then, and begins anew."""
    newest = {line.instance: line.ts for line in seen}
    return any(newest.get(line.instance, oldest) // 10 * 10 < oldest for line in later)
