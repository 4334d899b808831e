"""How the gold item of a user's question was found is counted, shown, and the same live, replayed and added up."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ragmon.capture.redact import Redaction
from ragmon.config.load import load
from ragmon.core.constants import HEAD_NOTE
from ragmon.core.gold_item import GoldItem
from ragmon.core.process import keyed_hash
from ragmon.core.record import Record, Sampling, TextFacts, encode
from ragmon.core.text import normalise_question
from ragmon.gates import coverage
from ragmon.gates.releases import of_release
from ragmon.ingest.gold import GoldIndex, GoldSet, load_gold
from ragmon.monitor.replay import run_files
from ragmon.scoring.scorer import Scorer, ScorerFactory
from tests.support.command_line import lines, ragmon
from tests.support.manual_writer import ManualWriter, fingerprint
from tests.support.serving import accounted, asked, get, replayed, send_body, serving, whole

KEY = b"sixteen bytes of a secret"
GOLD = GoldSet(
    "gold",
    (
        GoldItem("ferry", "When does the ferry leave?", True, ["nine"], paraphrases=["What time is the ferry?"]),
        GoldItem("moon", "Who owns the moon?", answerable=False, paraphrases=["Whose is the moon?"]),
    ),
)
ROWS = [
    {
        "qid": item.qid,
        "question": item.question,
        "answerable": item.answerable,
        "paraphrases": list(item.paraphrases),
        **({"gold_claim_substr": ["nine"]} if item.answerable else {}),
    }
    for item in GOLD
]


def hashed(question, key=KEY):
    """What stands for a question that did not travel."""
    return TextFacts(question_hash=keyed_hash(key, normalise_question(question)), answered=True, refused=False)


ASKED = {
    "qid": {"qid": "ferry"},
    "question": {"q": " when does the FERRY leave"},
    "paraphrase": {"q": "whose is the moon"},
    "hash": {"facts": hashed("What time is the ferry?")},
    "embedding": {"qid": "moon", "matched": "embedding"},
    "none": {"q": "Where is the moon?"},
}
"""A request that is matched so."""


def scorer(keys=None):
    return Scorer(GoldIndex(GOLD, {None: KEY} if keys is None else keys))


def ways(scorer):
    return coverage.match_counts(scorer.snapshot()).get("default", {})


# --- how --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ASKED)
def test_every_way_a_question_of_a_user_is_matched_has_a_name(how):
    found = scorer()
    assert found.observe(Record(source="live", **ASKED[how]))
    assert ways(found) == {"none": 0} | {how: 1}
    assert found.state.unmatched == (how == "none")


@pytest.mark.parametrize(
    "facts",
    [hashed("Where is the moon?"), hashed("Who owns the moon?", KEY[::-1]), TextFacts(answered=True, refused=False)],
    ids=["another question", "another key", "no hash"],
)
def test_a_hash_that_is_none_of_a_gold_question_matches_nothing(facts):
    found = scorer()
    assert found.observe(Record(source="live", facts=facts))
    assert ways(found) == {"none": 1}


def test_without_a_key_no_hash_matches():
    found = scorer({})
    assert found.observe(Record(source="live", **ASKED["hash"]))
    assert ways(found) == {"none": 1}


def test_a_question_in_the_clear_that_redaction_changed_is_matched_by_its_hash():
    """What people may read is not what was asked."""
    facts = hashed("Who owns the moon?")
    facts.redacted = ["q"]
    found = scorer()
    assert found.observe(Record(source="live", q="When does the ferry leave?", facts=facts))
    assert ways(found) == {"none": 0, "hash": 1}
    assert found.snapshot().find("default", "match", gold="gold").metrics["under_refusal_rate"].n == 1


def test_each_pipeline_has_its_own_key():
    index = GoldIndex(GOLD, {None: KEY, "sales": KEY[::-1]})
    for pipeline, key in (("sales", KEY[::-1]), ("support", KEY)):
        record = Record(source="live", pipeline=pipeline, facts=hashed("Who owns the moon?", key))
        assert index.match(record).qid == "moon"
        record.facts = hashed("Who owns the moon?", key[::-1])
        assert index.match(record) is None


def test_probes_and_what_was_kept_for_its_outcome_are_not_counted():
    """Coverage is a share of the uniform draw."""
    found = scorer()
    for record in (
        Record(source="probe", qid="moon"),
        Record(qid="moon"),
        Record(source="live", qid="moon", sampling=Sampling(audit=False, stratum="error")),
    ):
        assert found.observe(record)
    assert not found.state.matched


@pytest.mark.parametrize("said", ["qid", "none", "hash", "by magic", ""])
def test_a_record_cannot_invent_a_way(said):
    found = scorer()
    assert found.observe(Record(source="live", qid="moon", matched=said))
    assert ways(found) == {"none": 0, "qid": 1}


# --- live, replayed, added up -----------------------------------------------------------------------------------------


def drawn(n, seed=1, **fields):
    """Requests of users, and how each of them is matched."""
    draw = random.Random(seed)
    hows = [draw.choice([*ASKED, "none"]) for _ in range(n)]
    return [
        Record(v=1, source="live", trace_id=f"{k:032x}", **ASKED[how], **fields) for k, how in enumerate(hows)
    ], hows


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_counts_of_several_processes_add_up(tmp_path, jobs):
    records, hows = drawn(400)
    paths = [tmp_path / "even.jsonl", tmp_path / "odd.jsonl"]
    for first, path in enumerate(paths):
        path.write_bytes(b"".join(map(encode, records[first::2])))
    run = run_files([str(path) for path in paths], scorer, jobs=jobs)
    assert ways(run.scorer) == Counter(hows)


@pytest.mark.parametrize("content", ["none", "hash", "redacted", "full"])
def test_what_the_application_matched_is_counted_as_it_was_matched(content):
    """Whether the text travels or not, the monitor counts what it would have counted with it."""
    here = GoldIndex(GOLD)
    redact = Redaction(content=content, gold=here, key=KEY)
    clear, sent = scorer(), scorer()
    for how in ("qid", "question", "paraphrase", "none"):
        record = Record(source="live", **ASKED[how])
        assert clear.observe(record)
        assert sent.observe(redact(record))
    assert ways(sent) == ways(clear) == {"qid": 1, "question": 1, "paraphrase": 1, "none": 1}


CONFIG = "[gold.gold]\npath = 'gold.jsonl'\n[pipelines.support]\n[capture]\nhash_key_file = 'hash.key'\n"


@pytest.fixture
def folder(tmp_path):
    lines(tmp_path / "gold.jsonl", ROWS)
    (tmp_path / "hash.key").write_bytes(KEY)
    return tmp_path


def users(n, seed=1):
    """Requests of users, just now."""
    records, hows = drawn(n, seed)
    found = [
        asked(k, **{"q": None, **{f: getattr(record, f) for f in ("q", "facts", "matched")}})
        for k, record in enumerate(records)
    ]
    for mine, record in zip(found, records, strict=True):
        mine.qid = record.qid
    return found, Counter(hows)


@pytest.mark.slow
def test_a_server_counts_shows_and_replays_how_it_matched(folder):
    records, hows = users(300)
    with serving(folder, CONFIG) as running:
        send_body(running, whole(records))
        accounted(running)
        metrics, status = running.metrics(), running.status()
        shown = {how: metrics[f'ragmon_gold_match_total{{how="{how}",pipeline="support"}}'] for how in hows}
        assert shown == hows
        seen = metrics['ragmon_gold_items_seen{gold="gold",pipeline="support",source="match",window="1h"}']
        assert seen == 2
        assert status["gold"]["ways"] == {"support": dict(hows)}
        told = {"pipeline": "support", "window": "1h", "matched": 300 - hows["none"], "records": 300}
        assert told in status["gold"]["traffic"]
        page = get(f"{running.admin}/")[1]
        assert f"{300 - hows['none']} of 300 audit records of user traffic match a gold item" in page
        assert HEAD_NOTE[1:] in page  # as a sentence
        with running.server.writer.lock:
            digest = running.server.writer.server_state.engine.scorer.state.digest()
    assert replayed(folder) == digest


def test_what_was_matched_survives_a_crash_and_checkpoints(folder):
    with ManualWriter(folder, CONFIG) as manual:
        for turn in range(3):
            records, _ = users(40, seed=turn)
            for place, record in enumerate(records):
                record.ts, record.trace_id = manual.time.now, f"{1 + 40 * turn + place:032x}"
            manual.send(whole(records))
            if turn == 1:
                manual.save()
        before = fingerprint(manual.server_state), dict(manual.server_state.engine.scorer.state.matched)
        manual.again()
        assert (fingerprint(manual.server_state), dict(manual.server_state.engine.scorer.state.matched)) == before
        assert manual.agrees()
        assert sum(before[1].values()) > 60


def test_a_server_without_the_key_counts_hashed_questions_as_unmatched(folder, caplog):
    (folder / "ragmon.toml").write_text(CONFIG)
    (folder / "hash.key").unlink()
    settings = load(folder / "ragmon.toml", environ={})
    found = ScorerFactory(settings, load_gold(settings.gold))()
    assert found.observe(Record(source="live", pipeline="support", **ASKED["hash"]))
    assert coverage.match_counts(found.snapshot())["support"] == {"none": 1}
    assert "hashed questions match no gold item" in caplog.text


# --- reports ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_report_says_how_much_matched_and_of_which_questions_that_is(folder):
    records, hows = drawn(60)
    (folder / "traces.jsonl").write_bytes(b"".join(map(encode, records)))
    (folder / "ragmon.toml").write_text("[gold.gold]\npath = 'gold.jsonl'\n[capture]\nhash_key_file = 'hash.key'\n")
    done = ragmon("replay", "traces.jsonl", "--format", "json", cwd=folder)
    assert done.json["matches"] == {"default": dict(Counter(hows))}
    text = ragmon("replay", "traces.jsonl", "--format", "md", cwd=folder).out
    assert f"{60 - Counter(hows)['none']} of 60 audit records of user traffic match a gold item" in text
    assert "do not describe all traffic" in text


def test_of_one_build_nobody_says_how_it_was_matched():
    whole = scorer()
    for told in ASKED.values():
        assert whole.observe(Record(source="live", build="new", **told))
    build = scorer()
    build.restore(of_release(whole.state, "build", "new"))
    assert coverage.match_counts(whole.snapshot())["default"] == dict.fromkeys(ASKED, 1)
    assert coverage.match_counts(build.snapshot()) == {}


def test_where_there_is_no_gold_or_no_traffic_of_users_nothing_is_said_of_it():
    alone = Scorer()
    alone.observe(Record(source="live", q="Why?"))
    assert coverage.match_counts(alone.snapshot()) == {}
    probed = scorer()
    probed.observe(Record(source="probe", qid="moon"))
    assert coverage.match_counts(probed.snapshot()) == {}
    assert [(one.source, one.seen, one.items) for one in coverage.covered(probed.snapshot(), "all")] == [
        ("probe", 1, 2)
    ]
