"""A gold set is swapped while requests come in: every number belongs to one version of it, and to one alone."""

from __future__ import annotations

import json
import random
import re
import threading
from collections import Counter
from itertools import count

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from ragmon.alarms.observations import ObservationSelector, StepClusters
from ragmon.alarms.plan import AlarmRule
from ragmon.config.load import load
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Record
from ragmon.export.prometheus import Collector
from ragmon.ingest.gold import GoldSet
from ragmon.scoring.minutes import MinuteBatches
from ragmon.scoring.scorer import Scorer
from ragmon.server.state import ServerState, entries, recover
from ragmon.server.store import JournalReader
from ragmon.stream.chunk import BatchCounts
from tests.server.test_serve_reload import LOADED, put, reloaded
from tests.support.manual_writer import ManualWriter, fingerprint
from tests.support.serving import accounted, asked, configuration, get, journalled, process, send_body, values, whole
from tests.support.waiting import wait_for

CONFIG = """
[gold.gold]
path = "gold.jsonl"
pipeline = "support"
[pipelines.support.slices]
lang = ["de"]
[pipelines.support.gates.precision]
metric = "answer_precision"
at_least = 0.5
source = "probe"
"""
WORDS = ("amber", "birch", "cedar", "dogwood")
"""What each version of the gold holds to be right; an answer names some of them, so no two versions agree."""
ITEMS = 30
BATCH = 40


def version(word):
    """A gold set by which answers that name a word are right."""
    items = (GoldItem(f"a{k}", f"What is {k}?", True, [word], citations=["d1"]) for k in range(ITEMS))
    return GoldSet("gold", tuple(items))


def written(word):
    """The same as a gold file."""
    told = {"answerable": True, "gold_claim_substr": [word], "gold_citations": ["d1"]}
    rows = ({"qid": item.qid, "question": item.question, **told} for item in version(word))
    return "".join(json.dumps(row) + "\n" for row in rows)


NAMED = {word: version(word).short_version for word in WORDS}
SOURCES = ("probe", "match")


def batch(first, **told):
    """Probes, and questions of users that are gold ones."""
    found = []
    for number in range(first, first + BATCH):
        draw = random.Random(number)
        claim = " ".join(word for word in WORDS if draw.random() < 0.6)
        fields = {"claim": f"it is {claim}", "tags": {"lang": draw.choice(["de", "fr"])}, **told}
        if draw.random() < 0.5:
            found.append(asked(number, source="probe", **fields))
            found[-1].qid = f"a{number % ITEMS}"
        else:
            found.append(asked(number, q=f"what is {number % ITEMS}", **fields))
            found[-1].qid = None
    return found


def by_version(metrics, name="rag_answer_precision", more=""):
    """What counters say: `(scored, score)` by source, version and slice."""
    found = {}
    for line, value in metrics.items():
        if (told := re.fullmatch(rf"{name}_(score|scored)_total\{{(.*)\}}", line)) and more in line:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', told[2]))
            key = (labels["source"], labels["gold_version"], labels.get("slice", ""))
            found.setdefault(key, {})[told[1]] = value
    return {key: (counts["scored"], counts["score"]) for key, counts in found.items()}


def recounted(records, scored):
    """The same, counted by hand: of each source's records the first so many belong to the first version, and so on."""
    found, place = {}, Counter()
    turns = {source: [word for word in WORDS for _ in range(scored[source, word])] for source in SOURCES}
    for record in records:
        source = "probe" if record.source == "probe" else "match"
        word = turns[source][place[source]]
        place[source] += 1
        for where in ("", "lang=de" if record.tags["lang"] == "de" else "lang=__other__"):
            n, right = found.get((source, NAMED[word], where), (0, 0))
            found[source, NAMED[word], where] = (n + 1, right + (word in record.answer_json.claim))
    return found


class Load:
    """Two senders that never pause, and what the server says meanwhile."""

    def __init__(self, running):
        self.running = running
        self.sent = 0
        self._numbers, self._lock, self._stop = count(0, BATCH), threading.Lock(), threading.Event()
        self._senders = [threading.Thread(target=self._send) for _ in range(2)]

    def __enter__(self):
        for sender in self._senders:
            sender.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for sender in self._senders:
            sender.join()

    def _send(self):
        while not self._stop.is_set():
            with self._lock:
                first = next(self._numbers)
            send_body(self.running, whole(batch(first)))
            with self._lock:
                self.sent += BATCH

    def page(self):
        return get(f"{self.running.admin}/metrics")[1]

    def more(self, word):
        """Wait until a version has scored many more of both sources; returns the page that says so."""

        def scored(page):
            found = by_version(values(page))
            return [found.get((source, NAMED[word], ""), (0, 0))[0] for source in SOURCES]

        before = scored(self.page())
        return wait_for(self.page, lambda page: all(n >= m + 60 for n, m in zip(scored(page), before, strict=True)))


def in_force(page, word):
    """A page on which one version is in force, and each series stands once."""
    assert f'ragmon_gold_info{{gold="gold",version="{NAMED[word]}"}} 1.0' in page
    lines = [line.rpartition(" ")[0] for line in page.split("\n") if line and not line.startswith("#")]
    assert sorted(set(lines)) == sorted(lines)
    return values(page)


@pytest.mark.slow
def test_under_load_no_score_of_one_version_is_in_the_count_of_another(tmp_path):
    """Four versions, one of them half-written at first: the same counts by hand, and to the last bit in a replay."""
    gold, seen = tmp_path / "gold.jsonl", []
    gold.write_text(written(WORDS[0]))
    configuration(tmp_path, CONFIG)
    with process(tmp_path) as running:
        with Load(running) as load_:
            for turn, word in enumerate(WORDS):
                if turn:
                    put(gold, written(word))
                    reloaded(running)
                metrics = in_force(load_.more(word), word)
                assert metrics[LOADED] == 1
                seen.append(by_version(metrics))
                if turn == 1:
                    put(gold, written(WORDS[2])[:-60])
                    reloaded(running)
                    assert in_force(load_.more(word), word)[LOADED] == 0
        assert accounted(running)["scored"] == load_.sent
        metrics = in_force(load_.page(), WORDS[-1])
        assert running.stop() == 0
    found = by_version(metrics)
    for place, earlier in enumerate(seen[:-2]):  # nothing more was counted for a version that had been replaced
        old = {(source, NAMED[WORDS[place]], "") for source in SOURCES}
        assert {key: seen[place + 2][key] for key in old} == {key: found[key] for key in old}
        assert all(earlier[key][0] <= found[key][0] for key in old)
    records = journalled(tmp_path)
    assert len(records) == load_.sent
    scored = {(source, word): int(found[source, NAMED[word], ""][0]) for source in SOURCES for word in WORDS}
    expected = recounted(records, scored)
    assert all(0 < right < n for n, right in expected.values())
    assert {**found, **by_version(metrics, "rag_slice", 'metric="answer_precision"')} == expected
    again, server = swapped_again(tmp_path, {word: scored["probe", word] for word in WORDS})
    assert again == server


def swapped_again(folder, probes):
    """What the journal comes to with the gold swapped between the rows where it was, and what the server counted."""

    def ledger_of(word):
        (folder / "gold.jsonl").write_text(written(word))
        return ServerState(load(folder / "ragmon.toml", environ={}))

    words = iter(WORDS)
    word = next(words)
    server_state, left = ledger_of(word), probes[word]
    with JournalReader(folder / "state") as journal:
        for row in journal.rows():
            lines = entries(row.lines)
            if left == 0 and any(isinstance(line, Record) for line in lines):
                word = next(words)
                after, left = ledger_of(word), probes[word]
                after.load(server_state.dump())
                server_state = after
            server_state.apply(row.seq, row.arrival, BatchCounts.load(row.counts), lines)
            left -= sum(isinstance(line, Record) and line.source == "probe" for line in lines)
        return fingerprint(server_state), fingerprint(recover(server_state.engine.settings, journal))


def test_after_a_crash_every_version_counts_what_it_counted_before(tmp_path):
    """What was scored by the old version is not scored again by the new one."""
    gold = tmp_path / "gold.jsonl"
    gold.write_text(written(WORDS[0]))
    with ManualWriter(tmp_path, CONFIG) as manual:
        for place, word in enumerate(WORDS):
            if place:
                put(gold, written(word))
                manual.reload()
            manual.send(whole(batch(BATCH * place, ts=manual.time.now)))
        before = fingerprint(manual.server_state)
        manual.again()
        assert fingerprint(manual.server_state) == before
        assert {key.gold_version for key in manual.server_state.engine.scorer.state.series} == {"", *NAMED.values()}


# --- what is shown of a version that was replaced ---------------------------------------------------------------------


def exported(manual, seconds=0.0):
    """The series of a metric of the gold set."""
    manual.tick(seconds)
    registry = CollectorRegistry()
    registry.register(Collector(lambda: manual.server_state.monitor_snapshot(manual.time.now, 0)))
    return [line for line in generate_latest(registry).decode().split("\n") if line.startswith("rag_answer_precision")]


def test_gauges_are_of_the_version_in_force_and_counters_of_a_replaced_one_end_with_its_windows(tmp_path):
    gold = tmp_path / "gold.jsonl"
    gold.write_text(written(WORDS[0]))
    with ManualWriter(tmp_path, 'windows = ["5m", "1h"]\n' + CONFIG) as manual:
        manual.send(whole(batch(0, ts=manual.time.now)))
        assert any("rag_answer_precision_samples{" in line for line in exported(manual))
        put(gold, written(WORDS[1]))
        manual.reload()
        lines = exported(manual)
        assert {line.partition("{")[0].rpartition("_")[2] for line in lines} == {"total"}
        assert all(NAMED[WORDS[0]] in line for line in lines)
        manual.time.now += 7200.0
        manual.send(whole([asked(BATCH, source="probe", ts=manual.time.now)]))
        assert exported(manual) == []


# --- alarms -----------------------------------------------------------------------------------------------------------

WATCH = AlarmRule("precision", "answer_precision", "page", at_least=True, kind="gate", needs_gold=True)


def minute(scorer, *words):
    """A minute in which the same answers, right by the first version, were scored by one version after the other."""
    steps = MinuteBatches()
    for word in words:
        scored = Scorer(version(word), state=scorer.state, observers=[steps])
        for item in version(word):
            answer = Answer(f"it is {WORDS[0]}", ["d1"])
            record = Record(source="probe", qid=item.qid, ts=60.0, retrieved_ids=["d1"], answer_json=answer)
            assert scored.observe(record)
    ((_, step),) = steps.close(float("inf"))
    return step


@pytest.mark.parametrize("second", WORDS[1:])
def test_in_the_minute_of_a_swap_alarms_look_at_the_new_version_alone(second):
    """Whatever the fingerprints of the two: the one that was not there before is the new one."""
    scorer = Scorer()
    selector = ObservationSelector(scorer.table)
    for words, swapped, share in (
        (WORDS[:1], set(), 1.0),
        ((WORDS[0], second), {"probe"}, 0.0),
        ((second,), set(), 0.0),
        ((second, WORDS[0]), {"probe"}, 1.0),
        (WORDS[:1], set(), 1.0),
    ):
        step = minute(scorer, *words)
        assert selector.turn(step).golds == swapped
        seen = selector.of(step, WATCH, StepClusters(step)).assessed
        assert (seen.n, seen.ones) == (ITEMS, ITEMS * share)
