"""Incident streams: what a simulated day looks like, and what each fault breaks."""

from __future__ import annotations

import copy
import json
import math
import random
from collections import Counter, defaultdict
from statistics import mean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bench.scenario import Stream
from bench.scenario.faults import FAULTS
from bench.scenario.incidents import BENIGN, EXPECT, HOUR, PRESETS, Incident, schedule
from bench.scenario.pool import Reply, pool
from ragmon.core.errors import RagmonError, UnknownNameError
from ragmon.core.record import Record
from ragmon.ingest.files import ReadSummary, read_files
from ragmon.ingest.gold import GoldSet
from ragmon.scoring.scorer import Scorer
from tests.support.command_line import ragmon
from tests.support.scenario_data import TOKEN, during, gold_rows, judged, recorded, said, stream

TWICE = {"Who had military control during the Yuan?"}
"""In the gold set, and once more under another id."""


def assert_share(found, n, share, errors=4):
    assert n > 100
    assert found / n == pytest.approx(share, abs=errors * math.sqrt(share * (1 - share) / n) + 0.01)


# --- what a stream is -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_arguments_give_the_same_stream_and_another_seed_another_one():
    one, same, other = (list(Stream("random", seed, 3).records()) for seed in (5, 5, 6))
    assert one == same
    assert one != other
    assert len({record.trace_id for record in one}) == len(one)


@pytest.mark.slow
def test_records_come_in_time_order_within_the_stream_and_only_probes_name_their_question():
    chosen, items = stream("standard"), {item.qid: item for item in stream("standard").gold}
    times = [record.ts for record in chosen.records()]
    assert times == sorted(times)
    assert chosen.start < times[0] < times[-1] < chosen.end
    for record in chosen.records():
        assert record.source in ("probe", "live")
        if record.source == "probe":
            assert record.q == items[record.qid].question
        else:
            assert record.qid is None


@pytest.mark.slow
def test_traffic_follows_the_day_and_a_burst_multiplies_it():
    """The rate is 1 + sin(2 pi t / day) / 2; the burst of the quiet preset makes it four times that."""
    chosen = stream("quiet", 24)
    bursts = [i for i in chosen.incidents if i.kind == "traffic_burst"]
    counts = Counter(int((record.ts - chosen.start) // (HOUR / 2)) for record in chosen.records())
    for half in range(48):
        times = [chosen.start + (half + part / 100) * HOUR / 2 for part in range(100)]
        factor = 4 if any(i.start <= times[0] < i.end for i in bursts) else 1
        rate = factor * mean(1 + math.sin(2 * math.pi * (ts - chosen.start) / 86_400) / 2 for ts in times)
        assert counts[half] == pytest.approx(rate * HOUR / 2, abs=4.5 * math.sqrt(rate * HOUR / 2) + 10)


@pytest.mark.slow
def test_load_and_probe_share_are_what_was_asked_for():
    records = list(Stream("quiet", 1, 24, rps=0.1, probe_share=0.3).records())
    benign = sum((i.severity - 1) * (i.end - i.start) for i in stream("quiet", 24).incidents)
    assert len(records) == pytest.approx(0.1 * (86_400 + benign), rel=0.1)
    assert_share(sum(record.source == "probe" for record in records), len(records), 0.3)


@pytest.mark.slow
def test_a_latency_incident_makes_generation_three_times_as_slow():
    chosen = stream("standard")
    slow = next(i for i in chosen.incidents if i.kind == "latency")
    stages = {True: [], False: []}
    for record in chosen.records():
        took = record.latency_ms
        stages[slow.start <= record.ts < slow.end].append(took)
        assert took.total == pytest.approx(took.retrieve + took.generate, abs=0.2)
    for incident, times in ((False, 750), (True, 2250)):
        assert median(stage.generate for stage in stages[incident]) == pytest.approx(times, rel=0.05)
        assert median(stage.retrieve for stage in stages[incident]) == pytest.approx(45, rel=0.05)


def test_of_the_600_gold_questions_the_system_fails_thirty_by_the_published_rule():
    """Claim phrase of five characters or more and a retrieved gold citation, or a refusal where there is no answer."""
    failed, items = 0, [item for item in stream("quiet").gold if item.question in recorded()]
    for item in items:
        row, (ids, claim, citations) = gold_rows()[item.qid], recorded()[item.question]
        if claim == TOKEN or not row["answerable"]:
            failed += (claim == TOKEN) == row["answerable"]
        else:
            hit = set(citations) & set(row["gold_citations"]) and set(citations) <= set(ids)
            failed += not (hit and any(len(p) >= 5 and p.lower() in claim.lower() for p in row["gold_claim_substr"]))
    assert (len(stream("quiet").gold), len(items), failed) == (600, 599, 30)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"hours": 0}, "hours"), ({"rps": -1.0}, "rps"), ({"probe_share": 1.5}, "probe_share")],
)
def test_an_argument_out_of_range_is_named(wrong, message):
    with pytest.raises(RagmonError, match=message):
        Stream(**({"preset": "quiet", "seed": 1, "hours": 1} | wrong))


def test_an_unknown_preset_is_answered_with_the_nearest_one():
    with pytest.raises(UnknownNameError) as caught:
        Stream("subtel", 1, 12)
    assert caught.value.hint == "did you mean subtle?"


# --- incidents --------------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), hours=st.floats(2, 48), preset=st.sampled_from(PRESETS))
def test_incidents_follow_one_another_with_time_to_recover_and_end_within_the_stream(seed, hours, preset):
    incidents = schedule(preset, seed=seed, hours=hours, start=1e9)
    ends = [1e9, *(i.end for i in incidents)]
    for incident, before in zip(incidents, ends, strict=False):
        assert incident.kind in (*EXPECT, *BENIGN)
        assert incident.benign == (not incident.expect)
        assert before + 0.5 * HOUR - 1e-3 <= incident.start < incident.end <= 1e9 + hours * HOUR + 1e-3


def test_every_kind_comes_up_in_random_streams():
    drawn = {i.kind for seed in range(20) for i in schedule("random", seed=seed, hours=24, start=0)}
    assert drawn == {*EXPECT, *BENIGN}


@pytest.mark.slow
def test_outside_of_real_incidents_every_answer_is_the_recorded_one():
    for preset in ("quiet", "standard", "subtle"):
        real = [i for i in stream(preset).incidents if not i.benign]
        for record in judged(stream(preset).records()):
            if not any(i.start <= record.ts < i.end for i in real):
                assert said(record) == recorded()[record.q]


def test_users_ask_about_one_article_or_what_has_no_answer_but_probes_stay_the_same():
    """During the mix, four in five questions are known to have no answer; the others are the usual ones."""
    chosen, rows = stream("quiet"), {row["question"]: row for row in gold_rows().values()}
    gold = {item.question for item in chosen.gold}
    topic, mix = (next(i for i in chosen.incidents if i.kind == k) for k in ("topic_shift", "unanswerable_mix"))

    def live(records):
        found = [rows[r.q] for r in records if r.source == "live" and r.q in rows]
        assert not gold & {row["question"] for row in found} - TWICE
        return found

    def articles(found):
        return {row["gold_citations"][0].split("#")[0] for row in found if row["answerable"]}

    assert len(articles(live(during(chosen.records(), topic)))) == 1
    assert len(articles(live(chosen.records()))) > 10
    asked, hopeless = [], []
    for part in ([r for r in chosen.records() if r.ts < topic.start], during(chosen.records(), mix)):
        asked.append(sum(record.source == "live" for record in part))
        hopeless.append(sum(not row["answerable"] for row in live(part)))
    assert_share(hopeless[1], asked[1], 0.8 + 0.2 * hopeless[0] / asked[0])
    assert {record.q for record in during(chosen.records(), mix) if record.source == "probe"} <= gold


BREAKABLE = {"refusal_wave": False, "citation_break": False, "hallucination": True}
"""Whether a kind breaks refusals, or what is not one; the others break any answer."""


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["standard", "subtle"])
def test_an_incident_breaks_the_share_of_answers_its_severity_says(preset):
    for incident in stream(preset).incidents:
        if incident.kind in FAULTS and not incident.ramp:
            wanted = BREAKABLE.get(incident.kind)
            may_break, spared = [], []
            for record in during(judged(stream(preset).records()), incident):
                breakable = wanted is None or (recorded()[record.q][1] == TOKEN) == wanted
                (may_break if breakable else spared).append(said(record) != recorded()[record.q])
            assert_share(sum(may_break), len(may_break), incident.severity)
            assert not any(spared)


def test_a_ramp_starts_from_nothing_and_reaches_the_severity_at_its_end():
    chosen = stream("standard")
    ramp = next(i for i in chosen.incidents if i.ramp)
    changed = defaultdict(list)
    for record in during(judged(chosen.records()), ramp):
        quarter = int(4 * (record.ts - ramp.start) / (ramp.end - ramp.start))
        changed[quarter].append(said(record) != recorded()[record.q])
    for quarter in range(4):
        assert_share(sum(changed[quarter]), len(changed[quarter]), ramp.severity * (quarter + 0.5) / 4)


@pytest.mark.parametrize("kind", ["traffic_burst", "latency"])
def test_a_ramp_of_a_rate_or_a_duration_starts_from_the_usual(kind):
    incident = Incident(0, kind, 100.0, 200.0, 4, ramp=True)
    assert [incident.factor(ts) for ts in (100, 150, 200)] == [1, 2.5, 4]


# --- faults -----------------------------------------------------------------------------------------------------------

UNMOVED = {("citation_scope", "compliance"), ("citation_break", "compliance")}
"""A list of wrong ids is still a list, and one in a field of another name was not captured."""


def metrics_of(replies):
    scorer = Scorer(pool().gold)
    for reply in replies:
        fields = {"qid": reply.qid, "q": reply.question, "retrieved_ids": reply.retrieved_ids, "error": reply.error}
        scorer.observe(Record(source="probe", answer_json=reply.answer, ts=1.0, **fields))
    series = scorer.snapshot().find("default", "probe", gold="gold")
    return {name: stat.value for name, stat in series.metrics.items()}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_moves_the_metrics_that_are_expected_to_raise_the_alarm(kind):
    rng = random.Random(1)
    broken = [FAULTS[kind](reply, rng) for reply in pool().probes]
    # A pipeline that never cited otherwise has a form of its own.
    before, after = metrics_of(pool().probes), metrics_of([*pool().probes, *broken])
    for metric in EXPECT[kind]:
        moved = after[metric] is not None and abs(after[metric] - before[metric]) > 0.05
        assert moved == ((kind, metric) not in UNMOVED), metric


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_leaves_the_recorded_answers_as_they_are(kind):
    """They are shared by all streams."""
    before, rng = copy.deepcopy(pool().probes), random.Random(1)
    changed = [FAULTS[kind](reply, rng) for reply in pool().probes]
    assert pool().probes == before != tuple(changed)
    assert [(r.qid, r.question) for r in changed] == [(r.qid, r.question) for r in before]


def test_a_new_cut_of_the_corpus_renumbers_every_chunk_of_its_document():
    reply = Reply("a", "which?", ["x#9", "a#b#0"], "this", ["x#9"])
    shifted = FAULTS["id_shift"](reply, random.Random(1))
    assert (shifted.retrieved_ids, shifted.claim, shifted.citations) == (["x#10", "a#b#1"], "this", ["x#10"])


def test_what_is_made_up_comes_with_a_citation():
    rng = random.Random(1)
    made_up = [FAULTS["hallucination"](reply, rng) for reply in pool().probes if reply.claim == TOKEN]
    assert made_up
    assert all(reply.citations and TOKEN not in reply.claim for reply in made_up)


def test_citations_break_in_four_ways():
    reply, rng = Reply("a", "which?", ["x#9", "y#1"], "this", ["y#1"]), random.Random(1)
    seen = {json.dumps([r.claim, r.citations]) for r in (FAULTS["citation_break"](reply, rng) for _ in range(99))}
    assert seen == {'["this", ["[y#1]"]]', '["this", ["2"]]', '["this", null]', '["this [y#1]", []]'}


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    chosen, folder = Stream("random", 4, 6, rps=0.5, probe_share=0.2), tmp_path_factory.mktemp("stream")
    chosen.write(folder)
    return chosen, folder


@pytest.mark.slow
def test_what_is_written_reads_back_as_the_same_records_gold_and_incidents(written):
    chosen, folder = written
    intake = ReadSummary()
    # The file also names the system that answered.
    records = [replace(record, model=None) for record in read_files([str(folder / "stream.jsonl.gz")], intake)]
    assert records == list(chosen.records())
    assert not intake.rejected
    gold = GoldSet.load(folder / "gold.jsonl")
    assert (gold.name, gold.version) == (chosen.gold.name, chosen.gold.version)
    events = json.loads((folder / "incidents.json").read_text("utf-8"))
    assert [
        Incident(*(e[f] for f in ("id", "kind", "start", "end", "severity", "ramp"))) for e in events
    ] == chosen.incidents
    assert [(e["benign"], tuple(e["expect"])) for e in events] == [(i.benign, i.expect) for i in chosen.incidents]


@pytest.mark.slow
def test_the_same_stream_is_written_as_the_same_bytes(written, tmp_path):
    chosen, folder = written
    chosen.write(tmp_path)
    for name in ("stream.jsonl.gz", "gold.jsonl", "incidents.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.slow
def test_ragmon_replays_a_written_stream(written):
    chosen, folder = written
    report = ragmon("replay", folder / "stream.jsonl.gz", "--gold", folder / "gold.jsonl").json
    total = len(list(chosen.records()))
    assert (report["records"]["scored"], report["records"]["rejected"]) == (total, {})
    (probed,) = [s for s in report["series"] if (s["source"], s["gold"], s["window"]) == ("probe", "gold", "all")]
    failed = sum(record.source == "probe" and record.error is not None for record in chosen.records())
    assert probed["metrics"]["error_rate"]["sum"] == failed
    assert probed["metrics"]["error_rate"]["n"] == sum(record.source == "probe" for record in chosen.records())
